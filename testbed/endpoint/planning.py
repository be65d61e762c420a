"""From a scenario to what every endpoint is told: queue pairs, EVs, windows."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from testbed.endpoint.plan import EndpointPlan, QpPlan
from testbed.model.addressing import links_of_path
from testbed.model.ev_set import choose_evs
from testbed.model.scenario import Scenario
from testbed.model.topology import Link, Node

FIRST_QPN = 16
"""Queue pair numbers below are reserved (QPN 2 answers EV probes)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of data.

    Attributes:
        number: the flow's number in every record of the run.
        src: the sending host.
        dst: the receiving host.
    """

    number: int
    src: Node
    dst: Node


def flows_of(scenario: Scenario) -> tuple[Flow, ...]:
    """The flows of a scenario, numbered in its order."""
    nodes = scenario.topology.nodes
    return tuple(Flow(i, nodes[a], nodes[b]) for i, (a, b) in enumerate(scenario.flows))


def fair_share_bps(scenario: Scenario, flow: Flow) -> float:
    """The raw rate that a flow may take: its hosts' ports divided among their flows, in bits/s."""
    flows = flows_of(scenario)
    sharing = max(
        sum(other.src == flow.src for other in flows),
        sum(other.dst == flow.dst for other in flows),
    )
    topology = scenario.topology
    return topology.planes * topology.port_rate_bps / sharing


def plan_endpoints(scenario: Scenario, raw_directory: Path) -> dict[Node, EndpointPlan]:
    """One queue pair for every pair of hosts that exchange data, both ends of it."""
    numbers = {(flow.src, flow.dst): flow.number for flow in flows_of(scenario)}
    qpn: dict[Node, count[int]] = defaultdict(lambda: count(FIRST_QPN))
    qps: dict[Node, list[QpPlan]] = defaultdict(list)
    for a, b in dict.fromkeys(tuple(sorted(pair)) for pair in numbers):
        a_qpn, b_qpn = next(qpn[a]), next(qpn[b])
        for host, peer, own, other in ((a, b, a_qpn, b_qpn), (b, a, b_qpn, a_qpn)):
            sends, receives = numbers.get((host, peer)), numbers.get((peer, host))
            qps[host].append(_plan_qp(scenario, host, peer, own, other, sends, receives))
    return {
        host: EndpointPlan(scenario.topology, host, tuple(own), raw_directory)
        for host, own in qps.items()
    }


def _plan_qp(
    scenario: Scenario,
    host: Node,
    peer: Node,
    qpn: int,
    peer_qpn: int,
    sends: int | None,
    receives: int | None,
) -> QpPlan:
    topology, transport, workload = scenario.topology, scenario.transport, scenario.workload
    return QpPlan(
        peer=peer,
        qpn=qpn,
        peer_qpn=peer_qpn,
        sends=sends,
        receives=receives,
        evs=choose_evs(
            topology, host, peer, evs=transport.evs, backups=transport.backups, seed=scenario.seed
        ),
        window_bytes=round(transport.window * topology.planes * topology.bdp_bytes),
        nscc=transport.congestion == "nscc",
        probe_successes=transport.probe_successes,
        message_size=workload.message_size,
        depth=workload.depth,
        seed=scenario.seed,
    )


def links_in_use_by_all(scenario: Scenario) -> tuple[Link, ...]:
    """The T0-T1 links that every flow's active EVs cross: where a fault is felt by all of them."""
    topology = scenario.topology

    def crossed(plan: QpPlan, host: Node) -> set[str]:
        ways = (links_of_path(topology, host, plan.peer, ev.path) for ev in plan.evs if ev.active)
        return {link.name for way in ways for link in way if link.is_fabric}

    plans = plan_endpoints(scenario, Path())
    used = [
        crossed(qp, host) for host, plan in plans.items() for qp in plan.qps if qp.sends is not None
    ]
    return tuple(topology.links[name] for name in sorted(set.intersection(*used)))
