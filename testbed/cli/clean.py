"""`testbed clean`: remove the directories of unfinished runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, Results
from testbed.cli.screen import print_json, stdout
from testbed.model.errors import MachineError

if TYPE_CHECKING:
    from testbed.results.run_directory import RunDirectory

_DAY_S = 24 * 3600.0
"""A run that another machine has begun is not removed before: its lock is not seen."""


def clean(
    results: Results = Path("results"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be removed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove the directories of unfinished runs.

    Runs that are complete or still running stay, and so does what a watched prompt has left. A run
    leaves nothing else behind: its fabric is in namespaces that end with it. Those of series are
    removed, too, unless another machine may be making them.
    """
    from testbed.live.stream.writer import is_of_prompt
    from testbed.results.run_directory import CAN_LOCK, is_locked, runs
    from testbed.runs.store import may_be_made_elsewhere

    if not CAN_LOCK:
        what = "this system does not tell a run in progress from an unfinished one"
        raise MachineError(what, f"remove the directories yourself, below {results}")
    removed = []
    for run in runs(results):
        if run.complete or is_of_prompt(run.path):
            continue
        if not is_locked(run.path) and not may_be_made_elsewhere(run.path, _DAY_S):
            removed.append(str(run.path))
            if not dry_run:
                _remove(run)
    if as_json:
        print_json({"removed": [] if dry_run else removed, "unfinished": removed})
        return
    for path in removed:
        stdout().print(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        stdout().print(f"nothing to remove in {results}")


def _remove(run: "RunDirectory") -> None:
    try:
        run.remove()
    except PermissionError as error:
        what = f"cannot remove {error.filename}: {error.strerror}"
        raise MachineError(what, "run it as the user who made the run, or with sudo") from None
