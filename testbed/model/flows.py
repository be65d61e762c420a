"""The flows of a scenario: who sends to whom, numbered as in every record of a run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isclose

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S

LINKS_ACROSS, LINKS_WITHIN = 4, 2
"""Links that a packet crosses between two racks, and within one rack."""

LEAST_FOR_DATA = 0.01
"""Of a port, however many control packets its host sends. Ours."""

SIMULATED_HOPS_PER_S = 60_000.0
"""Packet-hops a second of one CPU in the simulator (docs/simulator.md), somewhat below."""

_ACKNOWLEDGED = 1.3
"""Packets for each data packet: acknowledgements, and what is sent again."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of data over one queue pair.

    Attributes:
        number: the flow's number in all records of the run.
        src: the sending host.
        dst: the receiving host.
        lane: the number of its queue pair among those of the two hosts, from 0.
        job: the number of its job among those of the scenario, from 0; -1: a program opened it.
    """

    number: int
    src: Node
    dst: Node
    lane: int = 0
    job: int = 0


def flows_of(scenario: Scenario) -> tuple[Flow, ...]:
    """The flows of a scenario; a flow's number is its place."""
    host = cache(scenario.topology.host_named)
    ends = (
        (host(src), host(dst), lane, job)
        for job, flows in enumerate(scenario.flows_of_jobs)
        for src, dst, lane in flows
    )
    return tuple(Flow(number, *end) for number, end in enumerate(ends))


def flows_recorded(scenario: Scenario, recorded: Iterable[FlowRecord]) -> tuple[Flow, ...]:
    """The flows of a run: those that its scenario plans, then those that its programs opened.

    The job of a planned one is counted among the planned ones.
    """
    planned, host = flows_of(scenario.planned), scenario.topology.host_named
    opened = (flow for flow in recorded if flow.flow >= len(planned))
    return planned + tuple(
        Flow(flow.flow, host(flow.src), host(flow.dst), flow.lane, job=-1) for flow in opened
    )


def links_crossed(topology: Topology, flow: Flow) -> int:
    """The number of links that a packet of a flow crosses, one way."""
    within = topology.rack(flow.src) == topology.rack(flow.dst)
    return LINKS_WITHIN if within else LINKS_ACROSS


def base_rtt_flow(topology: Topology, flows: Sequence[Flow]) -> Flow:
    """The flow that the base RTT is measured on: the first that crosses a T1, if any does."""
    across = (flow for flow in flows if links_crossed(topology, flow) == LINKS_ACROSS)
    return next(across, flows[0])


def fair_shares_bps(
    scenario: Scenario, others: Mapping[int, tuple[str, str]] | None = None
) -> dict[int, float]:
    """The max-min fair share of each flow in a fault-free fabric, by its number, in raw bits/s.

    Flows that only signal have 0. Only the hosts' ports limit the others. A host's rate is shared
    among the flows that leave it, and among those that arrive; what a flow cannot use because of
    its other end is shared among the others (Bertsekas and Gallager, Data Networks, 6.5.2).

    Args:
        scenario: has the flows.
        others: source and destination of further flows beside them, by their numbers.
    """
    signals, flows = scenario.signals, scenario.flows
    data = {
        number: (src, dst) for number, (src, dst, _) in enumerate(flows) if number not in signals
    }
    shares = shares_bps(scenario.topology, data | dict(others or {}))
    return dict.fromkeys(range(len(flows)), 0.0) | shares


def shares_bps(topology: Topology, flows: Mapping[int, tuple[str, str]]) -> dict[int, float]:
    """The same of flows by their numbers, each given by source and destination."""
    host_bps = float(topology.planes * topology.port_rate_bps)
    leaving = Counter(src for src, _ in flows.values())
    arriving = Counter(dst for _, dst in flows.values())
    if len(counts := {*leaving.values(), *arriving.values()}) == 1:  # a permutation, most often
        return dict.fromkeys(flows, host_bps / counts.pop())
    unassigned = {number: (("out", src), ("in", dst)) for number, (src, dst) in flows.items()}
    free_bps = dict.fromkeys((end for ends in unassigned.values() for end in ends), host_bps)
    shares: dict[int, float] = {}
    while unassigned:
        users = Counter(end for ends in unassigned.values() for end in ends)
        share_bps = min(free_bps[end] / count for end, count in users.items())
        busiest = {end for end in users if isclose(free_bps[end], share_bps * users[end])}
        limited = [number for number, ends in unassigned.items() if not busiest.isdisjoint(ends)]
        for number in limited:
            shares[number] = share_bps
            for end in unassigned.pop(number):
                free_bps[end] -= share_bps
    return shares


def left_for_data_bps(port_bps: float, control_bps: float) -> float:
    """What a port has left for data, beside the control packets that its host sends into it.

    Never less than `LEAST_FOR_DATA` of it: control packets may be more than a port carries, and a
    share of nothing could not be given.
    """
    return max(port_bps - control_bps, port_bps * LEAST_FOR_DATA)


def packet_hops(scenario: Scenario) -> float:
    """Packets times links crossed, if every flow takes all that it may: an upper bound."""
    topology = scenario.topology
    shares_bps = fair_shares_bps(scenario)
    links = sum(
        shares_bps[flow.number] * links_crossed(topology, flow) for flow in flows_of(scenario)
    )
    return _ACKNOWLEDGED * links / (8 * topology.wire_bytes) * scenario.duration / NS_PER_S
