"""`testbed study`: scenarios times cases times seeds, published as tables and figures."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, On, Results
from testbed.cli.screen import (
    ending_in_words,
    print_error,
    print_json,
    print_warning,
    ruled_table,
    showing_progress,
    stdout,
)
from testbed.cli.summary import print_status
from testbed.model.errors import ExitStatus, printable

if TYPE_CHECKING:
    from testbed.studies.study.file import LoadedStudy
    from testbed.studies.study.study import Study


def register(command_line: typer.Typer) -> None:
    """Add `study`."""
    command_line.command(rich_help_panel="Run")(study)


def study(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The study's YAML file (docs/studies.md).")
    ],
    results: Results = Path("results"),
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", metavar="DIR", help="The study's directory; default: study-NAME in --results."
        ),
    ] = None,
    on: On = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive",
            metavar="FILE.tar.gz",
            help="Also write an archive for others: inputs, manifests, summaries, tables, figures.",
        ),
    ] = None,
    allow_code: Annotated[
        bool,
        typer.Option(
            "--allow-code", help="Execute the classes, functions or commands that it names."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check it, and list what it executes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare cases in scenarios: tables, figures, hypotheses.

    Runs that are there are not made again, also after a change of the file: the same command goes
    on. Emulated studies need root. Exit status: 0 when all hypotheses are supported, 1 when one is
    not or data was lost, 2 wrong input, 3 this machine cannot run it, 4 some cannot be judged.
    """
    from testbed.runs.fitting import Machines
    from testbed.runs.making import signals_stop
    from testbed.runs.series import Front
    from testbed.studies.study.file import load_study
    from testbed.studies.study.publishing import require_archive
    from testbed.studies.study.study import make_study, place_of

    if archive is not None:
        require_archive(archive)
    loaded = load_study(file)
    if dry_run:
        _check(loaded)
        return
    with ending_in_words():
        made = make_study(
            loaded,
            place_of(loaded, results, into, on),
            allow_code=allow_code,
            archive=archive,
            machines=Machines.here(showing=showing_progress, warn=print_warning),
            front=Front(
                showing_progress,
                print_error,
                signals_stop,
                resuming="the same command makes the remaining runs",
            ),
        )
    status = made.exit_status
    if as_json:
        content = json.loads((made.directory / "study.json").read_text(encoding="utf-8"))
        print_json({"directory": str(made.directory), "exit_status": int(status), "study": content})
        raise typer.Exit(status)
    _show(made)
    if archive is not None:
        stdout().print(f"archive: {archive}")
    print_status(status, _MEANINGS.get(status, "a run could not be made"))
    raise typer.Exit(status)


def _check(loaded: "LoadedStudy") -> None:
    """Check each scenario with each case; print how many runs there are, and what they execute."""
    from testbed.model.files.scenarios import nominal

    plan, scenarios = loaded.plan(nominal, here=False)
    seeds = len(plan.cases[0].seeds)
    stdout().print(
        f"{plan.name}: {len(plan.runs)} runs, {len(plan.cases)} cells with {seeds} seeds"
    )
    for name, code in loaded.executes.items():
        stdout().print(printable(f"  executes: {name}: {code}"))
    cells = Counter(code for each in scenarios.values() for code in each.executes.items())
    for (key, code), count in cells.items():
        stdout().print(
            printable(f"  executes: {key}: {code}, in {count} of {len(scenarios)} cells")
        )


_MEANINGS = {
    ExitStatus.FAILED: "a hypothesis is not supported, data was lost, or a run failed",
    ExitStatus.UNTRUSTED: "runs cannot be trusted, or a hypothesis cannot be judged",
    ExitStatus.CRASHED: "the program crashed",
}


def _show(made: "Study") -> None:
    """Print the tables, what became of the hypotheses, and where everything is."""
    from testbed.studies.study.tables import cell_text

    console = stdout()
    for table in made.tables:
        shown = ruled_table(table.heading, numbers=[row.fault for row in table.rows])
        columns = zip(*(row.cells for row in table.rows), strict=True)
        for case, cells in zip(table.cases, columns, strict=True):
            shown.add_row(case, *map(cell_text, cells))
        console.print(shown)
        console.print("; ".join(table.notes))
    if made.judgements:
        shown = ruled_table("hypothesis", "scenario", "answer", "measured")
        for each in made.judgements:
            shown.add_row(each.claim, each.scenario, each.answer, each.measured)
        console.print(shown)
    console.print(f"study: {made.directory / 'README.md'}")
