"""Drawing shared by the figures: throughput over time, faults, axes at full speed."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from testbed.model.summary import FaultSummary
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.studies.paper.experiments.throughput import by_direction, gbps, sliding, us_per_s

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.GREY)
DASHED: Any = (0, (4, 2))
TIME_LABEL = "time (us, real-equivalent)"
RATE_LABEL = "throughput\n(Gb/s, real-equivalent)"

AVERAGED_RTTS = 1.0
"""Throughput is averaged over the base RTT before each point: an average over less shows the rhythm
of SACKs."""

NAMED_FAULTS = 2
"""If there are more faults, one label gives their kinds and their number."""


def new_panels(
    height_in: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with some panels that have no frame above; `options` are those of `subplots`."""
    figure = style.new_figure(height_in)
    return figure, panels_in(figure, rows, columns, **options)


def panels_in(figure: FigureBase, rows: int = 1, columns: int = 1, **options: Any) -> list[Axes]:
    """Some panels that have no frame above, in a figure or a part of one."""
    panels = list(np.ravel(figure.subplots(rows, columns, **options)))
    for axes in panels:
        axes.spines["top"].set_visible(False)
    return panels


def legend_below(figure: FigureBase, columns: int, *panels: Axes) -> None:
    """A legend below all panels: of all that is drawn, or of what some have, each name once."""
    named: dict[str, Any] = {}
    for axes in panels:
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, line)
    entries = ([*named.values()], [*named]) if panels else ()
    figure.legend(*entries, loc="outside lower center", ncols=columns)


def limit_line(axes: Axes, value: float, label: str) -> None:
    """A dashed horizontal line at what can be reached at most."""
    axes.axhline(value, color=style.BLACK, linestyle=DASHED, label=label)


def draw_flows(run: Result, *, together: bool = False) -> Figure:
    """Draw a line for each flow, in Gb/s at full speed, over the time of the run."""
    figure, (axes,) = new_panels(2.9)
    plot_flows(axes, run, run.flows, together=together)
    legend_below(figure, 6 if together else 4)
    return figure


def stacked_height_in(runs: int) -> float:
    """The height of a figure in which `draw_stacked` draws so many runs."""
    return 1.7 * runs + 0.9


def draw_stacked(figure: FigureBase, runs: Mapping[str, Result]) -> None:
    """Draw the flows of runs over time, a panel below the other; the keys are their titles."""
    panels = panels_in(figure, len(runs), sharex=True)
    for axes, (title, run) in zip(panels, runs.items(), strict=True):
        plot_flows(axes, run, run.flows, together=True)
        axes.set_title(title)
        if axes is not panels[-1]:
            axes.set_xlabel("")
    legend_below(figure, 4, *panels)


def plot_flows(
    axes: Axes, run: Result, flows: Sequence[FlowTables], *, together: bool = False
) -> None:
    """Plot flows in Gb/s at full speed, what the links allow the first of them, and the faults.

    The queue pairs from one host to another are one flow. With `together` also the sum of all
    flows, what the links allow all of them, and longer averages.
    """
    end, rtt = run.data.end_s, run.data.base_rtt_s
    moments = np.arange(0, end, rtt / 4)
    width_s = (2 if together else 1) * AVERAGED_RTTS * rtt
    directions = by_direction(flows)
    rates = [sliding(run, qps, moments, width_s) for qps in directions]
    x = us_per_s(run) * moments
    line_width = 0.8 if together else None
    for (qp, *_), rate, colour in zip(directions, rates, cycle(COLOURS), strict=False):
        axes.plot(x, rate, color=colour, label=qp.flow.name, linewidth=line_width)
    if together:
        total = np.sum(rates, axis=0)
        axes.plot(x, total, color=style.BLACK, linewidth=1.5, label="together")
        rates.append(total)
    counted = flows if together else directions[0]
    allowed = [gbps(run, sum(flow.attainable.at(t) for flow in counted)) for t in moments]
    axes.plot(x, allowed, color=style.BLACK, linestyle=DASHED, label="links allow")
    shade_faults(axes, run)
    most = max(gbps(run, sum(flow.attainable.undamaged_bps for flow in qps)) for qps in directions)
    axes.set_ylim(0, 1.25 * max(most, *allowed, *(rate.max() for rate in rates)))
    time_axes(axes, run)
    axes.set_ylabel(RATE_LABEL)


def time_axes(axes: Axes, run: Result) -> None:
    """Give axes the time of a run in us at full speed, and above it in base RTTs."""
    us = us_per_s(run)
    axes.set_xlim(0, us * run.data.end_s)
    style.rtt_axis(axes, 0, us * run.data.base_rtt_s, "base RTTs")
    axes.set_xlabel(TIME_LABEL)


def shade_faults(axes: Axes, run: Result, *, named: bool = True) -> None:
    """Shade the times in which a fault was in force, draw a line where each began, and name them.

    The axis is in us at full speed. More than NAMED_FAULTS are counted instead.
    """
    us, end = us_per_s(run), run.data.end_s
    faults = sorted(
        ((f.effective_s, f) for f in run.summary.faults if f.effective_s is not None),
        key=lambda timed: timed[0],
    )
    for start, healed in _in_force((start, fault.healed_s or end) for start, fault in faults):
        axes.axvspan(
            us * start, us * healed, color=style.VERMILLION, alpha=0.1, linewidth=0, zorder=0
        )
    for start, _ in faults:
        axes.axvline(us * start, color=style.VERMILLION, linewidth=0.6, zorder=1)
    if not named or not faults:
        return
    labels = [(us * start, _name(fault)) for start, fault in faults]
    if len(faults) > NAMED_FAULTS:
        kinds = ", ".join(dict.fromkeys(fault.kind for _, fault in faults))
        labels = [(labels[0][0], f"{kinds}, {len(faults)} times")]
    rows = style.label_rows(labels, 0.01 * us * end)
    for (start, label), row in zip(labels, rows, strict=True):
        style.shade(axes, start, start, label, row)


def _name(fault: FaultSummary) -> str:
    targets = fault.target.split(", ")
    where = targets[0] if len(targets) == 1 else f"{len(targets)} links"
    return f"{fault.kind} {where}"


def _in_force(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which at least one of some spans lasts; spans come in order of their start."""
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
