"""`testbed compare`: a table, figures and a report of several runs or series."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json, writing
from testbed.cli.screen import print_json, ruled_table, stdout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from testbed.results.analysis.comparison import Group, Row


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Directories of runs or of series (--repeat)."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the report.")
    ] = Path("results/comparison/report.html"),
    as_json: Json = False,
) -> None:
    """Compare runs or series: a table, figures and a report.

    The table has medians with their intervals, and marks significant differences from the first.
    """
    from testbed.campaign.series import groups_of
    from testbed.results.report.comparison_report import write_comparison
    from testbed.results.run_directory import give_to_user

    groups = groups_of(runs)
    with writing("--output", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        rows = write_comparison("Comparison", groups, output)
    for path in (output.parent, output, *output.parent.glob("figures/*")):
        give_to_user(path)
    if as_json:
        names = [group.name for group in groups]
        print_json({"groups": names, "rows": [asdict(row) for row in rows], "report": str(output)})
        return
    print_comparison(groups, rows, stdout())
    stdout().print(f"report: {output}")


def print_comparison(groups: "Sequence[Group]", rows: "Sequence[Row]", console: "Console") -> None:
    """Print the medians of each group with their intervals, and mark significant differences."""
    from testbed.results.analysis.estimates import CONFIDENCE, MIN_SAMPLES
    from testbed.results.report.comparison_report import shown

    counts = [len(group.runs) for group in groups]
    names = [f"{group.name}\n{_count(count)}" for group, count in zip(groups, counts, strict=True)]
    table = ruled_table("figure", numbers=names)
    for row in rows:
        cells = [
            shown(cell.value) + (" *" if cell.difference and cell.difference.differs else "")
            for cell in row.cells
        ]
        table.add_row(f"{row.name} ({row.unit})" if row.unit else row.name, *cells)
    console.print(table)
    if any(1 < count < MIN_SAMPLES for count in counts):
        console.print(f"(low to high): the range; an interval needs {MIN_SAMPLES} runs or more")
    if max(counts) >= MIN_SAMPLES:
        console.print(f"[low, high]: the median's {CONFIDENCE:.0%} confidence interval")
    if any(cell.difference and cell.difference.differs for row in rows for cell in row.cells):
        console.print(f"* differs from the first with {CONFIDENCE:.0%} confidence (rank test)")


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
