"""What the fabric allows each flow while links are out of service."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.model.topology import Link, Node, Topology
from testbed.results.run_data import FlowRecord, RunData


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
        total = np.zeros(np.broadcast(start, end).shape)
        ends = (*self.starts[1:], np.inf)
        for step_start, step_end, rate in zip(self.starts, ends, self.rates_bps, strict=True):
            inside = np.minimum(end, step_end) - np.maximum(start, step_start)
            total += rate * np.clip(inside, 0, None)
        return total


def attainable_rates(data: RunData) -> dict[int, AttainableRate]:
    """Every flow's attainable rate over the run: by flow number, stepping at every fault."""
    flows = data.run.flows
    outages: list[tuple[float, float, str]] = []
    for fault in data.faults:
        start, end = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
        if start is not None:
            outages.append((start, np.inf if end is None else end, fault.target))
    changes = sorted({t for start, end, _ in outages for t in (start, end) if np.isfinite(t)})
    starts = (-np.inf, *changes)
    steps: dict[int, list[float]] = {flow.flow: [] for flow in flows}
    for start in starts:
        dead = {target for begin, end, target in outages if begin <= start < end}
        fractions = surviving_fractions(data.topology, flows, dead)
        for flow, fraction in zip(flows, fractions, strict=True):
            steps[flow.flow].append(flow.attainable_bps * fraction)
    return {number: AttainableRate(starts, tuple(rates)) for number, rates in steps.items()}


def surviving_fractions(
    topology: Topology, flows: Sequence[FlowRecord], dead: Collection[str]
) -> list[float]:
    """The share of its attainable rate that each flow keeps while the named links are dead.

    In each plane a flow may use its share of the two NIC ports and, between racks, its share of
    every T1 that both T0s still reach; flows on a link share it equally.
    """
    before = _plane_rates(topology, flows, frozenset())
    after = _plane_rates(topology, flows, dead)
    return [
        min(left / whole, 1.0) if whole else 0.0 for left, whole in zip(after, before, strict=True)
    ]


def _plane_rates(
    topology: Topology, flows: Sequence[FlowRecord], dead: Collection[str]
) -> list[float]:
    nodes = topology.nodes
    ends = [(nodes[flow.src], nodes[flow.dst]) for flow in flows]
    rates = [0.0] * len(flows)
    for plane in range(topology.planes):
        alive = [
            (i, _t1s(topology, plane, src, dst, dead))
            for i, (src, dst) in enumerate(ends)
            if not {_nic(topology, src, plane).name, _nic(topology, dst, plane).name} & set(dead)
        ]
        load: dict[tuple[str, str], int] = {}
        for i, t1s in alive:
            for key in _crossed(topology, ends[i], plane, t1s):
                load[key] = load.get(key, 0) + 1
        for i, t1s in alive:
            src, dst = ends[i]
            ports = max(load[src.name, "out"], load[dst.name, "in"])
            rate = float(topology.port_rate_bps) / ports
            if t1s is not None:
                rate = min(rate, _fabric_share(topology, ends[i], plane, t1s, load))
            rates[i] += rate
    return rates


def _t1s(
    topology: Topology, plane: int, src: Node, dst: Node, dead: Collection[str]
) -> list[int] | None:
    racks = {topology.rack(src), topology.rack(dst)}
    if len(racks) == 1:
        return None
    return [
        t1
        for t1 in range(topology.t1_per_plane)
        if not any(topology.fabric_link(plane, rack, t1).name in dead for rack in racks)
    ]


def _nic(topology: Topology, host: Node, plane: int) -> Link:
    return topology.adjacency[host][plane][2]


def _crossed(
    topology: Topology, ends: tuple[Node, Node], plane: int, t1s: list[int] | None
) -> list[tuple[str, str]]:
    """The link directions that a flow may load: NIC ports by host, fabric links by name."""
    src, dst = ends
    keys = [(src.name, "out"), (dst.name, "in")]
    for t1 in t1s or ():
        keys.append((topology.fabric_link(plane, topology.rack(src), t1).name, "up"))
        keys.append((topology.fabric_link(plane, topology.rack(dst), t1).name, "down"))
    return keys


def _fabric_share(
    topology: Topology,
    ends: tuple[Node, Node],
    plane: int,
    t1s: list[int],
    load: dict[tuple[str, str], int],
) -> float:
    share = 0.0
    for t1 in t1s:
        up = topology.fabric_link(plane, topology.rack(ends[0]), t1)
        down = topology.fabric_link(plane, topology.rack(ends[1]), t1)
        users = max(load[up.name, "up"], load[down.name, "down"])
        share += topology.rate_bps(up) / users
    return share
