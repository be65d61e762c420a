"""From a scenario to what every endpoint is told: queue pairs and their EVs."""

from collections import defaultdict
from itertools import count
from pathlib import Path

from testbed.host.plan import EndpointPlan, QpPlan
from testbed.model.ecmp import Move, outages_of
from testbed.model.fabric.addressing import links_of_path
from testbed.model.fabric.nodes import Link, Node
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce, Tcp
from testbed.mrc.constants import FIRST_QPN


def plan_endpoints(
    scenario: Scenario, raw_directory: Path, *, serialised: bool = False
) -> dict[Node, EndpointPlan]:
    """The queue pairs of every pair of hosts that exchange data, both ends of each.

    `serialised` says whether links hand a packet on when its last bit has left, as real ones do;
    the kernel's hand it on with its first.
    """
    topology, transport, seed = scenario.topology, scenario.transport, scenario.seed
    numbers = {(flow.src, flow.dst, flow.lane): flow.number for flow in flows_of(scenario)}
    qpn: dict[Node, count[int]] = defaultdict(lambda: count(FIRST_QPN))
    qps: dict[Node, list[QpPlan]] = defaultdict(list)
    for a, b, lane in dict.fromkeys((min(a, b), max(a, b), lane) for a, b, lane in numbers):
        a_qpn, b_qpn = next(qpn[a]), next(qpn[b])
        for host, peer, own, other in ((a, b, a_qpn, b_qpn), (b, a, b_qpn, a_qpn)):
            qps[host].append(
                QpPlan(
                    peer=peer,
                    lane=lane,
                    qpn=own,
                    peer_qpn=other,
                    sends=numbers.get((host, peer, lane)),
                    receives=numbers.get((peer, host, lane)),
                    evs=transport.choose_evs(topology, host, peer, lane=lane, seed=seed),
                    moves=_moves(scenario, host, peer, lane),
                )
            )
    return {
        host: EndpointPlan(
            topology=topology,
            transport=transport,
            workload=scenario.workload,
            host=host,
            qps=tuple(own),
            longest_bytes=scenario.longest_bytes,
            seed=seed,
            raw_directory=raw_directory,
            serialised=serialised,
        )
        for host, own in qps.items()
    }


def _moves(scenario: Scenario, host: Node, peer: Node, lane: int) -> tuple[Move, ...]:
    """Where routing puts a queue pair whose path is the fabric's choice, as faults become known."""
    topology, transport = scenario.topology, scenario.transport
    if not isinstance(transport, Roce | Tcp) or transport.convergence is None:
        return ()
    flow = transport.hashed_flow(host, peer, lane=lane, seed=scenario.seed)
    struck = scenario.scheduled_faults
    convergence_ns = round(transport.convergence * topology.dilation)
    return flow.moves(topology, outages_of(struck), convergence_ns)


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
