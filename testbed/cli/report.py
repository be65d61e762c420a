"""`testbed report`: analyse a run again."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import Json, RequireTrusted
from testbed.cli.screen import print_json, showing_progress, stdout
from testbed.cli.summary import print_status, show, why
from testbed.model.errors import InputError
from testbed.results.whole_file import writing


def report(
    run_directory: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run's directory, its scenario's, or SERIES/CASE."),
    ],
    require_trusted: RequireTrusted = False,
    as_json: Json = False,
) -> None:
    """Write the summary, figures and report of a run again.

    A run that broke off when all was recorded is reported too: its tables are made first.
    """
    from testbed.results.analyse import analyse
    from testbed.results.run_directory import lock_if_free
    from testbed.runs.finding import run_meant

    run = run_meant(run_directory)
    with (
        writing("RUN", run.path, "a directory to write to"),
        lock_if_free(run.path) as is_over,
        showing_progress() as progress,
    ):
        if not is_over:
            expected = "a run that is over and that nobody else analyses at this moment"
            raise InputError.of("RUN", str(run.path), expected)
        progress("analysing", 0.0)
        summary = analyse(run.path, require_trusted=require_trusted)
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        show(summary, run, stdout())
    status = summary.exit_status(require_trusted=require_trusted)
    print_status(status, why(summary, require_trusted=require_trusted))
    raise typer.Exit(status)
