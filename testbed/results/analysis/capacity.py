"""What the fabric allows each flow while faults are in force."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import ActiveFaults
from testbed.model.run_files.run import FlowRecord
from testbed.model.units import NS_PER_S
from testbed.results.run_data import RunData


@dataclass(frozen=True, slots=True)
class AttainableRate:
    """A flow's attainable payload rate as a step function of time.

    Attributes:
        starts: when each step begins, in seconds of the run, ascending; the first is -inf.
        rates_bps: the rate from then on, in emulated bits/s.
    """

    starts: tuple[float, ...]
    rates_bps: tuple[float, ...]

    def at(self, t: float) -> float:
        """The rate at a time, in bits/s."""
        return self.rates_bps[max(int(np.searchsorted(self.starts, t, side="right")) - 1, 0)]

    def bits(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """The payload bits that it allows between two times, elementwise."""
        return self._bits_until(end) - self._bits_until(start)

    def _bits_until(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Since the first change of the rate, or since 0 if there is none; negative before."""
        rates, changes = np.array(self.rates_bps), np.array(self.starts[1:] or (0.0,))
        step = np.searchsorted(self.starts[1:], t, side="right")
        at_changes = np.concatenate([[0.0], np.cumsum(rates[1:-1] * np.diff(changes))])
        last = np.maximum(step - 1, 0)
        bits: NDArray[np.float64] = at_changes[last] + rates[step] * (t - changes[last])
        return bits


Passing = Callable[[str], float]
"""The share of its rate that a direction, or a host, still delivers."""


def attainable_rates(data: RunData) -> dict[int, AttainableRate]:
    """Every flow's attainable rate over the run: by flow number, stepping with every fault."""
    flows = data.run.flows
    steps = sorted(
        (
            ((step.by_ns - data.run.t0_ns) / NS_PER_S, fault.index, fault.places, step.impairment)
            for fault in data.faults
            for step in fault.steps
        ),
        key=lambda step: step[:2],
    )
    in_force = ActiveFaults()
    rates = [_rates(data, in_force)]
    starts = [-np.inf]
    for t, simultaneous in groupby(steps, key=lambda step: step[0]):
        for _, index, places, impairment in simultaneous:
            in_force.put(index, places, impairment)
        starts.append(t)
        rates.append(_rates(data, in_force))
    return {
        flow.flow: AttainableRate(tuple(starts), tuple(of_flows[i] for of_flows in rates))
        for i, flow in enumerate(flows)
    }


def _rates(data: RunData, in_force: ActiveFaults) -> list[float]:
    fractions = surviving_fractions(
        data.topology, data.run.flows, lambda place: in_force.impairment_at(place).deliverable_share
    )
    return [
        flow.attainable_bps * fraction
        for flow, fraction in zip(data.run.flows, fractions, strict=True)
    ]


def surviving_fractions(
    topology: Topology, flows: Sequence[FlowRecord], passes: Passing
) -> list[float]:
    """The share of its attainable rate that each flow keeps while places are impaired.

    In each plane a flow may use its share of the two NIC ports and, between racks, its share of
    every T1 that both T0s still reach; flows on a link share what it delivers equally. A lossy
    link delivers the share of packets that arrive. That is an upper bound: a sender that avoids
    the link gets less.

    Args:
        topology: the fabric.
        flows: all flows of the run.
        passes: tells which share of its rate a direction or host delivers.

    Returns:
        One share for each flow, from 0 to 1.
    """
    before = _plane_rates(topology, flows, lambda _place: 1.0)
    after = _plane_rates(topology, flows, passes)
    return [
        min(remaining / whole, 1.0) if whole else 0.0
        for remaining, whole in zip(after, before, strict=True)
    ]


def _plane_rates(topology: Topology, flows: Sequence[FlowRecord], passes: Passing) -> list[float]:
    """The rate of each flow over all planes, in emulated bits/s."""
    nodes = topology.nodes
    ends = [(nodes[flow.src], nodes[flow.dst]) for flow in flows]
    t1_rate_bps = topology.t0_t1_rate / topology.dilation
    rates = [0.0] * len(flows)
    for plane in range(topology.planes):
        directions = [_directions(topology, plane, src, dst) for src, dst in ends]
        alive = {
            i: [pair for pair in over_t1s if all(map(passes, pair))]
            for i, (ports, over_t1s) in enumerate(directions)
            if all(map(passes, (*ports, *(host.name for host in ends[i]))))
        }
        load = Counter(
            direction
            for i, over_t1s in alive.items()
            for direction in (*directions[i][0], *chain.from_iterable(over_t1s))
        )

        def share(pair: _Pair, load: Counter[str] = load) -> float:
            return min(passes(direction) / load[direction] for direction in pair)

        for i, over_t1s in alive.items():
            ports, crosses_t1 = directions[i]
            rate_bps = share(ports) * topology.port_rate_bps
            if crosses_t1:
                rate_bps = min(rate_bps, sum(share(pair) * t1_rate_bps for pair in over_t1s))
            rates[i] += rate_bps
    return rates


_Pair = tuple[str, str]


def _directions(topology: Topology, plane: int, src: Node, dst: Node) -> tuple[_Pair, list[_Pair]]:
    """The directions that a flow may use in a plane.

    Returns:
        Those out of and into the NICs, and between racks those up to and down from each T1.
    """
    racks = topology.rack(src), topology.rack(dst)
    ports = (
        topology.nic_link(src, plane).directions[0],
        topology.nic_link(dst, plane).directions[1],
    )
    if racks[0] == racks[1]:
        return ports, []
    over_t1s = [
        (
            topology.fabric_link(plane, racks[0], t1).directions[0],
            topology.fabric_link(plane, racks[1], t1).directions[1],
        )
        for t1 in range(topology.t1_per_plane)
    ]
    return ports, over_t1s
