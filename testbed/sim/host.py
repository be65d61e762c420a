"""One host in virtual time: its ports, and when its queue pairs get a turn.

It does what the emulation's endpoint process does (testbed/endpoint/process.py) and in the same
order, but that an arrival reaches the core at its very time. Rounds are not closer together than a
small part of the RTT, as there: much of what a core costs is the round, not the packet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from testbed.host.plan import EndpointPlan
from testbed.host.port_scheduler import PortScheduler
from testbed.host.queue_pairs import sans_io_stack
from testbed.host.recording import Tables
from testbed.host.traffic import Traffic
from testbed.model.fabric.addressing import path_of_ev
from testbed.mrc import NEVER, Arrival, Datagram
from testbed.sim.engine import Engine, Event
from testbed.sim.fabric import Fabric
from testbed.sim.link import LinkDirection
from testbed.sim.packet import Packet
from testbed.workloads.pattern import Block

TICKS_PER_RTT: Final = 24
"""Rounds of a host in a base RTT at most (the emulation: 40): a round costs as much as a packet."""

BINS_PER_RTT = 16
"""Samples of a queue pair's state in a base RTT."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Where an EV leads to one peer."""

    plane: int
    route: tuple[LinkDirection, ...]
    deliver: Callable[[int, Packet], None]


class Host(Event):
    """One host's ports, and what sends through them. What happens to it is a round.

    Attributes:
        traffic: its queue pairs.
        deliver: takes in what comes out of the fabric: `receive`, or what stands before it.
        launched: packets handed to the fabric.
        arrived: whole packets that came out of it.
        arrived_trimmed: trimmed ones.
    """

    def __init__(
        self,
        plan: EndpointPlan,
        block: Block,
        engine: Engine,
        fabric: Fabric,
        hosts: dict[bytes, "Host"],
        tables: Tables,
    ) -> None:
        """Set up every queue pair. `hosts` finds each host by its NIC address."""
        topology = plan.topology
        self.plan = plan
        self.deliver: Callable[[int, Packet], None] = self.receive
        self.traffic = Traffic(
            plan, sans_io_stack(plan), block, tables, self._launch, engine.now_ns
        )
        self._engine = engine
        self._fabric = fabric
        self._hosts = hosts
        self._tick_ns = max(topology.propagation_rtt_ns // TICKS_PER_RTT, 1)
        self._ports = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, self._tick_ns
        )
        self._ways: dict[tuple[bytes, int], _Way] = {}
        self._last_round_ns = -self._tick_ns
        self._wake_ns = NEVER
        self.launched = self.arrived = self.arrived_trimmed = 0

    # --- the workload -------------------------------------------------------------------------

    def begin(self, now_ns: int, _: object) -> None:
        """Start the workload."""
        self.traffic.begin(now_ns)
        self.wake(now_ns)

    def end(self, now_ns: int, _: object) -> None:
        """Post no more."""
        self.traffic.end()
        self.wake(now_ns)

    def port_changed(self, now_ns: int, plane: int, *, up: bool) -> None:
        """The port of a plane lost its carrier, or has it again."""
        self.traffic.port_changed(plane, up=up, now_ns=now_ns)
        self.wake(now_ns)

    def deny(self, directions: frozenset[str]) -> None:
        """Avoid the EVs that cross these link directions."""
        self.traffic.deny(directions, self._engine.now_ns)
        self.wake(self._engine.now_ns)

    # --- receiving ----------------------------------------------------------------------------

    def receive(self, now_ns: int, packet: Packet) -> None:
        """Take in a packet at the end of its route."""
        if packet.trimmed:
            self.arrived_trimmed += 1
        else:
            self.arrived += 1
        arrival = Arrival(packet.ecn, packet.dscp, now_ns)
        self.traffic.receive(memoryview(packet.inner()), arrival)
        self.wake(now_ns)

    def deliver_after(self, delay_ns: int) -> Callable[[int, Packet], None]:
        """What takes in a packet so long after it has come."""
        if delay_ns == 0:
            return self.deliver
        engine = self._engine

        def hold(now_ns: int, packet: Packet) -> None:
            engine.at(now_ns + delay_ns, self.deliver, packet)

        return hold

    # --- rounds -------------------------------------------------------------------------------

    def wake(self, now_ns: int) -> None:
        """Have a round as soon as one may be."""
        self._wake_at(max(now_ns, self._last_round_ns + self._tick_ns))

    def _wake_at(self, at_ns: int) -> None:
        if at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._engine.schedule(at_ns, self)

    def happen(self, now_ns: int) -> None:
        """Reap, post, send what is due, write down what happened."""
        if now_ns != self._wake_ns:
            return  # an earlier round has been called for since this one was
        self._wake_ns = NEVER
        self._last_round_ns = now_ns
        self.traffic.work(now_ns)
        full = self.traffic.transmit(now_ns, self._ports.room(now_ns)) <= 0
        next_ns = self.traffic.deadline_ns(now_ns, full=full)
        if full:
            next_ns = min(next_ns, self._ports.next_room_ns(now_ns))
        if next_ns < NEVER:
            self._wake_at(max(next_ns, now_ns + self._tick_ns))

    def _launch(self, datagram: Datagram, peer: bytes, now_ns: int) -> int:
        """Hand a packet to a port; returns the plane that it goes through."""
        way = self._way(peer, datagram.ev)
        route = way.route
        packet = Packet(datagram, route, way.deliver)
        self.launched += 1
        wait_ns = self._ports.sent(way.plane, packet.size, now_ns)
        transmission = datagram.transmission
        if transmission is not None:
            transmission.set_port_wait(wait_ns)
        route[0].offer(now_ns, packet)
        return way.plane

    def _way(self, peer: bytes, ev: int) -> _Way:
        way = self._ways.get((peer, ev))
        if way is None:
            host = self._hosts[peer]
            src, dst = self.plan.host, host.plan.host
            plane = path_of_ev(self.plan.topology, src, dst, ev).plane
            route = self._fabric.route(src, dst, ev)
            way = _Way(plane, route, host.deliver_after(self._fabric.held_back_ns(len(route))))
            self._ways[peer, ev] = way
        return way
