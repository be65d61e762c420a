"""Throughput as at full speed: over time, as most figures of the paper show it, and its means."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.campaign.store import Run, Runs
from testbed.model.summary import FaultSummary
from testbed.paper.checks import Check, at_most, between
from testbed.paper.figure import PaperFigure, Variant
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.fault_metrics import FlowTables, run_end
from testbed.results.report.figures import style

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.GREY)
BIN_RTTS = 1.0
"""Throughput is averaged over the base RTT before each point: shorter than that it shows the
rhythm of SACKs."""

SETTLE_RTTS = 3.0
"""After a change the throughput is taken from so long on: what was in flight has then arrived, and
the dead path is out of service. The paper's seconds hide hundreds of thousands of RTTs."""

MAX_STALL_RTTS = 5.0
"""An interruption is short up to here. The paper's own bound (figure 9a: < 1 s of real time) is
some ten thousand times longer; ours is what its "few tens of microseconds" are in base RTTs."""

PORTS_GBPS = 400.0
"""What a host's ports carry together on four planes of 100 Gb/s, or on one of 400, in real Gb/s,
headers included."""

TIME_LABEL = "time (us, real-equivalent)"

NAMED_FAULTS = 2
"""More faults are counted, where the first one strikes."""


def over_time(
    number: str,
    scenario: str,
    measure: Callable[[Run], tuple[Check, ...]],
    *,
    together: bool = False,
) -> PaperFigure:
    """A figure of one run of a scenario, drawn as throughput over time.

    With `together` the sum of all flows is drawn as well.
    """
    return PaperFigure(
        number=number,
        variants=(Variant(scenario, scenario),),
        measure=lambda runs: measure(only(runs)),
        draw=lambda runs: draw_flows(only(runs), together=together),
    )


def us_per_s(run: Run) -> float:
    """How long a second of a run would be at full speed, in us."""
    return 1e6 / run.summary.dilation


def only(runs: Runs) -> Run:
    """The one run of a figure that needs no other."""
    (run,) = runs.values()
    return run


def gbps(run: Run, emulated_bps: float) -> float:
    """A rate as it would be at full speed, in Gb/s."""
    return emulated_bps * run.summary.dilation / 1e9


def bus_gbps(run: Run) -> float:
    """Bus bandwidth of a run's collectives, per host, in real Gb/s.

    Where not one was completed, what hosts placed over all of the run's time: it is no more than
    that, and the less the longer the run.
    """
    for operation in run.summary.operations:
        if operation.busbw_bps is not None:
            return gbps(run, operation.busbw_bps)
    hosts = len({flow.dst for flow in run.summary.flows})
    placed_bps = sum(flow.goodput_run_bps for flow in run.summary.flows) / hosts
    return gbps(run, placed_bps * run_end(run.data) / run.data.run.duration_s)


def share(flow: FlowTables, start: float, end: float) -> float:
    """What a flow placed between two times, as a share of what the links in service allowed."""
    placed = 8 * float(np.diff(flow.delivery.bytes_until(np.array([start, end])))[0])
    allowed = float(flow.attainable.bits(np.array([start]), np.array([end]))[0])
    return placed / allowed


def share_of_all(run: Run, start: float, end: float) -> float:
    """What all flows placed between two times, as a share of what the links allowed them."""
    span = np.array([start, end])
    placed = sum(8 * float(np.diff(f.delivery.bytes_until(span))[0]) for f in run.flows)
    allowed = sum(float(f.attainable.bits(span[:1], span[1:])[0]) for f in run.flows)
    return placed / allowed


def rate(run: Run, flow: FlowTables, start: float, end: float) -> float:
    """What a flow placed between two times, in Gb/s at full speed."""
    return gbps(run, flow.delivery.goodput_bps(start, end))


def before_faults(run: Run) -> tuple[float, float]:
    """From a few RTTs after the start to the first fault."""
    begin = 5 * run.data.base_rtt_s
    faults = [f.effective_s for f in run.summary.faults if f.effective_s is not None]
    return begin, min([run_end(run.data), *faults])


def stall_rtts(fault: FaultSummary) -> float:
    """The longest that a fault kept a flow from delivering in order, in base RTTs.

    Infinite where it never took effect: then nothing was shown.
    """
    return inf if fault.stall is None else fault.stall.rtt


def interruption(run: Run) -> Check:
    """Check that no fault kept a flow from delivering for long."""
    longest = max(stall_rtts(fault) for fault in run.summary.faults)
    return at_most("longest interruption", longest, MAX_STALL_RTTS, "{:.1f} RTT")


def qps_failed(run: Run) -> Check:
    """Check that no queue pair failed: no message ended in an error."""
    return between("queue pairs in error", run.summary.qps_in_error, 0, 0, "{:.0f}")


def last_healed_s(run: Run) -> float:
    """When the last fault was healed."""
    return max(f.healed_s or 0.0 for f in run.summary.faults)


