"""The flows of a scenario: who sends to whom, numbered as in every record of a run."""

from collections import Counter
from dataclasses import dataclass
from math import isclose

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario

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
    """The raw rate that each flow may take, by its number, in bits/s: max-min fair.

    The ports of a host are divided among the flows that leave it, and among those that arrive, and
    what a flow cannot use, as its other end is busier, is divided among the rest (Bertsekas and
    Gallager, Data Networks, 6.5.2).
    """
    host_bps = float(scenario.topology.planes * scenario.topology.port_rate_bps)
    left = {
        number: (("out", src), ("in", dst)) for number, (src, dst, _) in enumerate(scenario.flows)
    }
    free_bps = dict.fromkeys((end for ends in left.values() for end in ends), host_bps)
    shares = {}
    while left:
        users = Counter(end for ends in left.values() for end in ends)
        share_bps = min(free_bps[end] / count for end, count in users.items())
        busiest = {end for end in users if isclose(free_bps[end], share_bps * users[end])}
        for number in [number for number, ends in left.items() if not busiest.isdisjoint(ends)]:
            shares[number] = share_bps
            for end in left.pop(number):
                free_bps[end] -= share_bps
    return shares
