"""Throughput over time, as most figures of the paper show it, and what is measured from it."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.paper.figure import Runs
from testbed.paper.runs import Run
from testbed.results.delivery import Floats
from testbed.results.fault_metrics import FlowTables, run_end
from testbed.results.figures import style
from testbed.results.summary import FaultSummary

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.GREY)
BIN_RTTS = 1.0
"""Throughput is averaged over the base RTT before each point: shorter than that it shows the
rhythm of SACKs."""

SETTLE_RTTS = 3.0
"""After a change the throughput is taken from so long on: what was in flight has then arrived, and
the dead path is out of service. The paper's seconds hide hundreds of thousands of RTTs."""

READING = (
    "Throughput of each flow, averaged over the base RTT before each point, as it would be at full "
    "speed; dashed: what the links in service allow. Shaded: when a fault was in force."
)

NAMED_FAULTS = 2
"""Of more faults the first ones are named."""

TIME = "time of the run (s, emulated)"


def only(runs: Runs) -> Run:
    """The one run of a figure that needs no other."""
    (run,) = runs.values()
    return run


def gbps(run: Run, emulated_bps: float) -> float:
    """A rate as it would be at full speed, in Gb/s."""
    return emulated_bps * run.summary.dilation / 1e9


def share(flow: FlowTables, start: float, end: float) -> float:
    """What a flow placed between two times, as a share of what the links in service allowed."""
    placed = 8 * float(np.diff(flow.delivery.bytes_until(np.array([start, end])))[0])
    allowed = float(flow.attainable.bits(np.array([start]), np.array([end]))[0])
    return placed / allowed


def rate(run: Run, flow: FlowTables, start: float, end: float) -> float:
    """What a flow placed between two times, in Gb/s at full speed."""
    return gbps(run, flow.delivery.goodput_bps(start, end))


def before_faults(run: Run) -> tuple[float, float]:
    """From a few RTTs after the start to the first fault."""
    begin = 5 * run.data.base_rtt_s
    faults = [f.effective_s for f in run.summary.faults if f.effective_s is not None]
    return begin, min([run_end(run.data), *faults])


def longest_stall_s(run: Run) -> float:
    """The longest that any fault kept a flow from delivering in order, in emulated seconds."""
    return max((fault.stall_ms or 0.0 for fault in run.summary.faults), default=0.0) / 1e3


def phases(run: Run, settle_rtts: float = SETTLE_RTTS) -> list[tuple[float, float]]:
    """The times between one change of the faults and the next, each without its settling."""
    changes = {f.effective_s for f in run.summary.faults} | {f.healed_s for f in run.summary.faults}
    times = sorted(t for t in changes if t is not None)
    settle = settle_rtts * run.data.base_rtt_s
    return [(start + settle, end) for start, end in pairwise(times) if end - start > settle]


def during_and_after(run: Run, flow: FlowTables, settle_rtts: float) -> tuple[float, float]:
    """A flow's goodput during the faults and after them, as shares of what it was before."""
    begin, until = before_faults(run)
    steady = flow.delivery.goodput_bps(begin, until)
    start = min(f.effective_s or 0.0 for f in run.summary.faults)
    end = max(f.healed_s or 0.0 for f in run.summary.faults)
    settle = settle_rtts * run.data.base_rtt_s
    during = flow.delivery.goodput_bps(start + settle, end) / steady
    after = flow.delivery.goodput_bps(end + settle, run_end(run.data)) / steady
    return during, after


def draw_only(runs: Runs) -> Figure:
    """Draw every flow of the one run."""
    return draw_flows(only(runs))


def draw_flows(
    run: Run, flows: Sequence[FlowTables] | None = None, height_in: float = 2.9
) -> Figure:
    """One line a flow, in Gb/s at full speed, over the time of the run; faults shaded."""
    figure = style.new_figure(height_in)
    axes = figure.subplots()
    plot_flows(axes, run, run.flows if flows is None else flows)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def plot_flows(axes: Axes, run: Run, flows: Sequence[FlowTables]) -> None:
    """Plot the flows on given axes, with what the fabric allows the first of them."""
    end = run_end(run.data)
    rtt = run.data.base_rtt_s
    moments = np.arange(0, end, rtt / 4)
    for flow, colour in zip(flows, COLOURS, strict=False):
        axes.plot(
            moments, sliding(run, flow, moments, BIN_RTTS * rtt), color=colour, label=flow.flow.name
        )
    allowed = [gbps(run, flows[0].attainable.at(t)) for t in moments]
    axes.plot(moments, allowed, color=style.BLACK, linestyle=(0, (4, 2)), label="links allow")
    shade_faults(axes, run, end)
    axes.set_ylim(0, 1.25 * max(gbps(run, flow.flow.attainable_bps) for flow in flows))
    axes.set_xlim(0, end)
    axes.spines["top"].set_visible(False)
    style.rtt_axis(axes, 0, rtt, "base RTTs")
    axes.set_xlabel(TIME)
    axes.set_ylabel("throughput (Gb/s, real-equivalent)")


def sliding(run: Run, flow: FlowTables, moments: Floats, width_s: float) -> Floats:
    """What a flow placed in the time before each moment, in Gb/s at full speed."""
    placed = flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width_s)
    return placed * 8 / width_s * run.summary.dilation / 1e9


def shade_faults(axes: Axes, run: Run, end: float, *, named: bool = True) -> None:
    """Shade when any fault was in force, with a line where each began; name the first ones."""
    struck = [(f.effective_s, f) for f in run.summary.faults if f.effective_s is not None]
    until = 0.0
    for start, fault in struck:
        healed = end if fault.healed_s is None else fault.healed_s
        if healed > until:
            style.shade(axes, max(start, until), healed)
        until = max(until, healed)
        axes.axvline(start, color=style.VERMILLION, linewidth=0.6, zorder=1)
    labels = [(start, _name(fault)) for start, fault in struck[: NAMED_FAULTS * named]]
    rows = style.label_rows(labels, 0.01 * end)
    for (start, label), row in zip(labels, rows, strict=True):
        style.shade(axes, start, start, label, row)


def _name(fault: FaultSummary) -> str:
    targets = fault.target.split(", ")
    where = targets[0] if len(targets) == 1 else f"{len(targets)} links"
    return f"{fault.kind} {where}"