def phases(run: Run, settle_rtts: float = SETTLE_RTTS) -> list[tuple[float, float]]:
    """The times between one change of the faults and the next, each without its settling."""
    changes = {f.effective_s for f in run.summary.faults} | {f.healed_s for f in run.summary.faults}
    times = sorted(t for t in changes if t is not None)
    settle = settle_rtts * run.data.base_rtt_s
    return [(start + settle, end) for start, end in pairwise(times) if end - start > settle]


def during_and_after(run: Run, settle_rtts: float = SETTLE_RTTS) -> tuple[float, float]:
    """The least of any flow's goodput during the faults and after them, of what it was before."""
    begin, until = before_faults(run)
    start = min(f.effective_s or 0.0 for f in run.summary.faults)
    end = last_healed_s(run)
    settle = settle_rtts * run.data.base_rtt_s
    during = least_of_before(run, (begin, until), (start + settle, end))
    after = least_of_before(run, (begin, until), (end + settle, run_end(run.data)))
    return during, after


def least_of_before(run: Run, before: tuple[float, float], span: tuple[float, float]) -> float:
    """The least of any flow's goodput in a span of time, as a share of what it was before."""
    return min(
        flow.delivery.goodput_bps(*span) / flow.delivery.goodput_bps(*before) for flow in run.flows
    )


def draw_flows(run: Run, *, together: bool = False) -> Figure:
    """One line a flow, in Gb/s at full speed, over the time of the run; faults shaded."""
    figure = style.new_figure(2.9)
    plot_flows(figure.subplots(), run, run.flows, together=together)
    figure.legend(loc="outside lower center", ncols=6 if together else 4)
    return figure


def plot_flows(
    axes: Axes, run: Run, flows: Sequence[FlowTables], *, together: bool = False
) -> None:
    """Plot the flows on given axes, in real us, with what the fabric allows the first of them.

    With `together`, their sum as well, what it allows them in all, and longer means.
    """
    end = run_end(run.data)
    rtt = run.data.base_rtt_s
    moments = np.arange(0, end, rtt / 4)
    width = (2 if together else 1) * BIN_RTTS * rtt
    rates = [sliding(run, flow, moments, width) for flow in flows]
    us = us_per_s(run)
    for flow, one, colour in zip(flows, rates, COLOURS, strict=False):
        thin = 0.8 if together else None
        axes.plot(us * moments, one, color=colour, label=flow.flow.name, linewidth=thin)
    if together:
        total = np.sum(rates, axis=0)
        axes.plot(us * moments, total, color=style.BLACK, linewidth=1.5, label="together")
    counted = flows if together else flows[:1]
    allowed = [gbps(run, sum(flow.attainable.at(t) for flow in counted)) for t in moments]
    axes.plot(us * moments, allowed, color=style.BLACK, linestyle=(0, (4, 2)), label="links allow")
    shade_faults(axes, run)
    most = max(gbps(run, flow.flow.attainable_bps) for flow in flows)
    axes.set_ylim(0, 1.25 * max(most, *allowed))
    axes.spines["top"].set_visible(False)
    time_axes(axes, run)
    axes.set_ylabel("throughput\n(Gb/s, real-equivalent)")


def sliding(run: Run, flow: FlowTables, moments: Floats, width_s: float) -> Floats:
    """What a flow placed in the time before each moment, in Gb/s at full speed."""
    placed = flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width_s)
    return placed * 8 / width_s * run.summary.dilation / 1e9


def time_axes(axes: Axes, run: Run) -> None:
    """Have an axis in real us from the start of a run to its end, and one in base RTTs above."""
    us = us_per_s(run)
    axes.set_xlim(0, us * run_end(run.data))
    style.rtt_axis(axes, 0, us * run.data.base_rtt_s, "base RTTs")
    axes.set_xlabel(TIME_LABEL)


def shade_faults(axes: Axes, run: Run, *, named: bool = True) -> None:
    """Shade when any fault was in force, in real us, with a line where each began, and name them.

    Where there are more than a few, they are counted.
    """
    us, end = us_per_s(run), run_end(run.data)
    struck = sorted(
        ((f.effective_s, f) for f in run.summary.faults if f.effective_s is not None),
        key=lambda one: one[0],
    )
    for start, healed in _in_force([(start, fault.healed_s or end) for start, fault in struck]):
        axes.axvspan(
            us * start, us * healed, color=style.VERMILLION, alpha=0.1, linewidth=0, zorder=0
        )
    for start, _ in struck:
        axes.axvline(us * start, color=style.VERMILLION, linewidth=0.6, zorder=1)
    if not named or not struck:
        return
    labels = [(us * start, _name(fault)) for start, fault in struck]
    if len(struck) > NAMED_FAULTS:
        kinds = ", ".join(dict.fromkeys(fault.kind for _, fault in struck))
        labels = [(labels[0][0], f"{kinds}, {len(struck)} times")]
    rows = style.label_rows(labels, 0.01 * us * end)
    for (start, label), row in zip(labels, rows, strict=True):
        style.shade(axes, start, start, label, row)


def _name(fault: FaultSummary) -> str:
    targets = fault.target.split(", ")
    where = targets[0] if len(targets) == 1 else f"{len(targets)} links"
    return f"{fault.kind} {where}"


def _in_force(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which at least one of some spans lasted, which come in order of their start."""
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
