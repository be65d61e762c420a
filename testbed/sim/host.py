"""A host in virtual time: its ports, how its packets go, and when its queue pairs get a turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from testbed.host.operator import Answer
from testbed.host.plan import EndpointPlan
from testbed.host.queue_pairs import sans_io_stack
from testbed.host.recording import Tables
from testbed.host.rounds import PortScheduler, Rounds
from testbed.host.traffic import Traffic
from testbed.host.workloads.messages import Block
from testbed.model.fabric.addressing import path_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.operator.commands import Command
from testbed.mrc import NEVER, Arrival, Datagram
from testbed.mrc.wire.datagram import new
from testbed.sim.engine import Engine, Event
from testbed.sim.fabric import Fabric
from testbed.sim.link import Deliver, Hop, Packet


class Receiver(Protocol):
    """A host, as others send to it."""

    @property
    def node(self) -> Node: ...

    @property
    def deliver(self) -> Deliver:
        """Receives what comes out of the fabric."""
        ...


@dataclass(frozen=True, slots=True)
class _Destination:
    """How an EV leads to a peer: the sending port, the route, the function that receives there."""

    plane: int
    route: tuple[Hop, ...]
    deliver: Deliver


class Egress:
    """Hands the packets of one host to the fabric.

    Attributes:
        ports: the schedule of its ports.
    """

    def __init__(
        self,
        topology: Topology,
        host: Node,
        engine: Engine,
        fabric: Fabric,
        receivers: Mapping[bytes, Receiver],
        round_ns: int,
    ) -> None:
        """Begin with idle ports.

        Args:
            topology: the fabric's.
            host: which host this is.
            engine: the virtual time.
            fabric: its links.
            receivers: finds each host by its NIC address.
            round_ns: the time from one round of sending to the next.
        """
        self.ports: Final = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, round_ns
        )
        self._topology = topology
        self._host = host
        self._engine = engine
        self._fabric = fabric
        self._receivers = receivers
        self._destinations: dict[tuple[bytes, int], _Destination] = {}

    def send(self, datagram: Datagram, peer: bytes, now_ns: int) -> int:
        """Hand a packet to a port; returns the plane that it goes through."""
        destination = self._destinations.get((peer, datagram.ev))
        if destination is None:
            destination = self._add_destination(peer, datagram.ev)
        route = destination.route
        packet = Packet(datagram, route, destination.deliver)
        wait_ns = self.ports.sent(destination.plane, packet.size, now_ns)
        transmission = datagram.transmission
        if transmission is not None:
            transmission.set_port_wait(wait_ns)
        route[0].offer(now_ns, packet)
        return destination.plane

    def _add_destination(self, peer: bytes, ev: int) -> _Destination:
        receiver = self._receivers[peer]
        path = path_of_ev(self._topology, self._host, receiver.node, ev)
        route = self._fabric.route(self._host, receiver.node, path)
        deliver = self._held_back(receiver.deliver, self._fabric.held_back_ns(len(route)))
        destination = self._destinations[peer, ev] = _Destination(path.plane, route, deliver)
        return destination

    def _held_back(self, deliver: Deliver, delay_ns: int) -> Deliver:
        """A function that delivers a packet `delay_ns` after it came out of the fabric."""
        if delay_ns == 0:
            return deliver
        engine = self._engine

        def hold(now_ns: int, packet: Packet) -> None:
            engine.at(now_ns + delay_ns, deliver, packet)

        return hold


SIMULATED_ROUNDS_PER_RTT: Final = 24
"""Rounds of a host per base RTT, at most (the emulation: 40): a round costs as much as a packet."""


class Host(Event):
    """One host's ports and what sends through them. As an event it is the host's next round.

    It does what the emulation's endpoint does, in the same order. But the core gets each arrival at
    its exact time, not in rounds.

    Attributes:
        traffic: its queue pairs.
        deliver: receives what comes out of the fabric: `receive`, or a test's function before it.
        egress: its ports.
    """

    def __init__(
        self,
        plan: EndpointPlan,
        block: Block,
        engine: Engine,
        fabric: Fabric,
        hosts: Mapping[bytes, Receiver],
        tables: Tables,
    ) -> None:
        """Set up every queue pair. `hosts` finds each host by its NIC address."""
        topology = plan.scenario.topology
        self.plan = plan
        self.deliver: Deliver = self.receive
        round_ns = max(topology.propagation_rtt_ns // SIMULATED_ROUNDS_PER_RTT, 1)
        self.egress = Egress(topology, plan.host, engine, fabric, hosts, round_ns)
        stack = sans_io_stack(plan, self.egress.ports, tables)
        self.traffic = Traffic(plan, stack, block, tables, self.egress.send, engine.now_ns)
        self._sealed = plan.sealed
        self._engine = engine
        self._rounds = Rounds(self.traffic, self.egress.ports, round_ns)
        self._wake_ns = NEVER

    @property
    def node(self) -> Node:
        return self.plan.host

    # --- the workload -------------------------------------------------------------------------

    def begin(self, now_ns: int, _: object) -> None:
        self.traffic.begin(now_ns)
        self.wake(now_ns)

    def end(self, now_ns: int, _: object) -> None:
        """Post no more messages, and carry out no more commands."""
        self.traffic.operator.end_at(now_ns)
        self.traffic.end()
        self.wake(now_ns)

    def port_changed(self, now_ns: int, plane: int, *, up: bool) -> None:
        """Act on the loss or the return of the carrier of the port of a plane."""
        self.traffic.port_changed(plane, up=up, now_ns=now_ns)
        self.wake(now_ns)

    def set_busy(self, state: Mapping[str, Any]) -> None:
        """Apply a fault `busy`."""
        self.traffic.set_busy(state)
        self.wake(self._engine.now_ns)

    @property
    def refused_busy(self) -> int:
        return self.traffic.refused_busy

    def deny(self, directions: frozenset[str]) -> None:
        """Avoid the EVs that cross these link directions."""
        self.traffic.operator.deny_crossing(directions, self._engine.now_ns)
        self.wake(self._engine.now_ns)

    def operate(self, command: Command, answer: Answer) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""
        self.traffic.operator.handle(command, self._engine.now_ns, answer)
        self.wake(self._engine.now_ns)

    # --- receiving ----------------------------------------------------------------------------

    def receive(self, now_ns: int, packet: Packet) -> None:
        arrival = new(Arrival, (packet.ecn, packet.dscp, now_ns))
        if packet.trimmed or packet.flips or self._sealed:
            self.traffic.receive(memoryview(packet.inner()), arrival)
        else:
            self.traffic.receive_undamaged(packet.datagram, arrival)
        self.wake(now_ns)

    # --- rounds -------------------------------------------------------------------------------

    def wake(self, now_ns: int) -> None:
        """Have a round as soon as one may be."""
        ready_ns = self._rounds.ready_ns
        if ready_ns < self._wake_ns:
            self._wake_at(max(now_ns, ready_ns))

    def _wake_at(self, at_ns: int) -> None:
        if at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._engine.schedule(at_ns, self)

    def happen(self, now_ns: int) -> None:
        """Have a round: handle completions, post, send what is due, record."""
        if now_ns != self._wake_ns:
            return  # an earlier round has been scheduled since this one was
        self._wake_ns = NEVER
        self.traffic.work(now_ns)
        self._rounds.send(now_ns)
        self._wake_at(self._rounds.next_ns(now_ns))
