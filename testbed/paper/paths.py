"""Figures 12 to 14: what becomes of single EVs, of one that loses and of one that is crowded."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least, at_most
from testbed.paper.runs import Run
from testbed.paper.throughput import COLOURS, TIME, gbps, only, plot_flows, shade_faults, share
from testbed.results.fault_metrics import FlowTables, run_end
from testbed.results.figures import style

LOSSY = Variant("lossy-ev", "lossy-ev")
_NO_SKIP = {"transport": {"kind": "mrc", "congestion": "fixed", "ecn_skip": False}}
SHARED = Variant("same-ev", "same-ev")
UNMOVED = Variant("same-ev-no-skip", "same-ev", _NO_SKIP)

AT_ONCE_RTTS = 4.0
""""At once": the first lost packet of the EV shows after a round trip; one in five is lost."""


def _lossy_ev(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    (fault,) = run.summary.faults
    start, end = fault.effective_s or 0.0, fault.healed_s or 0.0
    flow = run.flows[0]
    out = fault.detection_rtt
    planes_ev = _evs_of_plane(run, flow, 0)
    later = start + AT_ONCE_RTTS * run.data.base_rtt_s
    active = [_active_at(flow, ev, later) for ev in planes_ev]
    return (
        Check(
            "the lossy EV leaves the active set",
            "never" if out is None else f"after {out:.1f} RTT",
            f"≤ {AT_ONCE_RTTS:g} RTT",
            out is not None and out <= AT_ONCE_RTTS,
        ),
        Check("EVs of its plane that are active then", str(sum(active)), "2", sum(active) == 2),  # noqa: PLR2004 - of the paper
        at_least("share of line rate while the EV loses", share(flow, start, end), 0.97),
    )


def _evs_of_plane(run: Run, flow: FlowTables, plane: int) -> list[int]:
    return [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).plane == plane]


def _active_at(flow: FlowTables, ev: int, t: float) -> bool:
    return any(span.start <= t < span.end and span.active for span in flow.spans[ev])


def _draw_lossy(runs: Runs) -> Figure:
    """Packets of each EV of the plane over time, and the throughput of the flow."""
    run = only(runs)
    figure = style.new_figure(4.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    flow = run.flows[0]
    plot_flows(upper, run, [flow])
    upper.set_xlabel("")
    _plot_evs(lower, run, flow, _evs_of_plane(run, flow, 0), COLOURS[1:])
    lower.set_xlabel(TIME)
    figure.legend(loc="outside lower center", ncols=6)
    return figure


def _plot_evs(
    axes: Axes, run: Run, flow: FlowTables, evs: list[int], colours: tuple[str, ...]
) -> None:
    """Plot what a flow sends on each of some EVs, in Gb/s at full speed."""
    rtt, end = run.data.base_rtt_s, run_end(run.data)
    width = 2 * rtt
    moments = np.arange(0, end, rtt / 4)
    for ev, colour in zip(sorted(evs), colours, strict=False):
        sent = flow.transmissions.filter(pl.col("ev") == ev)
        total = np.concatenate(([0], sent["bytes"].cast(pl.Int64).cum_sum().to_numpy()))
        times = sent["t"].to_numpy()
        until = total[np.searchsorted(times, moments, side="right")]
        since = total[np.searchsorted(times, moments - width, side="right")]
        name = f"{flow.flow.name} on {run.data.path_of(flow.flow, ev).name}"
        axes.plot(moments, gbps(run, 1.0) * (until - since) * 8 / width, color=colour, label=name)
    shade_faults(axes, run, end, named=False)
    axes.set_xlim(0, end)
    axes.set_ylim(bottom=0)
    axes.spines["top"].set_visible(False)
    axes.set_ylabel("sent on the EV (Gb/s)")


def _same_ev(runs: Runs) -> tuple[Check, ...]:
    run = runs[SHARED.name]
    (fault,) = run.summary.faults
    start, end = fault.effective_s or 0.0, fault.healed_s or 0.0
    pinned, free = run.flows
    unmoved = runs[UNMOVED.name]
    settled = (start + SHARING_RTTS * run.data.base_rtt_s, end)
    on_shared = _share_on(run, free, 0, *settled)
    rates = [
        flow.delivery.goodput_bps(*settled) / flow.flow.attainable_bps for flow in (pinned, free)
    ]
    return (
        at_most(
            "what the free flow sends on the shared EV, over the same without ECN skip",
            on_shared / _share_on(unmoved, unmoved.flows[1], 0, *settled),
            0.85,
        ),
        at_least("share of line rate, the slower of the two", min(rates), 0.85),
    )


SHARING_RTTS = 8.0
"""How long marks may take to move a flow before its share is taken."""


def _share_on(run: Run, flow: FlowTables, t1: int, start: float, end: float) -> float:
    sent = flow.transmissions.filter(pl.col("t").is_between(start, end))
    on = [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).t1 == t1]
    return sent.filter(pl.col("ev").is_in(on)).height / sent.height


def _draw_shared(runs: Runs) -> Figure:
    run = runs[SHARED.name]
    figure = style.new_figure(4.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    plot_flows(upper, run, run.flows)
    upper.set_xlabel("")
    pinned, free = run.flows
    _plot_evs(lower, run, free, list(free.spans), COLOURS[2:4])
    _plot_evs(lower, run, pinned, list(pinned.spans), COLOURS[4:6])
    lower.set_xlabel(TIME)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


PATHS: tuple[PaperFigure, ...] = (
    PaperFigure(
        number="12-13",
        title="One of 16 EVs loses 20% of its packets",
        saw="that EV goes inactive at once, a backup becomes active, line rate is held",
        ours="Two hosts with 8 ports each; a QP with 16 active EVs, two in each plane, and one "
        "backup in each. What one host sends on one of them is lost with a probability of 20%.",
        variants=(LOSSY,),
        measure=_lossy_ev,
        draw=_draw_lossy,
        caption="Above: the throughput of the flow. Below: what it sends on the three EVs of the "
        "plane concerned, averaged over two base RTTs.",
    ),
    PaperFigure(
        number="14",
        title="Two flows on the same EV",
        saw="ECN moves one of them to the other EV; both stay near line rate",
        ours="Two hosts of a rack write to two other racks over two T1s, with a fixed window. For "
        "one of them the path over T1 1 dies: it has a single EV and needs that uplink whole. The "
        "other flow has both. (The paper forces both flows to begin on one EV, which flows that "
        "spray packet by packet never do.) A second run has ECN skip switched off.",
        variants=(SHARED, UNMOVED),
        measure=_same_ev,
        draw=_draw_shared,
        caption="Above: the throughput of both flows. Below: what each sends on each of its EVs, "
        "averaged over two base RTTs.",
        cannot_show="why the paper's flows reach line rate. By the public rule, a mark makes "
        "its EV be skipped once, the one of two EVs that is marked every time keeps a third of the "
        "packets, and the flow that has no other EV keeps two thirds of its line rate.",
    ),
)
