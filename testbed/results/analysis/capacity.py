"""What the fabric allows each flow while faults are in force."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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
        """How many payload bits it allows between two times, elementwise."""
        return self._bits_until(end) - self._bits_until(start)

    def _bits_until(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Since the first change of the rate, or since 0 if there is none; negative before."""
        rates, changes = np.array(self.rates_bps), np.array(self.starts[1:] or (0.0,))
        step = np.searchsorted(self.starts[1:], t, side="right")
        at_changes = np.concatenate([[0.0], np.cumsum(rates[1:-1] * np.diff(changes))])
        last = np.maximum(step - 1, 0)
        found: NDArray[np.float64] = at_changes[last] + rates[step] * (t - changes[last])
        return found


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
        key=lambda one: one[:2],
    )
    in_force = ActiveFaults()
    rates = [_rates(data, in_force)]
    starts = [-np.inf]
    for t, step in groupby(steps, key=lambda one: one[0]):
        for _, index, places, impairment in step:
            in_force.put(index, places, impairment)
        starts.append(t)
        rates.append(_rates(data, in_force))
    return {
        flow.flow: AttainableRate(tuple(starts), tuple(of_all[i] for of_all in rates))
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
    every T1 that both T0s still reach; flows on a link share what it delivers equally. Of a lossy
    link it is the share that arrives: an upper bound, as a sender that avoids it gets less.
    """
    before = _plane_rates(topology, flows, lambda _place: 1.0)
    after = _plane_rates(topology, flows, passes)
    return [
        min(left / whole, 1.0) if whole else 0.0 for left, whole in zip(after, before, strict=True)
    ]


def _plane_rates(topology: Topology, flows: Sequence[FlowRecord], passes: Passing) -> list[float]:
    nodes = topology.nodes
    ends = [(nodes[flow.src], nodes[flow.dst]) for flow in flows]
    rates = [0.0] * len(flows)
    for plane in range(topology.planes):
        ways = [_ways(topology, plane, src, dst) for src, dst in ends]
        alive = {
            i: [(up, down) for up, down in across if passes(up) and passes(down)]
            for i, ((out, in_), across) in enumerate(ways)
            if passes(out) and passes(in_) and all(passes(host.name) for host in ends[i])
        }
        load: dict[str, int] = {}
        for i, across in alive.items():
            for direction in (*ways[i][0], *(d for pair in across for d in pair)):
                load[direction] = load.get(direction, 0) + 1
        for i, across in alive.items():
            (out, in_), possible = ways[i]
            port = min(passes(one) / load[one] for one in (out, in_)) * topology.port_rate_bps
            rates[i] += min(
                port, _share_of_t1s(topology, across, load, passes) if possible else port
            )
    return rates


_Pairs = list[tuple[str, str]]


def _ways(topology: Topology, plane: int, src: Node, dst: Node) -> tuple[tuple[str, str], _Pairs]:
    """The directions out of and into the NICs, and those up and down at every T1 between racks."""
    racks = topology.rack(src), topology.rack(dst)
    ports = (
        topology.nic_link(src, plane).directions[0],
        topology.nic_link(dst, plane).directions[1],
    )
    if racks[0] == racks[1]:
        return ports, []
    across = [
        (
            topology.fabric_link(plane, racks[0], t1).directions[0],
            topology.fabric_link(plane, racks[1], t1).directions[1],
        )
        for t1 in range(topology.t1_per_plane)
    ]
    return ports, across


def _share_of_t1s(
    topology: Topology, across: _Pairs, load: Mapping[str, int], passes: Passing
) -> float:
    rate_bps = topology.t0_t1_rate / topology.dilation
    return sum(min(passes(one) / load[one] for one in pair) * rate_bps for pair in across)
