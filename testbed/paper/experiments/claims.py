"""What the paper says in its text: about planes, ports that fail, and probes that locate."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from testbed.campaign.job import Form
from testbed.campaign.store import Run, Runs
from testbed.model.fabric.addressing import directions_of_path
from testbed.model.fabric.names import link_of
from testbed.paper.checks import Check, at_least, at_most, between, shown
from testbed.paper.experiments import remap
from testbed.paper.experiments.drawing import (
    RATE_LABEL,
    draw_stacked,
    legend_below,
    new_panels,
    shade_faults,
    stacked_height_in,
    time_axes,
)
from testbed.paper.experiments.failover import dead_link
from testbed.paper.experiments.throughput import (
    MAX_STALL_RTTS,
    SETTLE_RTTS,
    sliding,
    stall_rtts,
    us_per_s,
)
from testbed.paper.figure import PaperFigure, Variant
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.report.figures import style

EMULATED_SEEDS = (1, 2, 3)
"""Five are simulated; where a claim can be emulated, three are as many as of other rows."""

ONLY_SIMULATED_CLAIM: Mapping[Form, str] = {"emulated": "the fabric's switches route by SRv6 alone"}

# --- section 4: planes are equal ----------------------------------------------------------------

HALF = Variant("plane-half", "plane-half")
THIN = Variant("plane-thin", "plane-thin")
SHARED = Variant("plane-shared", "plane-shared")
SINGLE_PATH_FLOW = "h1"
"""The sender of the flow that has one path, to the receiver of the flow that has all."""

SLOWEST_PLANE = 0.15
"""How far throughput may be from that of the slowest plane, times the number of planes: a plane of
four, whose rate is not counted four times, would make a difference of 37% and 56%."""


LAST_QUARTER = 0.75
"""From when on throughput is shown as well: it has not settled after SETTLE_RTTS."""


def _in_force(run: Run) -> tuple[float, float]:
    """Throughput while the fault is in force, over that before it: settled, and at its end."""
    (fault,) = run.summary.faults
    rtt = run.data.base_rtt_s
    start, healed = fault.effective_s or 0.0, fault.healed_s or 0.0
    before = _bps(run, 5 * rtt, start)
    last = start + LAST_QUARTER * (healed - start)
    return _bps(run, start + SETTLE_RTTS * rtt, healed) / before, _bps(run, last, healed) / before


def _bps(run: Run, start: float, end: float) -> float:
    return sum(flow.delivery.goodput_bps(start, end) for flow in run.flows)


def _beside_single_path(run: Run) -> tuple[tuple[float, float], tuple[float, float]]:
    """While a flow on a single path writes to the same receiver: settled, and at its end.

    Returns:
        The throughput of the flow on all paths, over that before, and the share of a port that the
        other flow gets.
    """
    one_path = next(flow for flow in run.flows if flow.flow.src == SINGLE_PATH_FLOW)
    all_paths = next(flow for flow in run.flows if flow is not one_path)
    rtt, first = run.data.base_rtt_s, float(one_path.delivery.times[0])
    last = min(float(flow.delivery.times[-1]) for flow in (one_path, all_paths))
    before = all_paths.delivery.goodput_bps(5 * rtt, first)
    port_bps = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    settled, late = (
        (
            all_paths.delivery.goodput_bps(start, last) / before,
            one_path.delivery.goodput_bps(start, last) / port_bps,
        )
        for start in (first + SETTLE_RTTS * rtt, first + LAST_QUARTER * (last - first))
    )
    return settled, late


def _planes(runs: Runs) -> tuple[Check, ...]:
    (limited, got), (limited_late, got_late) = _beside_single_path(runs[SHARED.name])
    measured = (
        ("one plane has half its rate", _in_force(runs[HALF.name]), 1 / 2),
        ("one plane has a quarter of its uplinks", _in_force(runs[THIN.name]), 1 / 4),
        ("a flow on a single path shares one plane", (limited, limited_late), 1 / 2),
    )
    checks = []
    for what, (settled, late), expected in measured:
        bounds = expected - SLOWEST_PLANE, expected + SLOWEST_PLANE
        checks += [
            between(f"{what}: throughput, of that before", settled, *bounds),
            shown(f"{what}: the same, in the last quarter", late, "{:.1%}"),
        ]
    return (
        *checks,
        shown("the flow on a single path, of its port", got, "{:.1%}"),
        shown("the same, in the last quarter", got_late, "{:.1%}"),
    )


# --- section 4: a lossy link between NIC and T0 -------------------------------------------------

MAPPER: Mapping[str, Any] = {"period": "25 us"}
ALONE = Variant("nic-lossy", "nic-lossy")
LOCATED = Variant("nic-lossy-located", "nic-lossy", {"clustermapper": MAPPER})
LOSSY_NIC = "h4"
LOSSY_LINK = "h4--p1_t0_1"


def _links(run: Run, flow: FlowTables, ev: int) -> set[str]:
    """The links that an EV's data cross."""
    src, dst = (run.data.topology.nodes[name] for name in (flow.flow.src, flow.flow.dst))
    path = run.data.path_of(flow.flow, ev)
    return set(map(link_of, directions_of_path(run.data.topology, src, dst, path)))


