"""`testbed figures`: the paper's experiments, each set beside what the paper saw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, Results
from testbed.cli.running import signals_stop
from testbed.cli.screen import progress_shown, say_error, say_json, stdout
from testbed.model.errors import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from testbed.paper.outcome import Outcome


def figures(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[FIG]...", help="Which, such as 9a; else all.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="In virtual time, without root.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also those whose runs are there already.")
    ] = False,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds", min=1, help="Runs of each, with seeds from 1 on; the median is judged."
        ),
    ] = 1,
    results: Results = Path("results"),
    list_: Annotated[bool, typer.Option("--list", help="List the figures and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Make the MRC paper's figures, and say whether what it saw holds here (root).

    Runs that are there already are not made again, but for those that could not be trusted; the
    report tells of all of them. Exit status: 0 when every figure asked for holds, 1 when one does
    not, 4 when one cannot be trusted.
    """
    from testbed.paper.reproduction import chosen, reproduce

    picked = chosen(wanted or [])
    if list_:
        for figure in picked:
            stdout().print(f"{figure.number:10} {figure.title}")
        return
    if not simulate and any(not v.only_simulated for one in picked for v in one.variants):
        from testbed.fabric.capabilities import require

        require()
    directory = results / ("paper-simulated" if simulate else "paper")
    with signals_stop(), progress_shown() as progress:
        outcomes = reproduce(
            picked, directory, progress, simulate=simulate, again=again, seeds=seeds
        )
    if as_json:
        from testbed.paper.report import as_json as table

        say_json(table(outcomes))
    else:
        stdout().print(_table(outcomes))
        stdout().print(f"report: {directory / 'report.html'}")
    for outcome in outcomes:
        for name, why in outcome.failures.items():
            say_error(f"figure {outcome.figure.number}: {name}: {why}")
    raise typer.Exit(_status(outcomes))


def _status(outcomes: "Sequence[Outcome]") -> ExitStatus:
    answers = {outcome.holds for outcome in outcomes}
    if answers & {"no", "not run"}:
        return ExitStatus.FAILED
    return ExitStatus.UNTRUSTED if "not trusted" in answers else ExitStatus.AS_EXPECTED


def _table(outcomes: "Sequence[Outcome]") -> "Table":
    from rich.table import Table

    table = Table(pad_edge=False)
    table.add_column("figure", style="cyan")
    table.add_column("what")
    for heading in ("measured", "must be", "holds"):
        table.add_column(heading, justify="right")
    for one in outcomes:
        if not one.checks:
            table.add_row(one.figure.number, one.figure.title, "", "", one.holds)
        for number, check in enumerate(one.checks):
            holds = "yes" if check.holds else "no"
            table.add_row(
                "" if number else one.figure.number,
                check.what,
                check.measured,
                check.bound,
                holds if one.verdict != "invalid" else one.holds,
            )
        table.add_section()
    return table
