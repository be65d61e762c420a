"""Groups of runs beside one another, as a table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from testbed.results.analysis.comparison import Group, Row


def show_comparison(groups: "Sequence[Group]", rows: "Sequence[Row]", console: "Console") -> None:
    """Print medians with their intervals; differences that are sure are marked."""
    from rich.table import Table

    from testbed.results.analysis.estimates import CONFIDENCE, MIN_SAMPLES
    from testbed.results.report.comparison_report import shown

    table = Table()
    table.add_column("figure", style="cyan")
    for group in groups:
        table.add_column(f"{group.name}\n{_counted(len(group.runs))}", justify="right")
    for row in rows:
        cells = [
            shown(cell.value) + (" *" if cell.difference and cell.difference.differs else "")
            for cell in row.cells
        ]
        table.add_row(f"{row.name} ({row.unit})" if row.unit else row.name, *cells)
    console.print(table)
    counts = [len(group.runs) for group in groups]
    if any(1 < count < MIN_SAMPLES for count in counts):
        console.print(f"(low to high): the range; fewer than {MIN_SAMPLES} runs give no confidence")
    if max(counts) >= MIN_SAMPLES:
        console.print(f"[low, high]: the median's {CONFIDENCE:.0%} confidence interval")
    if any(cell.difference and cell.difference.differs for row in rows for cell in row.cells):
        console.print(f"* differs from the first, with {CONFIDENCE:.0%} confidence (rank test)")


def _counted(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