def _suspects(run: Run) -> int:
    """How many links the EVs that a sender has left during the fault have in common.

    Links that an EV crosses which the sender kept are none. All this is what MRC knows.
    """
    (fault,) = run.summary.faults
    moment = fault.healed_s or 0.0
    flow = next(flow for flow in run.flows if LOSSY_NIC in (flow.flow.src, flow.flow.dst))
    left: set[str] | None = None
    remaining = set[str]()
    for ev, spans in flow.spans.items():
        links = _links(run, flow, ev)
        if any(span.start <= moment <= span.end and span.active for span in spans):
            remaining |= links
        else:
            left = links if left is None else left & links
    return len((left or set()) - remaining)


def _denied(run: Run) -> tuple[float, int]:
    """What the deny list had taken out when the fault ended.

    Returns:
        The share of the EVs that cross the lossy link, and the number of other EVs.
    """
    (fault,) = run.summary.faults
    moment = fault.healed_s or 0.0
    across, others = [], 0
    for flow in run.flows:
        for ev, spans in flow.spans.items():
            (state,) = {span.state for span in spans if span.start <= moment < span.end}
            if LOSSY_LINK in _links(run, flow, ev):
                across.append(state == "DENIED")
            else:
                others += state == "DENIED"
    return sum(across) / len(across), others


def _lossy_nic(runs: Runs) -> tuple[Check, ...]:
    localisation = runs[LOCATED.name].summary.localisation
    exact = 0.0 if localisation is None or localisation.exact is None else localisation.exact
    what = "MRC alone: links that all EVs which it left have in common"
    across, others = _denied(runs[LOCATED.name])
    return (
        between(what, _suspects(runs[ALONE.name]), 2, 2, "{:.0f}"),
        at_least("share of the faulty directions that the Clustermapper names exactly", exact, 1),
        at_least("share of the EVs across the link that the deny list takes out", across, 1),
        at_most("EVs that do not cross it and are taken out", others, 0, "{:.0f}"),
    )


# --- section 3: every link is probed each millisecond -------------------------------------------

PROBED = Variant("probe-each-ms", "probe-each-ms")

FEW_ROUNDS = 5
"""Rounds of probes until a silent link is named. The paper has no number; a link that loses all is
told apart from its neighbours by three lost probes (docs/clustermapper.md)."""


def _probes(runs: Runs) -> tuple[Check, ...]:
    localisation = runs[PROBED.name].summary.localisation
    exact, rounds, wrong = 0.0, inf, inf
    if localisation is not None:
        exact, wrong = localisation.exact or 0.0, localisation.accusations_wrong
        rounds = inf if localisation.naming_rounds is None else localisation.naming_rounds
    return (
        at_least("silent links that are named exactly, of both tiers", exact, 1),
        at_most("links that are named wrongly", wrong, 0, "{:.0f}"),
        at_most("rounds of probes until a link is named", rounds, FEW_ROUNDS, "{:.0f}"),
    )


# --- section 2.3: switches hash EVs to paths ----------------------------------------------------

EVS = 128
"""The paper's queue pairs have 128 to 256."""

BY_SENDER, BY_HASH = (
    Variant(
        f"hash-ecmp-{routing}",
        "hash-ecmp",
        {"transport": {"kind": "mrc", "congestion": "nscc", "evs": EVS, "routing": routing}},
        excluded=ONLY_SIMULATED_CLAIM,
    )
    for routing in ("srv6", "ecmp")
)
DEAD_LINK = dead_link(
    "ecmp", {"kind": "mrc", "evs": EVS, "routing": "ecmp"}, excluded=ONLY_SIMULATED_CLAIM
)

MIN_ECMP_SHARE = 0.95
"""Of the throughput over SRv6: what the paper says works "as well" has a width of a twentieth, as
a flow's share over a fabric full of others varies by a few percent from seed to seed."""


def _total_bps(run: Run) -> float:
    return _bps(run, SETTLE_RTTS * run.data.base_rtt_s, run.data.end_s)


def _hash_ecmp(runs: Runs) -> tuple[Check, ...]:
    share = _total_bps(runs[BY_HASH.name]) / _total_bps(runs[BY_SENDER.name])
    (fault,) = runs[DEAD_LINK.name].summary.faults
    what = "interruption where a link dies silently, over hash ECMP"
    return (
        at_least("throughput over hash ECMP, of that over SRv6", share, MIN_ECMP_SHARE),
        at_most(what, stall_rtts(fault), MAX_STALL_RTTS, "{:.1f} RTT"),
    )


