"""What runs delivered at full speed, how faults changed it, and how that is drawn."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from testbed.model.errors import RunFailedError
from testbed.model.summary import FaultSummary
from testbed.model.summary.unit import Time
from testbed.model.workload import BUS_FACTORS, members
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.figure import Check, between

if TYPE_CHECKING:
    from testbed.model.workload import AllReduce, AllToAll, SendRecv

SETTLE_RTTS = 3.0
"""Base RTTs after a change until throughput is measured: what was in flight has then arrived, and
the dead path is out of service. The paper's seconds hide hundreds of thousands of RTTs."""

MAX_STALL_RTTS = 5.0
"""The longest interruption that counts as short. The paper's bound (figure 9a: < 1 s of real time)
is some ten thousand times longer; this one is its "few tens of microseconds" in base RTTs."""

LEAST_OF_A_STEP = 0.9
"""Of what the remaining links allow, in each step of figure 9a."""

PORTS_GBPS = 400.0
"""What a host's ports carry together on four planes of 100 Gb/s, or on one of 400, in real Gb/s,
headers included."""


def hosts_bps(run: Result) -> dict[str, float]:
    """The goodput of each sending host over the whole run, all its queue pairs together."""
    rates: dict[str, float] = defaultdict(float)
    for flow in run.summary.flows:
        rates[flow.src] += flow.goodput_run_bps
    return rates


def us_per_s(run: Result) -> float:
    """How long a second of a run would be at full speed, in us."""
    return 1e6 / run.summary.dilation


def only(runs: Results) -> Result:
    """The run of a figure that has a single one."""
    (run,) = runs.values()
    return run


def gbps(run: Result, emulated_bps: float) -> float:
    """A rate as it would be at full speed, in Gb/s."""
    return emulated_bps * run.summary.dilation / 1e9


def bus_gbps(run: Result) -> float:
    """Bus bandwidth of a run's collectives, per host, in real Gb/s.

    If no collective was completed: the rate at which hosts placed data over the whole run, but no
    more than one collective in it, which is the most that it can be. (Hosts of an all-to-all that
    have all their data go on to the next one while others wait.)
    """
    for operation in run.summary.operations:
        if operation.count and operation.busbw_bps is not None:
            return gbps(run, operation.busbw_bps)
    workload = cast("AllReduce | AllToAll | SendRecv", run.data.scenario.workload)
    hosts = len(members(workload.hosts, run.data.topology))
    placed_bps = sum(flow.goodput_run_bps for flow in run.summary.flows) / hosts
    placed_bits = placed_bps * run.data.end_s
    one_bits = 8 * workload.size * BUS_FACTORS[workload.kind](hosts)
    return gbps(run, min(placed_bits, one_bits) / run.data.run.duration_s)


def share(flows: Sequence[FlowTables], start: float, end: float) -> float:
    """What flows placed between two times, of what the links in service allowed an even split."""
    span = np.array([start, end])
    placed = sum(8 * float(np.diff(flow.delivery.bytes_until(span))[0]) for flow in flows)
    allowed = sum(float(flow.attainable.bits(span[:1], span[1:])[0]) for flow in flows)
    return placed / allowed


def total_bps(flows: Sequence[FlowTables], start: float, end: float) -> float:
    """The goodput of flows together between two times, in emulated bit/s."""
    return sum(flow.delivery.goodput_bps(start, end) for flow in flows)


def sliding(run: Result, flows: Sequence[FlowTables], moments: Floats, width_s: float) -> Floats:
    """What flows together placed in the time before each moment, in Gb/s at full speed."""
    placed = np.zeros(len(moments))
    for flow in flows:
        placed += flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width_s)
    return placed * 8 / width_s * run.summary.dilation / 1e9


def stall_rtts(fault: FaultSummary) -> float:
    """The longest time that a fault kept a flow from delivering in order, in base RTTs.

    0 if it concerned no flow.

    Raises:
        RunFailedError: the fault never took effect: the run shows nothing.
    """
    if fault.effective_s is None:
        raise RunFailedError(f"{fault.name} never took effect")
    return 0.0 if fault.stall is None else fault.stall.rtt


def measured(value: Time | None, what: str) -> Time:
    """A time that the run must have measured.

    Raises:
        RunFailedError: it has not.
    """
    if value is None:
        raise RunFailedError(f"{what} was not measured")
    return value


def losses(flow: FlowTables, start: float, end: float) -> int:
    """How many packets a flow declared lost after one time, until another."""
    times = flow.losses["t"].to_numpy()
    return int(np.count_nonzero((times > start) & (times <= end)))


def qps_failed(run: Result) -> Check:
    """Check that no queue pair failed: no message ended in an error."""
    return between("queue pairs in error", run.summary.qps_in_error, 0, 0, "{:.0f}")


def payload_intact(run: Result) -> Check:
    """Check that all payload is in place as it was sent; what is under way at the end is not."""
    damaged = run.summary.integrity.bytes_lost + run.summary.integrity.bytes_corrupted
    return between("payload lost or corrupted", damaged, 0, 0, "{:.0f} B")


def phases(run: Result, settle_rtts: float = SETTLE_RTTS) -> list[tuple[float, float]]:
    """The times between one change of the faults and the next, each without its settling."""
    changes = {f.effective_s for f in run.summary.faults} | {f.healed_s for f in run.summary.faults}
    times = sorted(t for t in changes if t is not None)
    settle = settle_rtts * run.data.base_rtt_s
    return [(start + settle, end) for start, end in pairwise(times) if end - start > settle]


def least_of_phases(run: Result, settle_rtts: float = SETTLE_RTTS) -> float:
    """What the worse direction placed in the worst phase, of what the links in service allowed."""
    return min(
        share(qps, *phase) for qps in by_direction(run.flows) for phase in phases(run, settle_rtts)
    )


def longest_stall_rtts(run: Result) -> float:
    """The longest time that any fault kept a flow from delivering in order, in base RTTs."""
    return max(stall_rtts(fault) for fault in run.summary.faults)


def by_direction(flows: Sequence[FlowTables]) -> list[list[FlowTables]]:
    """The flows of the queue pairs from one host to another, together."""
    grouped = defaultdict(list)
    for flow in flows:
        grouped[flow.flow.src, flow.flow.dst].append(flow)
    return [*grouped.values()]


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
