"""Switches that hash EVs to paths (section 2.3)."""

from collections.abc import Mapping

from testbed.campaign.job import Form
from testbed.campaign.store import Run, Runs
from testbed.studies.paper.checks import Check, at_least, at_most
from testbed.studies.paper.experiments.claims.claim import claim_over_time
from testbed.studies.paper.experiments.failover import dead_link
from testbed.studies.paper.experiments.throughput import (
    MAX_STALL_RTTS,
    SETTLE_RTTS,
    stall_rtts,
    total_bps,
)
from testbed.studies.paper.figure import Variant

ONLY_SIMULATED: Mapping[Form, str] = {"emulated": "the fabric's switches route by SRv6 alone"}

EVS = 128
"""The paper's queue pairs have 128 to 256."""

BY_SENDER, BY_HASH = (
    Variant(
        f"hash-ecmp-{routing}",
        "hash-ecmp",
        {"transport": {"kind": "mrc", "congestion": "nscc", "evs": EVS, "routing": routing}},
        excluded=ONLY_SIMULATED,
    )
    for routing in ("srv6", "ecmp")
)
DEAD_LINK = dead_link(
    "ecmp", {"kind": "mrc", "evs": EVS, "routing": "ecmp"}, excluded=ONLY_SIMULATED
)

MIN_ECMP_SHARE = 0.95
"""Of the throughput over SRv6: what the paper says works "as well" has a width of a twentieth, as
a flow's share over a fabric full of others varies by a few percent from seed to seed."""


def _settled_bps(run: Run) -> float:
    """The goodput of all flows, from when it has settled."""
    return total_bps(run.flows, SETTLE_RTTS * run.data.base_rtt_s, run.data.end_s)


def _measure(runs: Runs) -> tuple[Check, ...]:
    share = _settled_bps(runs[BY_HASH.name]) / _settled_bps(runs[BY_SENDER.name])
    (fault,) = runs[DEAD_LINK.name].summary.faults
    what = "interruption where a link dies silently, over hash ECMP"
    return (
        at_least("throughput over hash ECMP, of that over SRv6", share, MIN_ECMP_SHARE),
        at_most(what, stall_rtts(fault), MAX_STALL_RTTS, "{:.1f} RTT"),
    )


ECMP = claim_over_time(
    "text-ecmp",
    (
        (BY_SENDER, "SRv6: the sender names the path"),
        (BY_HASH, "hash ECMP"),
        (DEAD_LINK, "hash ECMP, a link dies silently"),
    ),
    _measure,
)
