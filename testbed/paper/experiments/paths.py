"""Figures 12 to 14: single EVs, one that loses packets, and one that two flows share."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.campaign.store import Run, Runs
from testbed.paper.checks import Check, at_least, at_most, between
from testbed.paper.experiments import drawing
from testbed.paper.experiments.throughput import gbps, measured, only, share, us_per_s
from testbed.paper.figure import PaperFigure, Variant
from testbed.paper.targets import paths_in_use
from testbed.results.analysis.fault_metrics import FlowTables, run_end


def _lossy_path(data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The fault: on the path of an EV of plane 0 that carries data with this seed."""
    _, used = paths_in_use(data, *LOSSY_PAIR, seed)
    of_plane = [path for path in used if path.plane == 0]
    (fault,) = data["timeline"]
    return {"timeline": [{**fault, "path": of_plane[seed % len(of_plane)].name}]}


LOSSY_PAIR = ("h0", "h2")
"""Who writes to whom in the scenario, both ways. Packets of the first host are lost."""

LOSSY = Variant("lossy-ev", "lossy-ev", with_seed=_lossy_path)
_NO_SKIP = {"transport": {"kind": "mrc", "congestion": "nscc", "ecn_skip": False}}
SHARED = Variant("same-ev", "same-ev")
UNMOVED = Variant("same-ev-no-skip", "same-ev", _NO_SKIP)

AT_ONCE_RTTS = 4.0
""""At once": the first lost packet of the EV shows after a round trip; one in five is lost."""


def _lossy_ev(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    (fault,) = run.summary.faults
    start, end = fault.effective_s or 0.0, fault.healed_s or 0.0
    flow, detection = run.flows[0], measured(fault.detection, "detection")
    later = start + AT_ONCE_RTTS * run.data.base_rtt_s
    what = "until the lossy EV has left the active set"
    active = sum(
        any(span.start <= later < span.end and span.active for span in flow.spans[ev])
        for ev in _evs_of_plane(run, flow, 0)
    )
    return (
        at_most(what, detection.rtt, AT_ONCE_RTTS, "{:.1f} RTT"),
        between("EVs of its plane that are active then", active, 2, 2, "{:.0f}"),
        at_least("share of line rate while the EV loses", share([flow], start, end), 0.97),
    )


def _evs_of_plane(run: Run, flow: FlowTables, plane: int) -> list[int]:
    return [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).plane == plane]


def _draw_lossy(runs: Runs) -> Figure:
    run = only(runs)
    flow = run.flows[0]
    return _draw_with_evs(run, [(flow, _evs_of_plane(run, flow, 0))], 1, 6)


def _draw_with_evs(
    run: Run, flows: Sequence[tuple[FlowTables, list[int]]], step: int, columns: int
) -> Figure:
    """Draw the throughput of flows, and below what each sends on some of its EVs.

    `step` is how many colours further the EVs of the next flow begin, after those of the flows.
    """
    figure, (upper, lower) = drawing.new_panels(4.4, 2, sharex=True)
    drawing.plot_flows(upper, run, [flow for flow, _ in flows])
    upper.set_xlabel("")
    upper.set_ylabel(drawing.RATE_LABEL)
    for i, (flow, evs) in enumerate(flows):
        _plot_evs(lower, run, flow, evs, drawing.COLOURS[len(flows) + step * i :])
    drawing.shade_faults(lower, run, named=False)
    drawing.legend_below(figure, columns)
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
        sent_gbps = gbps(run, 1.0) * (until - since) * 8 / width
        axes.plot(us_per_s(run) * moments, sent_gbps, color=colour, label=name)
    axes.set_ylabel("sent on the EV\n(Gb/s, real-equivalent)")
    axes.set_xlabel(drawing.TIME_LABEL)
    axes.set_ylim(bottom=0)


def _same_ev(runs: Runs) -> tuple[Check, ...]:
    run, unmoved = runs[SHARED.name], runs[UNMOVED.name]
    return (
        at_least("share of line rate, the slower of the two", slower_rate(run), 0.95),
        at_most("the same without ECN skip", slower_rate(unmoved), 0.85),
        at_most(
            f"of a flow's packets on the EV that both have, at most ({CARRIED:.1%} are carried)",
            max(_share_on(run, flow, SHARED_T1, *_settled(run)) for flow in run.flows),
            0.4,
        ),
    )


SHARED_T1 = 1
"""The one that both flows still reach their peer by."""

CARRIED = 3 / 8
"""What the shared uplink carries of each flow: half of three quarters of a port's rate."""

SHARING_RTTS = 8.0
"""How long marks may take to move the flows before their shares are taken."""


def _settled(run: Run) -> tuple[float, float]:
    """From when the flows, forced together, have moved apart until they no longer must."""
    (fault,) = run.summary.faults
    start = fault.effective_s or 0.0
    return start + SHARING_RTTS * run.data.base_rtt_s, fault.healed_s or 0.0


def slower_rate(run: Run) -> float:
    """The slower flow's goodput while they are forced together, of line rate."""
    settled = _settled(run)
    return min(
        flow.delivery.goodput_bps(*settled) / flow.attainable.undamaged_bps for flow in run.flows
    )


def _share_on(run: Run, flow: FlowTables, t1: int, start: float, end: float) -> float:
    sent = flow.transmissions.filter(pl.col("t").is_between(start, end))
    return sent.filter(pl.col("ev").is_in(_evs_over(run, flow, t1))).height / sent.height


def _evs_over(run: Run, flow: FlowTables, *t1s: int) -> list[int]:
    return [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).t1 in t1s]


def _draw_shared(runs: Runs) -> Figure:
    run = runs[SHARED.name]
    drawn = [(flow, _evs_over(run, flow, 2 * i, SHARED_T1)) for i, flow in enumerate(run.flows)]
    return _draw_with_evs(run, drawn, 2, 4)


PATHS = (
    PaperFigure("12-13", (LOSSY,), _lossy_ev, _draw_lossy),
    PaperFigure("14", (SHARED, UNMOVED), _same_ev, _draw_shared),
)
