"""The figures of a study, in the width of a column: each metric, and goodput over time."""

import testbed.results.plotting  # noqa: F401 - before Matplotlib

# isort: split
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from testbed.results.comparison import Group
from testbed.results.report.figures import style
from testbed.results.report.figures.comparison import (
    draw_goodput,
    draw_values,
    goodput_caption,
    look,
    values_of,
)
from testbed.studies.study.file import StudyFile, folder
from testbed.studies.study.judging import Cells
from testbed.studies.study.tables import LABEL, Table

FORMATS = "svg", "pdf", "png"

_MM_PER_IN = 25.4

_SMALL: dict[str, Any] = {
    "font.size": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.0,
    "lines.linewidth": 1.0,
}
"""What a reader can read in the column of a paper."""

_CHARACTER_MM, _HANDLE_MM = 1.25, 8.0
"""The width of a character of the legend, and of what stands before a name."""

_LINE_IN = 0.125


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as written: `<stem>.svg`, `.pdf` and `.png`."""

    stem: str
    title: str
    caption: str


def draw(
    content: StudyFile, cells: Cells, tables: tuple[Table, ...], directory: Path
) -> Iterator[Picture]:
    """Draw all figures of a study into a directory."""
    with style.style(plain=True), mpl.rc_context(_SMALL):  # type: ignore[arg-type]  # keys are checked when it runs
        for table in tables:
            figure = _of_metric(content, table)
            groups = [*cells.values()]
            _save(figure, groups, directory, table.stem)
            yield Picture(table.stem, table.heading, f"{'; '.join(table.notes)}.")
        for scenario in content.scenarios:
            groups = [cells[scenario, case] for case in content.cases]
            if not all(group.runs for group in groups):
                continue
            figure = style.new_figure(1.9, content.width_mm / _MM_PER_IN)
            axes = figure.subplots()
            draw_goodput(axes, groups)
            axes.set_ylabel("goodput of all flows\n(% of undamaged)")
            axes.spines["top"].set_visible(False)
            _legend(figure, content, over_time=True)
            stem = f"goodput-{folder(scenario, '').removesuffix('--')}"
            _save(figure, groups, directory, stem)
            yield Picture(stem, f"{scenario}: goodput over time", goodput_caption(groups))


def _of_metric(content: StudyFile, table: Table) -> Figure:
    """A metric: a line for each case, below each other, in each scenario that measures it."""
    measured = [row for row in table.rows if any(cell.value for cell in row.cells)]
    table = replace(table, rows=tuple(measured) or table.rows)
    count = len(table.cases)
    rows, step = len(table.rows), 1 / (count + 1)
    alone = rows == 1
    height = 0.42 + _LINE_IN * rows * (count + 1)
    figure = style.new_figure(height, content.width_mm / _MM_PER_IN)
    axes = figure.subplots()
    values = [
        value for i, row in enumerate(table.rows) for value in values_of(row, i + step - 0.5, step)
    ]
    draw_values(axes, "", values)
    axes.spines["top"].set_visible(False)
    axes.set_xlabel(table.heading)
    if alone:
        axes.set_yticks([value.height for value in values], table.cases)
    else:
        names = [textwrap.fill(row.fault, LABEL) for row in table.rows]
        axes.set_yticks(range(rows), names)
        axes.tick_params(axis="y", length=0)
        for i in range(1, rows):
            axes.axhline(i - 0.5, color=style.LIGHT, linewidth=0.5, zorder=0)
        _legend(figure, content, over_time=False)
    axes.set_ylim(rows - 0.5, -0.5)
    return figure


def _legend(figure: Figure, content: StudyFile, *, over_time: bool) -> None:
    """A legend of the cases below, which makes the figure higher.

    It is not of the axes' labels, of which Matplotlib leaves out those that begin with _.
    """
    widest = max(map(len, content.cases)) * _CHARACTER_MM + _HANDLE_MM
    columns = max(1, min(len(content.cases), int(content.width_mm / widest)))
    lines = -(-len(content.cases) // columns)
    figure.set_figheight(figure.get_figheight() + _LINE_IN * (lines + 0.6))
    handles = list[Line2D]()
    for colour, line, mark in map(look, range(len(content.cases))):
        drawn: Any = {"linestyle": line if over_time else "-", "marker": mark, "markersize": 3.5}
        handles.append(Line2D([], [], color=colour, **drawn))
    figure.legend(handles, content.cases, loc="outside lower center", ncols=columns)


def _save(figure: Figure, groups: list[Group], directory: Path, stem: str) -> None:
    summaries = [summary for group in groups for summary in group.summaries]
    if any(summary.verdict != "trusted" for summary in summaries):
        style.mark(figure, summaries)  # that all are simulated, its caption says
    for suffix in FORMATS:
        style.write(figure, directory / f"{stem}.{suffix}", stem)
