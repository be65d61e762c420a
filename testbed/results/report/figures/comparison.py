"""Figures that compare groups of runs: goodput over time, and every metric with its interval."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from testbed.model.errors import InputError
from testbed.model.summary import Summary
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.estimates import bands, interval_meaning
from testbed.results.comparison import Cell, Group, Row
from testbed.results.records import ARRIVALS
from testbed.results.report.figures import style
from testbed.results.report.figures.style import Drawing

# --------------------------------------------------------------------------------------------------
# A panel of a comparison: one metric's medians with their intervals, on lines below each other.


TICKS = 4
NEVER_AT = 1.15
"""Where NEVER is marked: beyond the greatest number by this factor of the axis' length."""


@dataclass(frozen=True, slots=True)
class Value:
    """A cell of the comparison, the height at which it is drawn, its colour and its mark."""

    height: float
    cell: Cell
    colour: str
    mark: str = "o"


def draw_values(axes: Axes, title: str, values: Sequence[Value], *, from_zero: bool = True) -> None:
    """Draw a metric's values.

    The axis begins at zero, so that a difference looks as large as it is. Without `from_zero` it
    begins at the least value, if that is more than half of the greatest. NEVER has a place of its
    own beyond all numbers.
    """
    axes.set_title(title, fontsize=7)
    numbers = [
        number
        for value in values
        if (cell := value.cell.value) is not None
        for number in (cell.low, cell.median, cell.high)
    ]
    finite = [number for number in numbers if isfinite(number)]
    left, right = min([0.0, *finite]), max([0.0, *finite])
    least = min(finite, default=0.0)
    if not from_zero and least < right < 2 * least:
        left = least
    steps = MaxNLocator(TICKS).tick_values(left, right) if left < right else [0.0]
    ticks = [tick for tick in steps if left <= tick <= right]
    right = max(right, left + (left == right))
    never_at = left + NEVER_AT * (right - left)
    axes.set_xticks(ticks)
    reach = right
    if len(finite) < len(numbers):
        axes.set_xticks([*ticks, never_at], [*(f"{tick:g}" for tick in ticks), "never"])
        axes.axvline(never_at, color=style.LIGHT, linewidth=0.7, zorder=0)
        reach = never_at
    axes.set_xlim(left - 0.05 * (reach - left), reach + 0.12 * (reach - left))
    for value in values:
        _draw(axes, value, left, never_at)


def _draw(axes: Axes, value: Value, left: float, never_at: float) -> None:
    estimate = value.cell.value
    if estimate is None:
        style.note(axes, "not measured", (left, value.height), style.GREY, xytext=(0, -2.5))
        return
    low, median, high = (
        number if isfinite(number) else never_at
        for number in (estimate.low, estimate.median, estimate.high)
    )
    if high > low:
        axes.plot([low, high], [value.height] * 2, color=value.colour, linewidth=1.2)
    if not isfinite(estimate.high):
        axes.plot(never_at, value.height, ">", color=value.colour, markersize=4)
    if isfinite(estimate.median):
        axes.plot(median, value.height, value.mark, color=value.colour, markersize=4)
    if value.cell.measured < value.cell.runs or value.cell.never:
        _note_basis(axes, value, low, high, middle=(left + never_at) / 2)


def _note_basis(axes: Axes, value: Value, low: float, high: float, *, middle: float) -> None:
    """Write how many runs a value is based on: left or right of it, or above it if it is wide."""
    if low > middle:
        place, offset, aligned = low, (-6, 0), ("right", "center")
    elif high < middle:
        place, offset, aligned = high, (6, 0), ("left", "center")
    else:
        place, offset, aligned = high, (-6, 2), ("right", "bottom")
    where, (ha, va) = (place, value.height), aligned
    style.note(axes, value.cell.basis, where, style.GREY, xytext=offset, ha=ha, va=va)


COLOURS = (
    *(style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.BLACK),
    *("#882255", "#999933", "#332288", "#8c564b", "#ff9da7", "#44aa99"),
)
"""The groups' colours, in order; the second half is of Paul Tol's and others."""

