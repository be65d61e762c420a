"""The Clustermapper in virtual time: probes over the simulated fabric."""

from collections.abc import Callable
from itertools import pairwise
from typing import Self

from testbed.host.recording import Recorders
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.mapper.prober import Probe, ProbePath
from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.mrc import Datagram, DscpClasses
from testbed.results.records import FINDINGS, PROBES
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.link import LinkDirection, Packet

PROBE_BYTES = 24
"""UDP header and content of a probe in bytes, as in the emulation."""


class SimulatedAgents:
    """Sends the probes of all hosts, and receives those that arrive undamaged."""

    def __init__(
        self,
        topology: Topology,
        engine: Engine,
        fabric: Fabric,
        mapper: Clustermapper,
        deny: Callable[[frozenset[str]], None],
    ) -> None:
        """Schedule the first probe; call `deny` with the accused directions when they change."""
        self._topology = topology
        self._engine = engine
        self._fabric = fabric
        self._mapper = mapper
        self._deny = deny
        self._dscp = DscpClasses().control
        self._routes: dict[ProbePath, tuple[LinkDirection, ...]] = {}
        engine.at(mapper.prober.due_ns, self._round)

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        engine: Engine,
        fabric: Fabric,
        recorders: Recorders,
        deny: Callable[[frozenset[str]], None],
        t0_ns: int,
    ) -> Self | None:
        """Those of a scenario, which probe from a time on; None if it has no Clustermapper."""
        settings = scenario.clustermapper
        if settings is None:
            return None
        period_ns = settings.period_ns(scenario.topology)
        mapper = Clustermapper(
            MapperPlan(scenario.topology, period_ns, scenario.seed),
            t0_ns,
            recorders.open("mapper", PROBES).append,
            recorders.open("mapper", FINDINGS).append,
        )
        denies = deny if settings.denylist else lambda _: None
        return cls(scenario.topology, engine, fabric, mapper, denies)

    def _round(self, now_ns: int, _: object) -> None:
        if self._mapper.judge(now_ns):
            self._deny(self._mapper.denied_directions)
        for probe in self._mapper.prober.take_due(now_ns):
            self._send(now_ns, probe)
        self._engine.at(self._mapper.prober.due_ns, self._round)

    def _send(self, now_ns: int, probe: Probe) -> None:
        route = self._routes.get(probe.path)
        if route is None:
            route = self._routes[probe.path] = self._route(probe.path)
        content = probe.number.to_bytes(PROBE_BYTES, "big")
        packet = Packet(Datagram(0, self._dscp, content, b"", b""), route, self._deliver)
        route[0].offer(now_ns, packet)

    def _route(self, path: ProbePath) -> tuple[LinkDirection, ...]:
        return tuple(
            self._fabric.direction(link, port)
            for near, far in pairwise(path.nodes)
            for port, end, link in self._topology.adjacency[near]
            if end.node == far and link.plane == path.plane
        )

    def _deliver(self, _now_ns: int, packet: Packet) -> None:
        if not packet.flips:
            self._mapper.prober.arrived(int.from_bytes(packet.datagram.header, "big"))