# --- section 5.1: the transceiver of a NIC ------------------------------------------------------

TRANSCEIVER = Variant("nic-transceiver", "nic-transceiver")
FLAPPING_NIC = "h0"

MIN_UNAFFECTED_SHARE = 0.97
"""Of the rate before: what others keep, as in figure 8."""


def _transceiver(runs: Runs) -> tuple[Check, ...]:
    run = runs[TRANSCEIVER.name]
    its = [flow for flow in run.data.run.flows if FLAPPING_NIC in (flow.src, flow.dst)]
    others = [flow for flow in run.flows if FLAPPING_NIC not in (flow.flow.src, flow.flow.dst)]
    failed = sum(bool(flow.errors) for flow in its)
    (fault,) = run.summary.faults
    start, healed = fault.effective_s or 0.0, fault.healed_s or 0.0
    during, before = (
        sum(flow.delivery.goodput_bps(*span) for flow in others)
        for span in ((start, healed), (5 * run.data.base_rtt_s, start))
    )
    return (
        between("flows of the NIC that fail, of 4", failed, len(its), len(its), "{:.0f}"),
        between("flows of other NICs that fail", run.summary.qps_in_error - failed, 0, 0, "{:.0f}"),
        at_least("throughput of other NICs, of that before", during / before, MIN_UNAFFECTED_SHARE),
        between("payload lost or corrupted", _damaged(run), 0, 0, "{:.0f} B"),
    )


def _damaged(run: Run) -> int:
    return run.summary.integrity.bytes_lost + run.summary.integrity.bytes_corrupted


def _draw_transceiver(runs: Runs) -> Figure:
    """Throughput of the flows of the NIC, and of all others, over the run."""
    run = runs[TRANSCEIVER.name]
    figure, (axes,) = new_panels(2.6)
    its = [flow for flow in run.flows if FLAPPING_NIC in (flow.flow.src, flow.flow.dst)]
    others = [flow for flow in run.flows if flow not in its]
    rtt, us = run.data.base_rtt_s, us_per_s(run)
    moments = np.arange(0, run.data.end_s, rtt)
    for flows, label, colour in (
        (others, "flows of other NICs", style.BLUE),
        (its, f"flows of {FLAPPING_NIC}", style.VERMILLION),
    ):
        rates = sliding(run, flows, moments, 8 * rtt)
        axes.plot(us * moments, rates, color=colour, label=label)
    shade_faults(axes, run)
    time_axes(axes, run)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(RATE_LABEL)
    legend_below(figure, 2)
    return figure


# --- drawing ------------------------------------------------------------------------------------


def _draw(runs: Runs, titles: Mapping[str, str]) -> Figure:
    """Throughput over time, a panel for each run."""
    figure = style.new_figure(stacked_height_in(len(titles)))
    draw_stacked(figure, {title: runs[name] for name, title in titles.items()})
    return figure


def _claim(
    number: str,
    panels: Sequence[tuple[Variant, str]],
    measure: Callable[[Runs], tuple[Check, ...]],
) -> PaperFigure:
    """A claim, with the title of each of its runs."""
    titles = {variant.name: title for variant, title in panels}
    draw = partial(_draw, titles=titles)
    variants = tuple(variant for variant, _ in panels)
    return PaperFigure(
        number, variants, measure, draw, seeds=5, emulated_seeds=EMULATED_SEEDS, large=True
    )


CLAIMS = (
    _claim(
        "text-planes",
        (
            (HALF, "one plane with half its rate"),
            (THIN, "one plane with a quarter of its uplinks"),
            (SHARED, "beside a flow on a single path"),
        ),
        _planes,
    ),
    PaperFigure(
        "text-remap",
        remap.VARIANTS,
        remap.measure,
        remap.draw,
        seeds=5,
        emulated_seeds=EMULATED_SEEDS,
        large=True,
    ),
    _claim("text-lossy-nic", ((ALONE, "MRC alone"), (LOCATED, "with a deny list")), _lossy_nic),
    _claim("text-probes", ((PROBED, "two silent links"),), _probes),
    _claim(
        "text-ecmp",
        (
            (BY_SENDER, "SRv6: the sender names the path"),
            (BY_HASH, "hash ECMP"),
            (DEAD_LINK, "hash ECMP, a link dies silently"),
        ),
        _hash_ecmp,
    ),
    PaperFigure(
        "text-transceiver",
        (TRANSCEIVER,),
        _transceiver,
        _draw_transceiver,
        seeds=5,
        emulated_seeds=EMULATED_SEEDS,
        large=True,
    ),
)
