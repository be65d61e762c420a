"""`testbed clean`: remove what broken-off runs left."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, Results
from testbed.cli.screen import print_json, stdout

if TYPE_CHECKING:
    from testbed.results.run_directory import RunDirectory

_RUN = re.compile(r"\d{8}T\d{6}-\d+(-\d+)?", re.ASCII)
"""What the directory of a run is called: nothing else is ever removed."""


def clean(
    results: Results = Path("results"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove the directories of broken-off runs.

    Runs that are on or complete stay. Nothing else is ever left behind: the fabric lives in
    namespaces that end with its run.
    """
    from testbed.results.run_directory import is_locked, runs

    removed = []
    for run in runs(results):
        named_so = _RUN.fullmatch(run.path.name) is not None
        if named_so and not run.complete and not is_locked(run.path):
            removed.append(str(run.path))
            if not dry_run:
                _try_to_remove(run)
    if as_json:
        print_json({"removed": [] if dry_run else removed, "unfinished": removed})
        return
    for path in removed:
        stdout().print(f"{'would remove' if dry_run else 'removed'} {path}")
    if not removed:
        stdout().print(f"nothing to remove in {results}")


def _try_to_remove(run: "RunDirectory") -> None:
    from testbed.model.errors import MachineError

    try:
        run.remove()
    except PermissionError as error:
        what = f"cannot remove {error.filename}: {error.strerror}"
        raise MachineError(what, "call it as whoever called the run, or with sudo") from None