LINES, MARKS = ("-", "--", ":", "-."), "osD^vPX<*phd"
"""A line for each six groups, a mark for each: in print, or to some readers, colours are alike."""

_A_LOOK = 6
_NAME = 44
"""So many characters of a group's name stand on a line."""

_WIDTH, _MARGIN = 140, 6
"""Of a figure in letters, and what of a panel's width titles leave free, which are bold."""

_LINE_IN = 0.15

BEFORE_RTTS, AFTER_RTTS, HEALED_RTTS = 5.0, 25.0, 10.0
"""Shown before and after the first fault, and after the last is healed; without a fault the whole
run is shown."""

BIN_RTTS = 0.5
PANELS_A_ROW = 3
BANDS = 6
"""Of more groups, the bands of their intervals would hide each other's lines."""

FAULTS_A_FIGURE = 12
GROUPS_A_FIGURE = _A_LOOK * len(LINES)
"""So many have a look of their own; more have further figures."""

_MARKS = (
    "Dots: the median of each group{with_meaning}. An arrow at the right edge: it never happened. "
    "Where not all runs of a group have a value, the text says how many do."
)


def draw(groups: Sequence[Group], rows: Sequence[Row], directory: Path) -> tuple[Drawing, ...]:
    with style.style(plain=True):
        return tuple(
            drawing
            for first in range(0, len(groups), GROUPS_A_FIGURE)
            for drawing in _of_groups(groups, rows, directory, first)
        )


def _of_groups(
    groups: Sequence[Group], rows: Sequence[Row], directory: Path, first: int
) -> Iterator[Drawing]:
    """The figures of the groups from one on, as many as a figure has."""
    some = slice(first, first + GROUPS_A_FIGURE)
    groups = groups[some]
    rows = [replace(row, cells=row.cells[some]) for row in rows]
    place = _Place(directory, f"-groups-{first + 1}" if first else "")
    faults = [list(same) for _, same in groupby(rows, key=lambda row: row.fault)]
    yield _goodput(groups, place)
    yield _of_runs(groups, [row for row in rows if not row.fault], place)
    yield from _of_faults(groups, [same for same in faults if same[0].fault], place)


class _Place(NamedTuple):
    """The directory of figures, and the end of their names."""

    directory: Path
    suffix: str


class Look(NamedTuple):
    """How a group is drawn."""

    colour: str
    line: str
    mark: str


