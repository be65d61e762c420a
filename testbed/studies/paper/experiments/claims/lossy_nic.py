"""A lossy link between NIC and T0, which the Clustermapper and a deny list find (section 4)."""

from collections.abc import Mapping
from typing import Any

from testbed.campaign.store import Run, Runs
from testbed.model.fabric.addressing import directions_of_path
from testbed.model.fabric.names import link_of
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.studies.paper.checks import Check, at_least, at_most, between
from testbed.studies.paper.experiments.claims.claim import claim_over_time
from testbed.studies.paper.figure import Variant

MAPPER: Mapping[str, Any] = {"period": "25 us"}
ALONE = Variant("nic-lossy", "nic-lossy")
LOCATED = Variant("nic-lossy-located", "nic-lossy", {"clustermapper": MAPPER})
NIC = "h4"
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
    flow = next(flow for flow in run.flows if NIC in (flow.flow.src, flow.flow.dst))
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


def _measure(runs: Runs) -> tuple[Check, ...]:
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


LOSSY_NIC = claim_over_time(
    "text-lossy-nic", ((ALONE, "MRC alone"), (LOCATED, "with a deny list")), _measure
)
