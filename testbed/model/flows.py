"""The flows of a scenario: who sends to whom, numbered as in every record of a run."""

from collections import Counter
from dataclasses import dataclass

from testbed.model.scenario import Scenario
from testbed.model.topology import Node, Topology

LINKS_ACROSS, LINKS_WITHIN = 4, 2
"""Links that a packet crosses between racks, and within one."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of data over one queue pair.

    Attributes:
        number: the flow's number in every record of the run.
        src: the sending host.
        dst: the receiving host.
        lane: which of the queue pairs between the two, from 0.
    """

    number: int
    src: Node
    dst: Node
    lane: int = 0


def flows_of(scenario: Scenario) -> tuple[Flow, ...]:
    """The flows of a scenario, numbered in its order."""
    nodes = scenario.topology.nodes
    return tuple(Flow(i, nodes[a], nodes[b], lane) for i, (a, b, lane) in enumerate(scenario.flows))


def links_crossed(topology: Topology, flow: Flow) -> int:
    """How many links a packet of a flow crosses, one way."""
    within = topology.rack(flow.src) == topology.rack(flow.dst)
    return LINKS_WITHIN if within else LINKS_ACROSS


def fair_shares_bps(scenario: Scenario) -> dict[int, float]:
    """The raw rate that each flow may take, by its number, in bits/s.

    A host's ports are divided among the flows that leave it, and among those that arrive: the
    smaller share counts.
    """
    topology = scenario.topology
    leaving = Counter(src for src, _, _ in scenario.flows)
    arriving = Counter(dst for _, dst, _ in scenario.flows)
    host_bps = topology.planes * topology.port_rate_bps
    return {
        number: host_bps / max(leaving[src], arriving[dst])
        for number, (src, dst, _) in enumerate(scenario.flows)
    }