def look(index: int) -> Look:
    """The look of a group, which none of the others in its figure has, in colour or without."""
    return Look(
        COLOURS[index % len(COLOURS)],
        LINES[index // _A_LOOK % len(LINES)],
        MARKS[(index + index // len(MARKS)) % len(MARKS)],
    )


def _wrapped(name: str) -> str:
    return textwrap.fill(name, _NAME, break_on_hyphens=False)


def _legend(figure: Figure, lines: Sequence[Line2D], names: Sequence[str]) -> None:
    """A legend below, which makes the figure higher: it takes nothing from the axes.

    It is not of the lines' labels, of which Matplotlib leaves out those that begin with _.
    """
    names = [*map(_wrapped, names)]
    columns = 2 if len(names) > 1 else 1
    height = sum(name.count("\n") + 1 for name in names) / columns
    figure.set_figheight(figure.get_figheight() + _LINE_IN * height)
    figure.legend(lines, names, loc="outside lower center", ncols=columns)


def _save(figure: Figure, groups: Sequence[Group], place: _Place, name: str) -> str:
    """Write a figure; returns the name of its files."""
    stem = name + place.suffix
    style.mark(figure, [summary for group in groups for summary in group.summaries])
    for suffix in ("svg", "png"):
        style.write(figure, place.directory / f"{stem}.{suffix}", stem)
    return stem


def _meaning(groups: Sequence[Group]) -> str:
    return interval_meaning([len(group.runs) for group in groups])


def _marks(groups: Sequence[Group]) -> str:
    meaning = _meaning(groups)
    return _MARKS.format(with_meaning=f", with its {meaning}" if meaning else "")


def _goodput(groups: Sequence[Group], place: _Place) -> Drawing:
    figure = style.new_figure(2.8)
    axes = figure.subplots()
    names = draw_goodput(axes, groups)
    _legend(figure, axes.lines[: len(names)], names)
    stem = _save(figure, groups, place, "comparison-goodput")
    return Drawing(stem, "Goodput over time", goodput_caption(groups))


def draw_goodput(axes: Axes, groups: Sequence[Group]) -> list[str]:
    """Draw the goodput of groups over time, their lines first; returns their names."""
    names = list[str]()
    for i, group in enumerate(groups):
        curves = [_curve(run, s) for run, s in zip(group.runs, group.summaries, strict=True)]
        times = min((curve[0] for curve in curves), key=len)
        shares = np.array([np.interp(times, *curve) for curve in curves])
        low, middle, high = bands(shares)
        count = f"{len(curves)} runs" if len(curves) > 1 else "1 run"
        colour, line, mark = look(i)
        names.append(f"{group.name} ({count})")
        marks: Any = {"marker": mark, "markersize": 3, "markevery": (0.02 * (i + 1), 0.2)}
        axes.plot(times, middle, line, color=colour, **marks)
        if len(curves) > 1 and len(groups) <= BANDS:
            axes.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(100, color=style.GREY, linewidth=0.7, linestyle="--")
    axes.set_ylim(bottom=0)
    summaries = [summary for group in groups for summary in group.summaries]
    if healed := [rtts for summary in summaries for rtts in _in_force_rtts(summary)]:
        right = axes.get_xlim()[1]
        style.shade(axes, 0, min(max(healed), right))
        axes.set_xlim(right=right)
    with_faults = any(_first_fault_s(summary) > 0 for summary in summaries)
    origin = "the first fault" if with_faults else "the start of the run"
    axes.set_xlabel(f"time from {origin} (base RTTs)")
    axes.set_ylabel("goodput of all flows\n(% of the undamaged fabric)")
    return names


def goodput_caption(groups: Sequence[Group]) -> str:
    """What `draw_goodput` shows."""
    meaning = _meaning(groups) if len(groups) <= BANDS else ""
    faults = any(summary.faults for group in groups for summary in group.summaries)
    shaded = " Shaded: from the first fault until the last is healed." if faults else ""
    return (
        f"Payload newly placed at the receivers, all flows together, in bins of {BIN_RTTS:g} base "
        "RTT, as a share of what the fabric allows without faults. Lines: the median of a group's "
        f"runs{f'; bands: its {meaning}' if meaning else ''}.{shaded}"
    )


def _first_fault_s(summary: Summary) -> float:
    return next((f.effective_s for f in summary.faults if f.effective_s is not None), 0.0)


def _in_force_rtts(summary: Summary) -> Iterator[float]:
    """Base RTTs from the first fault to the healing of each; infinity if it was not healed."""
    zero = _first_fault_s(summary)
    for fault in summary.faults:
        if fault.effective_s is not None:
            healed_s = inf if fault.healed_s is None else fault.healed_s
            yield (healed_s - zero) * 1e6 / summary.base_rtt_us


def _curve(run: Path, summary: Summary) -> tuple[Floats, Floats]:
    """Times in base RTTs from the first fault, or the start, and percent of the undamaged rate.

    Raises:
        InputError: the run has no records, as in the archive of a study.
    """
    file = run / ARRIVALS.file
    if not file.is_file():
        expected = "the records of a run, which the archive of a study leaves out"
        raise InputError.of(str(file), "", expected, "make its runs again, as its README says")
    rtt_s, zero = summary.base_rtt_us / 1e6, _first_fault_s(summary)
    begin = max(-BEFORE_RTTS, -zero / rtt_s) if zero else 0.0
    end = (summary.duration_s - zero) / rtt_s
    healed = max((f.healed_s for f in summary.faults if f.healed_s is not None), default=zero)
    shown = max(AFTER_RTTS, (healed - zero) / rtt_s + HEALED_RTTS)
    edges = np.arange(begin, min(shown, end) if zero else end, BIN_RTTS)
    with file.open("rb") as content:
        arrivals = pl.read_parquet(content, columns=["t", "bytes"])
    times = (arrivals["t"].to_numpy() - zero) / rtt_s
    placed, _ = np.histogram(times, edges, weights=arrivals["bytes"].to_numpy())
    undamaged_bps = sum(flow.undamaged_bps for flow in summary.flows)
    share = placed * 8 / (BIN_RTTS * rtt_s) / undamaged_bps * 100
    return (edges[:-1] + edges[1:]) / 2, share


def _of_runs(groups: Sequence[Group], rows: Sequence[Row], place: _Place) -> Drawing:
    """Every metric of the whole run: a panel each, a line for each group."""
    names = [_wrapped(group.name) for group in groups]
    figure, panels = _panels(len(rows), sum(name.count("\n") + 1 for name in names))
    for axes, row in zip(panels, rows, strict=False):
        draw_values(axes, _title(row, names), values_of(row, 0.0, 1.0))
    panels[0].set_yticks(range(len(groups)), names)
    panels[0].set_ylim(len(groups) - 0.4, -0.6)
    stem = _save(figure, groups, place, "comparison-figures")
    return Drawing(stem, "The whole run", _marks(groups))


def _of_faults(
    groups: Sequence[Group], faults: Sequence[Sequence[Row]], place: _Place
) -> list[Drawing]:
    """Every metric of every fault: a panel for each metric, a line for each fault and group."""
    drawings = []
    for number, first in enumerate(range(0, len(faults), FAULTS_A_FIGURE)):
        some = faults[first : first + FAULTS_A_FIGURE]
        figure, panels = _panels(len(some[0]), len(some) * (len(groups) + 1))
        step = 1 / (len(groups) + 1)
        names = [rows[0].fault.replace(" of ", " of\n", 1) for rows in some]
        for axes, rows in zip(panels, zip(*some, strict=True), strict=False):
            values = [
                value
                for i, row in enumerate(rows)
                for value in values_of(row, i + step - 0.5, step)
            ]
            draw_values(axes, _title(rows[0], names), values)
        panels[0].set_yticks(range(len(some)), names)
        panels[0].set_ylim(len(some) - 0.5, -0.5)
        if len(groups) > 1:
            lines = [
                Line2D([], [], color=colour, marker=mark, markersize=4)
                for colour, _, mark in map(look, range(len(groups)))
            ]
            _legend(figure, lines, [group.name for group in groups])
        name = f"comparison-faults{f'-{number + 1}' if number else ''}"
        stem = _save(figure, groups, place, name)
        drawings.append(Drawing(stem, "What the faults did", _marks(groups)))
    return drawings


def _panels(count: int, lines: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with `lines` lines each; panels of a row share their heights."""
    rows = -(-count // PANELS_A_ROW)
    figure = style.new_figure(0.5 + rows * (0.65 + 0.15 * lines))
    grid = figure.subplots(rows, PANELS_A_ROW, squeeze=False, sharey=True)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat)


def _title(row: Row, names: Sequence[str]) -> str:
    """What a panel shows, on lines of its width: names stand on the left of each row of panels."""
    widest = max(len(line) for name in names for line in name.splitlines())
    return textwrap.fill(row.heading, (_WIDTH - widest) // PANELS_A_ROW - _MARGIN)


def values_of(row: Row, first: float, step: float) -> list[Value]:
    """The values of a row, a line below another."""
    looks = map(look, range(len(row.cells)))
    return [
        Value(first + step * i, cell, colour, mark)
        for i, (cell, (colour, _, mark)) in enumerate(zip(row.cells, looks, strict=True))
    ]
