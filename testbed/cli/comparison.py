"""The comparison of several runs as tables: what became of each, and the medians of all metrics."""

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from testbed.cli.screen import ruled_table
from testbed.results.analysis.estimates import CONFIDENCE, MIN_SAMPLES
from testbed.results.comparison import Cell, Group, Row
from testbed.results.report.comparison_report import (
    as_data,
    expectations_met,
    format_estimate,
    missed_expectations,
    notes_on_never,
    sections,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PAGE = 120
"""Characters on a line of tables of many groups, where there is no terminal."""

_NAME = 32
"""So many characters of a group's name stand on a line of a table's heading."""

_METRIC, _OF_RUNS = 40, 13
"""Characters of the column of metrics, and of that of runs, each with its lines."""


def comparison_data(groups: Sequence[Group], rows: Sequence[Row]) -> dict[str, Any]:
    """A comparison for JSON."""
    runs = [
        {
            "group": group.name,
            "run": str(run),
            "seed": summary.seed,
            "verdict": summary.verdict,
            "reasons": summary.reasons,
            "missed": missed_expectations(summary),
        }
        for group in groups
        for run, summary in zip(group.runs, group.summaries, strict=True)
    ]
    return {"groups": [group.name for group in groups], "runs": runs, "rows": as_data(rows)}


def print_comparison(groups: Sequence[Group], rows: Sequence[Row], console: "Console") -> None:
    """Print what became of each run, and the medians of each group with their intervals."""
    console.print(_runs(groups))
    for first, last in _blocks(groups, rows, console.width if console.is_terminal else PAGE):
        console.print(_metrics(groups, rows, first, last))
    counts = [len(group.runs) for group in groups]
    if any(1 < count < MIN_SAMPLES for count in counts):
        console.print(f"(low to high): the range; an interval needs {MIN_SAMPLES} runs or more")
    if max(counts) >= MIN_SAMPLES:
        console.print(f"[low, high]: the median's {CONFIDENCE:.0%} confidence interval")
    if any(cell.difference and cell.difference.differs for row in rows for cell in row.cells):
        console.print(f"* differs from the first with {CONFIDENCE:.0%} confidence (rank test)")
    if any(cell.never for row in rows for cell in row.cells):
        console.print("never: not before the run ended; it counts as later than any time")
    for note in notes_on_never(groups):
        console.print(note)
    for group in groups:
        for summary in group.summaries:
            for line in missed_expectations(summary):
                console.print(f"{group.name}, seed {summary.seed}: missed {line}")


def _runs(groups: Sequence[Group]) -> "Table":
    """A row for each run: its verdict, why it is no better, and what it was expected to be."""
    table = ruled_table("runs of", "seed", "verdict", "expectations", "payload")
    for group in groups:
        for summary in group.summaries:
            reasons = "" if summary.verdict == "trusted" else f": {'; '.join(summary.reasons)}"
            simulated = " (simulated)" if summary.simulated else ""
            table.add_row(
                group.name,
                str(summary.seed),
                f"{summary.verdict}{simulated}{reasons}",
                expectations_met(summary),
                "intact" if summary.integrity.intact else "lost or corrupted",
            )
        if group.failed:
            table.add_row(group.name, "", f"{group.failed} did not come to the end")
    return table


def _blocks(groups: Sequence[Group], rows: Sequence[Row], width: int) -> Iterator[tuple[int, int]]:
    """The first and last groups of tables that fit a page, as slices of the groups."""
    first, used = 0, _METRIC
    for i, group in enumerate(groups):
        values = max((len(_value(row.cells[i])) for row in rows), default=0)
        needed = max(values, min(len(group.name), _NAME)) + _OF_RUNS
        if i > first and used + needed > width:
            yield first, i
            first, used = i, _METRIC
        used += needed
    yield first, len(groups)


def _metrics(groups: Sequence[Group], rows: Sequence[Row], first: int, last: int) -> "Table":
    """A row for each metric; the values of some groups, and how many runs they stand on."""
    headings = [
        heading
        for group in groups[first:last]
        for heading in (fill(group.name, _NAME, break_on_hyphens=False), "of runs")
    ]
    table = ruled_table("metric", numbers=headings)
    for fault, same in sections(rows):
        if fault:
            table.add_section()
            table.add_row(fault)
        for row in same:
            of_groups = row.cells[first:last]
            cells = [text for cell in of_groups for text in (_value(cell), cell.basis)]
            table.add_row(f"  {row.heading}" if fault else row.heading, *cells)
    return table


def _value(cell: Cell) -> str:
    differs = cell.difference is not None and cell.difference.differs
    return f"{format_estimate(cell.value)}{' *' if differs else ''}"
