"""Planes are kept equal, as the slowest one limits all (section 4)."""

from testbed.campaign.store import Run, Runs
from testbed.studies.paper.checks import Check, between, shown
from testbed.studies.paper.experiments.claims.claim import claim_over_time
from testbed.studies.paper.experiments.throughput import SETTLE_RTTS, total_bps
from testbed.studies.paper.figure import Variant

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
    before = total_bps(run.flows, 5 * rtt, start)
    settled, late = (
        total_bps(run.flows, begin, healed) / before
        for begin in (start + SETTLE_RTTS * rtt, start + LAST_QUARTER * (healed - start))
    )
    return settled, late


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


def _measure(runs: Runs) -> tuple[Check, ...]:
    """What is left of throughput where one plane is slower than the others."""
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


PLANES = claim_over_time(
    "text-planes",
    (
        (HALF, "one plane with half its rate"),
        (THIN, "one plane with a quarter of its uplinks"),
        (SHARED, "beside a flow on a single path"),
    ),
    _measure,
)
