"""Figures that compare groups of runs: goodput over time, and metrics with their intervals."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from testbed.model.run_files.layout import table_file
from testbed.model.summary import Summary
from testbed.results.analysis.comparison import Group, Row
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.estimates import interval_meaning
from testbed.results.records import ARRIVALS
from testbed.results.report.figures import style
from testbed.results.report.figures.style import Drawing

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.BLACK, style.GREY)
"""The groups' colours, in order; further groups all have the last."""

BEFORE_RTTS, AFTER_RTTS = 5.0, 25.0
"""Shown around the first fault; runs without a fault are shown as a whole."""

BIN_RTTS = 0.5
MAX_PANELS = 12
PANELS_A_ROW = 3


def draw(groups: Sequence[Group], rows: Sequence[Row], directory: Path) -> tuple[Drawing, ...]:
    """Draw both figures into a directory."""
    with style.style():
        return _goodput(groups, directory), _figures(groups, rows, directory)


def _colour(index: int) -> str:
    return COLOURS[min(index, len(COLOURS) - 1)]


def _save(figure: Figure, directory: Path, stem: str) -> None:
    for suffix in ("svg", "png"):
        style.write(figure, directory / f"{stem}.{suffix}", stem)


def _goodput(groups: Sequence[Group], directory: Path) -> Drawing:
    figure = style.new_figure(3.0)
    axes = figure.subplots()
    with_faults = False
    for i, group in enumerate(groups):
        curves = [_curve(run, s) for run, s in zip(group.runs, group.summaries, strict=True)]
        with_faults |= any(_first_fault_s(summary) > 0 for summary in group.summaries)
        times = curves[0][0]
        shares = np.array([np.interp(times, *curve) for curve in curves])
        low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75), axis=0)
        axes.plot(times, middle, color=_colour(i), label=group.name)
        if len(curves) > 1:
            axes.fill_between(times, low, high, color=_colour(i), alpha=0.2, linewidth=0)
    axes.axhline(100, color=style.GREY, linewidth=0.7, linestyle="--")
    axes.set_ylim(bottom=0)
    origin = "the first fault" if with_faults else "the start of the run"
    axes.set_xlabel(f"time from {origin} (base RTTs)")
    axes.set_ylabel("goodput of all flows (% of attainable)")
    figure.legend(loc="outside lower center", ncols=2)
    _save(figure, directory, "comparison-goodput")
    caption = (
        f"Payload newly placed at the receivers, all flows together, in bins of {BIN_RTTS:g} base "
        "RTT, as a share of what the fabric allows without faults. Lines: the median of a group's "
        "runs; bands: from its first to its third quartile."
    )
    return Drawing("comparison-goodput", "Goodput over time", caption)


def _first_fault_s(summary: Summary) -> float:
    return next((f.effective_s for f in summary.faults if f.effective_s is not None), 0.0)


def _curve(run: Path, summary: Summary) -> tuple[Floats, Floats]:
    """Times in base RTTs from the first fault, or the start, and percent of attainable."""
    rtt_s, zero = summary.base_rtt_us / 1e6, _first_fault_s(summary)
    begin = max(-BEFORE_RTTS, -zero / rtt_s) if zero else 0.0
    end = (summary.duration_s - zero) / rtt_s
    edges = np.arange(begin, min(AFTER_RTTS, end) if zero else end, BIN_RTTS)
    arrivals = pl.read_parquet(run / table_file(ARRIVALS.name), columns=["t", "bytes"])
    times = (arrivals["t"].to_numpy() - zero) / rtt_s
    placed, _ = np.histogram(times, edges, weights=arrivals["bytes"].to_numpy())
    attainable_bps = sum(flow.undamaged_bps for flow in summary.flows)
    share = placed * 8 / (BIN_RTTS * rtt_s) / attainable_bps * 100
    return (edges[:-1] + edges[1:]) / 2, share


def _figures(groups: Sequence[Group], rows: Sequence[Row], directory: Path) -> Drawing:
    shown = [row for row in rows if _differs(row)][:MAX_PANELS]
    lines = max(-(-len(shown) // PANELS_A_ROW), 1)
    figure = style.new_figure(0.6 + lines * (0.7 + 0.16 * len(groups)))
    grid = figure.subplots(lines, PANELS_A_ROW, squeeze=False, sharey=True)
    for axes, row in zip(grid.flat, shown, strict=False):
        for i, cell in enumerate(row.cells):
            if cell.value is None:
                continue
            axes.plot(cell.value.median, i, "o", color=_colour(i), markersize=4)
            axes.hlines(i, cell.value.low, cell.value.high, color=_colour(i))
        axes.set_title(row.name, fontsize=7)
        axes.set_xlabel(row.unit or " ")
        axes.margins(x=0.2, y=0.2)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    grid[0][0].set_yticks(range(len(groups)), [group.name for group in groups])
    grid[0][0].invert_yaxis()
    _save(figure, directory, "comparison-figures")
    meaning = interval_meaning([len(group.runs) for group in groups])
    caption = "Metrics that are not equal in all runs: the median of each group" + (
        f", with its {meaning}." if meaning else "."
    )
    return Drawing("comparison-figures", "Figures", caption)


def _differs(row: Row) -> bool:
    """Whether not all runs have the same value."""
    values = [cell.value for cell in row.cells if cell.value is not None]
    return len({number for value in values for number in (value.low, value.median, value.high)}) > 1
