"""Groups of runs beside one another, as a table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from testbed.results.comparison import Group, Row


def show_comparison(groups: "Sequence[Group]", rows: "Sequence[Row]", console: "Console") -> None:
    """Print medians with their confidence intervals; differences that are sure are marked."""
    from rich.table import Table

    from testbed.results.comparison_report import shown

    table = Table()
    table.add_column("figure", style="cyan")
    for group in groups:
        table.add_column(f"{group.name}\n{len(group.runs)} runs", justify="right")
    for row in rows:
        cells = [
            shown(cell.value) + (" *" if cell.difference and cell.difference.differs else "")
            for cell in row.cells
        ]
        table.add_row(f"{row.name} ({row.unit})" if row.unit else row.name, *cells)
    console.print(table)
    if any(cell.difference and cell.difference.differs for row in rows for cell in row.cells):
        console.print("* differs from the first, with 95% confidence")
