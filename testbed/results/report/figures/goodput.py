"""Goodput over time: the whole run by plane, and the moments around the first fault."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from testbed.model.summary import FaultSummary, FlowFault, Summary, Time
from testbed.model.summary.unit import MS, RTT
from testbed.model.units import NS_PER_S, show_duration
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.records import ARRIVALS
from testbed.results.report.figures import fault_rows, style
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

MAX_FLOWS = 4
"""Most panels; of more flows the first are drawn."""

ZOOM_BEFORE_RTTS = 2.0
MIN_ZOOM_RTTS = 6.0
MAX_ZOOM_RTTS = 20.0
ZOOM_WINDOW_RTTS = 0.5

LABELLED_LEFT = 0.6
"""Share of the axis from which on a label stands left of its mark, for lack of room."""


def draw(data: RunData, tables: Sequence[FlowTables], summary: Summary) -> Drawn | None:
    """Draw `goodput`: a row for each flow; none where programs have opened no queue pair."""
    if not tables:
        return None
    shown = tables[:MAX_FLOWS]
    fault = next(iter(fault_rows.measured(summary)), None)
    many = fault_rows.rows(summary)
    heights = [2.25] * len(shown)
    if many:
        heights.insert(0, fault_rows.ROW_IN * len(many))
    widths = [1.0] if fault is None else [1.7, 1.0]
    figure = style.new_figure(sum(heights) + 0.8)
    grid = figure.subplots(
        len(heights), len(widths), squeeze=False, width_ratios=widths, height_ratios=heights
    )
    if many:
        (above, beside), grid = grid[0], grid[1:]
        fault_rows.draw(above, many, data.end_s)
        beside.set_axis_off()
    for axes in grid.flat[1:]:
        axes.sharey(grid[0][0])
        axes.tick_params(labelleft=axes in grid[:, 0])
    fault_rows.rtt_axis(grid[0][0], data, summary)
    grid[-1][0].set_xlabel("time from the start of the run (s)")
    if fault is not None:
        unit = style.time_unit(_around(fault)[1] * data.base_rtt_s)
        axis_rtt = data.base_rtt_s * unit.per_s
        style.rtt_axis(grid[0][1], 0, axis_rtt, "base RTTs from the fault")
        grid[-1][1].set_xlabel(f"time from the fault ({unit.symbol})")
    for row, (panels, flow) in enumerate(zip(grid, shown, strict=True)):
        _whole_run(panels[0], data, flow, summary)
        style.title(panels[0], flow.flow.name, over_axis=row == 0)
        if fault is not None:
            _around_fault(panels[1], data, flow, fault)
            style.title(panels[1], f"around {fault_rows.origin(summary)}", over_axis=row == 0)
        style.real_rate_axis(panels[-1], summary.dilation)
    top = max(flow.ideal.undamaged_bps for flow in shown) / 1e6
    grid[0][0].set_ylim(0, top * 1.22)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
    text = _caption(data, shown, tables, fault)
    if late := fault_rows.too_late(summary):
        names = ", ".join(map(fault_rows.name, late))
        text += f" Not measured: {names}, as the last byte had arrived before it took effect."
    return figure, Drawing("goodput", "Goodput over time", text)


def _caption(
    data: RunData,
    shown: Sequence[FlowTables],
    tables: Sequence[FlowTables],
    fault: FaultSummary | None,
) -> str:
    width = show_duration(_bin_s(data) * NS_PER_S)
    text = (
        f"Payload newly placed at the receiver, in bins of {width}, stacked by plane: an "
        "even spray shows as layers of equal height. The dashed line is what the fabric allows "
        "with the ideal split: port rates less headers, the flow's own SACKs, and what a dead link "
        "takes away; a dotted one, where there is one, what an even split allows."
    )
    if fault is not None:
        text += (
            f" Right: the total around the fault, averaged over the {ZOOM_WINDOW_RTTS:g} base RTT "
            "before each point. Packets in flight still arrive for half an RTT. Then the share of "
            "the dead paths is missing, until their EVs leave the active set and the lost packets "
            "are resent."
        )
    if len(shown) < len(tables):
        text += f" The first {len(shown)} of {len(tables)} flows."
    return text


def _bin_s(data: RunData) -> float:
    """Width of bins in seconds, at least half an RTT: finer bins would show single packets."""
    return max(data.run.bin_s, data.base_rtt_s / 2)


def _whole_run(axes: Axes, data: RunData, flow: FlowTables, summary: Summary) -> None:
    end = data.end_s
    width = _bin_s(data)
    edges = np.arange(0, end + width, width)
    arrivals = data.table(ARRIVALS, flow.flow.flow)
    base = np.zeros(len(edges) - 1)
    for plane in range(data.topology.planes):
        of_plane = arrivals.filter(pl.col("plane") == plane)
        times, weights = of_plane["t"].to_numpy(), of_plane["bytes"].to_numpy()
        placed, _ = np.histogram(times, edges, weights=weights)
        above = base + placed * 8 / width / 1e6
        look: dict[str, Any] = {
            "facecolor": style.PLANES[plane],
            "edgecolor": "white",
            "linewidth": 0.25,
        }
        label = f"plane {plane}"
        # Not by `stairs`, which looks at each step to find limits; they are set below.
        axes.add_artist(
            StepPatch(above, edges, baseline=base, fill=True, label=label, **look)  # type: ignore[arg-type] # an array, too
        )
        base = above
    moments = np.linspace(0, end, 2000)
    _allowed(axes, flow, moments, moments)
    _faults(axes, fault_rows.measured(summary), end)
    axes.spines["top"].set_visible(False)
    axes.set_ylabel("goodput (Mbit/s)")
    axes.set_xlim(0, end)


def _faults(axes: Axes, faults: Sequence[FaultSummary], end: float) -> None:
    if len(faults) > fault_rows.MAX_NAMED:
        fault_rows.shade(axes, faults, end)
        return
    labels = [(fault.effective_s or 0.0, fault_rows.name(fault)) for fault in faults]
    rows = style.label_rows(labels, 0.0145 * end)
    for fault, (_, label), row in zip(faults, labels, rows, strict=True):
        style.shade(axes, *fault_rows.in_force(fault, end), label, row)


def _around_fault(axes: Axes, data: RunData, flow: FlowTables, fault: FaultSummary) -> None:
    affected = (each for each in fault.flows if each.flow == flow.flow.flow and each.affected)
    effect = next(affected, None)  # one that a program began later, or had ended, has none
    start, healed = fault_rows.in_force(fault)
    rtt = data.base_rtt_s
    begin, end = _around(fault)
    per_s = style.time_unit(end * rtt).per_s
    moments = np.linspace(start + begin * rtt, start + end * rtt, 800)
    moments = moments[moments <= data.end_s]
    rate = _sliding(flow, moments, ZOOM_WINDOW_RTTS * rtt)
    x = (moments - start) * per_s
    axes.fill_between(x, rate / 1e6, color=style.LIGHT, linewidth=0, alpha=0.7)
    axes.plot(x, rate / 1e6, color=style.BLACK, linewidth=1.1)
    _allowed(axes, flow, moments, x)
    style.shade(axes, 0, min(healed - start, end * rtt) * per_s)
    if effect is not None:  # or the marks would be those of a chance dip
        marks(axes, effect, per_s, height=0.42, step=0.17)
    axes.spines["top"].set_visible(False)
    axes.set_xlim(begin * rtt * per_s, end * rtt * per_s)


def _allowed(axes: Axes, flow: FlowTables, moments: Floats, x: Floats) -> None:
    ideal, even = (rate.rates(moments) / 1e6 for rate in (flow.ideal, flow.attainable))
    if not np.allclose(ideal, even):
        axes.plot(x, even, color=style.GREY, linestyle=(0, (1, 1.5)), label="even split allows")
    axes.plot(x, ideal, color=style.BLACK, linestyle=(0, (4, 2)), label="ideal split allows")


def _around(fault: FaultSummary) -> tuple[float, float]:
    """The range of the panel around a fault, in base RTTs from it."""
    return zoom(fault.detection_last, fault.recovery, fault.stall)


def zoom(*times: Time | None) -> tuple[float, float]:
    """The range of a close view, in base RTTs from the fault: wide enough for some times."""
    longest = max((time.rtt for time in times if time is not None), default=0.0)
    return -ZOOM_BEFORE_RTTS, min(max(longest + 2.0, MIN_ZOOM_RTTS), MAX_ZOOM_RTTS)


def marks(axes: Axes, effect: FlowFault, per_s: float, *, height: float, step: float) -> None:
    """Mark detection and recovery on an axis from the fault, whose unit a second has `per_s` of.

    The first label stands at `height`, each further one `step` lower, in shares of the axis.
    """
    times = [(effect.detection, "first EV out", style.BLUE)]
    if effect.evs_detected > 1:
        times.append((effect.detection_last, "last EV out", style.BLUE))
    times.append((effect.recovery, "goodput back", style.GREEN))
    begin, end = axes.get_xlim()
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "va": "center", "zorder": 4}
    for time, label, colour in times:
        if time is None or time.ms == 0:
            continue
        at = time.ms / 1e3 * per_s
        if at > end:
            continue
        axes.axvline(at, color=colour, linewidth=1.1, linestyle=(0, (1, 1)), zorder=3)
        late = (at - begin) / (end - begin) > LABELLED_LEFT
        side, offset = ("right", -4) if late else ("left", 4)
        text = f"{label}\n{MS.show(time.ms)}, {RTT.show(time.rtt)}"
        style.note(axes, text, (at, height), colour, ha=side, xytext=(offset, 0), **place)
        height -= step


def _sliding(flow: FlowTables, moments: Floats, width: float) -> Floats:
    placed = flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width)
    return placed * 8 / width
