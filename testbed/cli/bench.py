"""`testbed bench`: the figures that this project promises, measured here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, Results
from testbed.cli.screen import say_json, stderr, stdout
from testbed.model.errors import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from testbed.bench.figure import Figure


def bench(
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of each measurement.")] = 10,
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """Measure bring-up, link model, packet rate and failover with repeats and spread (root).

    Exit status: 0 when every median meets its target, 1 when one does not.
    """
    from testbed.bench.bring_up import bring_up
    from testbed.bench.failover import failover
    from testbed.bench.link_model import link_model
    from testbed.bench.packet_rate import packet_rate
    from testbed.fabric.capabilities import require
    from testbed.loading import load_scenario

    require()
    scenario = load_scenario("link-failure")
    console = stderr()
    figures = [
        *bring_up(scenario.topology, repeats, console.print),
        *link_model(repeats, console.print),
        *packet_rate(repeats, console.print),
        *failover(scenario, repeats, results, console.print),
    ]
    if as_json:
        say_json([figure.to_json() for figure in figures])
    else:
        stdout().print(_table(figures, repeats))
    missed = any(not figure.holds for figure in figures)
    raise typer.Exit(ExitStatus.FAILED if missed else ExitStatus.AS_EXPECTED)


def _table(figures: "Sequence[Figure]", repeats: int) -> "Table":
    from rich.table import Table

    table = Table(title=f"{repeats} repeats", title_justify="left", pad_edge=False)
    table.add_column("figure", style="cyan")
    for heading in ("median", "min", "max", "target", "holds"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.median:.4g} {figure.unit}".rstrip(),
            f"{min(figure.samples):.4g}",
            f"{max(figure.samples):.4g}",
            figure.target,
            ("yes" if figure.holds else "no") if figure.target else "",
        )
    return table
