"""Figures 12 to 14: single EVs, one that loses packets, and one that two flows share."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.results.analysis.fault_metrics import FlowTables
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.drawing import gbps, share, us_per_s
from testbed.studies.paper.figure import (
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    between,
    shown,
)
from testbed.studies.paper.rows import paths_in_use


def _lossy_path(data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The fault: on the path of an EV of plane 0 that carries data with this seed."""
    _, used = paths_in_use(data, *LOSSY_PAIR, seed)
    of_plane = [path for path in used if path.plane == 0]
    (fault,) = data["timeline"]
    return {"timeline": [{**fault, "path": of_plane[seed % len(of_plane)].name}]}


LOSSY_PAIR = ("h0", "h2")
"""Who writes to whom in the scenario, both ways. Packets of the first host are lost."""

LOSSY = "lossy-ev"
RATES = (0.2, 0.01, 0.05, 0.5)
"""Which share of its packets the EV loses; the first is the paper's figure, of the others it says
that the picture is the same."""


def _lossy_variant(rate: float) -> Variant:
    def lossy_path(data: Mapping[str, Any], seed: int) -> dict[str, Any]:
        (fault,) = _lossy_path(data, seed)["timeline"]
        return {"timeline": [{**fault, "probability": rate}]}

    is_the_papers = rate == RATES[0]
    name = LOSSY if is_the_papers else f"{LOSSY}-{rate:g}"
    return Variant(name, LOSSY, with_seed=lossy_path, repeated_only=not is_the_papers)


LOSSY_VARIANTS = tuple(map(_lossy_variant, RATES))
_NO_SKIP = {"transport": {"kind": "mrc", "congestion": "nscc", "ecn_skip": False}}
SHARED = Variant("same-ev", "same-ev", repeated_only=True)
UNMOVED = Variant("same-ev-no-skip", "same-ev", _NO_SKIP, repeated_only=True)
FORCED = Variant("forced-ev", "forced-ev")

AT_ONCE_RTTS = 2.0
""""At once": a packet that is lost shows after a round trip, and some reordering is waited for."""


def _lossy_evs(runs: Results) -> tuple[Check, ...]:
    variants = [
        (rate, variant)
        for rate, variant in zip(RATES, LOSSY_VARIANTS, strict=True)
        if variant.name in runs
    ]
    return tuple(
        check for rate, variant in variants for check in _of_rate(runs[variant.name], rate)
    )


def _of_rate(run: Result, rate: float) -> Iterator[Check]:
    (fault,) = run.summary.faults
    start, end = fault.effective_s or 0.0, fault.healed_s or 0.0
    flow, rtt = run.flows[0], run.data.base_rtt_s
    lost = flow.losses.filter(pl.col("sent_t").is_between(start - rtt, end)).sort("sent_t")
    ev, first_lost = (lost["ev"][0], lost["sent_t"][0]) if lost.height else (-1, inf)
    out = [s.start for s in flow.spans.get(ev, ()) if s.start > start and not s.active]
    left = min(out, default=inf)
    later = left + rtt / 4
    active = sum(
        any(span.start <= later < span.end and span.active for span in flow.spans[other])
        for other in _evs_of_plane(run, flow, 0)
    )
    of_rate = f", {rate:.0%} lost"
    what = f"from its first lost packet until the EV is out{of_rate}"
    out_rtts = (left - first_lost) / rtt if left < inf else inf
    yield at_most(what, out_rtts, AT_ONCE_RTTS, "{:.1f} RTT")
    yield between(f"EVs of its plane that are active then{of_rate}", active, 1, 1, "{:.0f}")
    yield at_least(f"share of line rate while it loses{of_rate}", share([flow], start, end), 0.97)


def _evs_of_plane(run: Result, flow: FlowTables, plane: int) -> list[int]:
    return [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).plane == plane]


def _draw_lossy(runs: Results) -> Figure:
    run = runs[LOSSY]
    flow = run.flows[0]
    return _draw_with_evs(run, [(flow, _evs_of_plane(run, flow, 0))], 1, 6)


def _draw_with_evs(
    run: Result, flows: Sequence[tuple[FlowTables, list[int]]], step: int, columns: int
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
    lower.set_ylim(bottom=0)
    drawing.shade_faults(lower, run, named=False)
    drawing.legend_below(figure, columns)
    return figure


def _plot_evs(
    axes: Axes, run: Result, flow: FlowTables, evs: list[int], colours: tuple[str, ...]
) -> None:
    """Plot what a flow sends on each of some EVs, in Gb/s at full speed."""
    rtt, end = run.data.base_rtt_s, run.data.end_s
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


def _same_ev(runs: Results) -> tuple[Check, ...]:
    forced = runs[FORCED.name]
    return (
        at_least(FORCED_RATE, slower_rate(forced), NEAR_LINE_RATE),
        shown(
            "of the first flow's packets on the EV that it then shares",
            _share_on(forced, forced.flows[0], FORCED_T1, *_settled(forced)),
            "{:.1%}",
        ),
        *(_an_ev_each(runs[SHARED.name], runs[UNMOVED.name]) if SHARED.name in runs else ()),
    )


def _an_ev_each(run: Result, unmoved: Result) -> Iterator[Check]:
    """What is measured where each flow has an EV of its own beside the one that both have."""
    yield at_least("share of line rate, the slower of the two", slower_rate(run), NEAR_LINE_RATE)
    yield at_most("the same without ECN skip", slower_rate(unmoved), 0.85)
    yield at_most(
        f"of a flow's packets on the EV that both have, at most ({CARRIED:.1%} are carried)",
        max(_share_on(run, flow, SHARED_T1, *_settled(run)) for flow in run.flows),
        0.4,
    )


FORCED_RATE = "the second flow is forced: the slower of the two, of line rate"

NEAR_LINE_RATE = 0.95
"""What is "near line rate"."""

FORCED_T1 = 0
"""The only one by which the forced flow reaches its peer."""

SHARED_T1 = 1
"""The one that both flows still reach their peer by."""

CARRIED = 3 / 8
"""What the shared uplink carries of each flow: half of three quarters of a port's rate."""

SHARING_RTTS = 8.0
"""How long marks may take to move the flows before their shares are taken."""


def _settled(run: Result) -> tuple[float, float]:
    """From when the flows, forced together, have moved apart until their paths are back."""
    (fault,) = run.summary.faults
    start = fault.effective_s or 0.0
    return start + SHARING_RTTS * run.data.base_rtt_s, fault.healed_s or 0.0


def slower_rate(run: Result) -> float:
    """The slower flow's goodput while they are forced together, of line rate."""
    settled = _settled(run)
    return min(
        flow.delivery.goodput_bps(*settled) / flow.attainable.undamaged_bps for flow in run.flows
    )


def _share_on(run: Result, flow: FlowTables, t1: int, start: float, end: float) -> float:
    sent = flow.transmissions.filter(pl.col("t").is_between(start, end))
    return sent.filter(pl.col("ev").is_in(_evs_over(run, flow, t1))).height / sent.height


def _evs_over(run: Result, flow: FlowTables, *t1s: int) -> list[int]:
    return [ev for ev in flow.spans if run.data.path_of(flow.flow, ev).t1 in t1s]


def _draw_forced(runs: Results) -> Figure:
    run = runs[FORCED.name]
    first, second = run.flows
    drawn = [(first, list(first.spans)), (second, _evs_over(run, second, FORCED_T1))]
    return _draw_with_evs(run, drawn, 2, 4)


PATHS = (
    PaperFigure("12-13", LOSSY_VARIANTS, _lossy_evs, _draw_lossy),
    PaperFigure("14", (FORCED, SHARED, UNMOVED), _same_ev, _draw_forced),
)
