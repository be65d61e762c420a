"""One host in virtual time: its queue pairs, its ports, what it records.

It does what the emulation's endpoint process does (testbed/endpoint/process.py) and in the same
order, with two differences: an arrival reaches the core at its very time, and a round of sending
begins with another queue pair each time. Rounds are not closer together than a small part of the
RTT, as there: much of what a core costs is the round, not the packet.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.endpoint.plan import EndpointPlan, QpPlan
from testbed.endpoint.port_scheduler import PortScheduler
from testbed.endpoint.queue_pairs import open_queue_pair
from testbed.model.addressing import nic_address, path_of_ev
from testbed.model.topology import PAYLOAD_MTU
from testbed.mrc import (
    Arrival,
    Datagram,
    DecodeError,
    DscpClasses,
    EndpointRequest,
    EvChanged,
    Event,
    Lost,
    MemoryTable,
    MessageDelivered,
    Placed,
    QueuePair,
    Spurious,
    decode,
    respond,
)
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.link import NEVER, LinkDirection
from testbed.sim.packet import OUTER_BYTES, Packet
from testbed.workloads.pattern import Pattern
from testbed.workloads.write_bw import Checker, Sender, Slots

TICKS_PER_RTT = 64
"""Rounds of a host in a base RTT at most."""

LEAD_PACKETS = 2
"""Full packets handed to a port ahead of its line rate, as in the emulation."""

BINS_PER_RTT = 16
"""Samples of a queue pair's state in a base RTT."""

_Append = Callable[..., None]


class Tables:
    """The recorders of one host; with no directory they record nothing."""

    def __init__(self, directory: Path | None, host: str) -> None:
        """Create the raw files."""
        self._files = ExitStack()

        def appender(table: records.Table) -> _Append:
            if directory is None:
                return _forget
            return self._files.enter_context(
                Recorder(raw_path(directory, host, table), table)
            ).append

        self.arrivals = appender(records.ARRIVALS)
        self.transmissions = appender(records.TRANSMISSIONS)
        self.losses = appender(records.LOSSES)
        self.ev_events = appender(records.EV_EVENTS)
        self.qp = appender(records.QP)
        self.completions = appender(records.COMPLETIONS)

    def __enter__(self) -> Self:
        """Return the tables themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every file."""
        self._files.close()


def _forget(*_: int | str) -> None:
    pass


@dataclass(slots=True)
class Connection:
    """One queue pair with what drives it and what watches it."""

    plan: QpPlan
    qp: QueuePair
    peer: bytes
    sender: Sender | None
    checker: Checker | None
    packets_sent: int = 0
    packets_retransmitted: int = 0
    packets_lost: int = 0


@dataclass(frozen=True, slots=True)
class _Way:
    """Where an EV leads to one peer."""

    plane: int
    route: tuple[LinkDirection, ...]
    host: "Host"


class Host:
    """One host's queue pairs and ports.

    Attributes:
        connections: by queue pair number.
        control_bytes: of control packets sent while the workload ran, on the wire.
        decode_errors: arrivals that were not packets of MRC, corrupted ones above all.
        strays: arrivals for queue pairs that do not exist.
        launched: packets handed to the fabric.
        arrived: whole packets that came out of it.
        arrived_trimmed: trimmed ones.
    """

    def __init__(
        self,
        plan: EndpointPlan,
        engine: Engine,
        fabric: Fabric,
        hosts: dict[bytes, "Host"],
        tables: Tables,
    ) -> None:
        """Set up every queue pair. `hosts` finds each host by its NIC address."""
        topology = plan.topology
        self.plan = plan
        self._engine = engine
        self._fabric = fabric
        self._hosts = hosts
        self._tables = tables
        self._dscp = DscpClasses()
        self._ports = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, LEAD_PACKETS
        )
        self._tick_ns = max(topology.propagation_rtt_ns // TICKS_PER_RTT, 1)
        self._memory = MemoryTable()
        self.connections = {qp.qpn: self._connect(qp) for qp in plan.qps}
        self._turns = list(self.connections.values())
        self._ways: dict[tuple[bytes, int], _Way] = {}
        self._last_round_ns = -self._tick_ns
        self._wake_ns = NEVER
        self._workload = False
        self.control_bytes = self.decode_errors = self.strays = 0
        self.launched = self.arrived = self.arrived_trimmed = 0

    def _connect(self, plan: QpPlan) -> Connection:
        topology, host = self.plan.topology, self.plan.host
        peer = nic_address(topology, plan.peer).packed
        qp = open_queue_pair(topology, host, plan, self._memory)
        slots = Slots(max(plan.message_size, PAYLOAD_MTU), plan.depth)
        sender = checker = None
        if plan.sends is not None:
            sender = Sender(qp, plan.sends, slots, Pattern(plan.sends, plan.seed, slots.size))
            for ev in plan.evs:
                self._tables.ev_events(
                    0, plan.sends, ev.path.plane, ev.value, "", "GOOD", ev.active, "start"
                )
        if plan.receives is not None:
            region = slots.region(plan.receives)
            self._memory.register(region)
            checker = Checker(plan.receives, region, Pattern(plan.receives, plan.seed, slots.size))
        return Connection(plan, qp, peer, sender, checker)

    # --- the workload -------------------------------------------------------------------------

    def set_workload(self, now_ns: int, running: object) -> None:
        """Keep WRITEs outstanding from now on, or post no more."""
        self._workload = bool(running)
        self.wake(now_ns)

    @property
    def idle(self) -> bool:
        """Whether every WRITE posted has completed or failed."""
        return all(
            connection.sender is None or connection.sender.idle or connection.sender.failed
            for connection in self._turns
        )

    def sample(self, now_ns: int) -> None:
        """Record the state of every queue pair that sends."""
        for connection in self._turns:
            if connection.plan.sends is not None:
                qp = connection.qp
                self._tables.qp(
                    now_ns,
                    connection.plan.sends,
                    qp.congestion.window,
                    qp.flight,
                    qp.rtt.smoothed_ns,
                )

    # --- receiving ----------------------------------------------------------------------------

    def receive(self, now_ns: int, packet: Packet) -> None:
        """Take in a packet at the end of its route."""
        if packet.trimmed:
            self.arrived_trimmed += 1
        else:
            self.arrived += 1
        try:
            decoded = decode(memoryview(packet.inner()), trimmed=packet.trimmed)
        except DecodeError:
            self.decode_errors += 1
            return
        if isinstance(decoded, EndpointRequest):
            self._launch(respond(decoded, self._dscp), decoded.source, now_ns)
            return
        connection = self.connections.get(decoded.qpn)
        if connection is None or decoded.source != connection.peer:
            self.strays += 1
            return
        connection.qp.receive(decoded, Arrival(packet.ecn, packet.dscp, now_ns))
        self.wake(now_ns)

    # --- rounds -------------------------------------------------------------------------------

    def wake(self, now_ns: int) -> None:
        """Have a round as soon as one may be."""
        self._wake_at(max(now_ns, self._last_round_ns + self._tick_ns))

    def _wake_at(self, at_ns: int) -> None:
        if at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._engine.at(at_ns, self._round)

    def _round(self, now_ns: int, _: object) -> None:
        """Reap, post, send what is due, write down what happened."""
        if now_ns != self._wake_ns:
            return  # an earlier round has been called for since this one was
        self._wake_ns = NEVER
        self._last_round_ns = now_ns
        turns = self._turns
        for connection in turns:
            sender = connection.sender
            if sender is not None:
                sender.reap()
                if self._workload:
                    sender.fill(connection.plan.message_size)
        room = self._ports.room(now_ns)
        for connection in turns:
            for datagram in connection.qp.transmit(now_ns, room):
                plane = self._launch(datagram, connection.peer, now_ns)
                if datagram.seq is not None:
                    room -= 1
                self._record_sent(connection, datagram, plane, now_ns)
            self._observe(connection)
        if len(turns) > 1:
            turns.append(turns.pop(0))
        self._call_next(now_ns, full=room <= 0)

    def _call_next(self, now_ns: int, *, full: bool) -> None:
        next_ns = self._ports.next_room_ns(now_ns) if full else NEVER
        for connection in self._turns:
            deadline_ns = connection.qp.next_deadline()
            if deadline_ns is not None and (deadline_ns > now_ns or not full):
                next_ns = min(next_ns, deadline_ns)
        if next_ns < NEVER:
            self._wake_at(max(next_ns, now_ns + self._tick_ns))

    def _launch(self, datagram: Datagram, peer: bytes, now_ns: int) -> int:
        """Hand a packet to a port; returns the plane that it goes through."""
        way = self._way(peer, datagram.ev)
        route = way.route
        packet = Packet(datagram, route, way.host.receive)
        self.launched += 1
        self._ports.sent(way.plane, packet.size, now_ns)
        route[0].offer(now_ns, packet)
        return way.plane

    def _way(self, peer: bytes, ev: int) -> _Way:
        way = self._ways.get((peer, ev))
        if way is None:
            host = self._hosts[peer]
            src, dst = self.plan.host, host.plan.host
            plane = path_of_ev(self.plan.topology, src, dst, ev).plane
            way = _Way(plane, self._fabric.route(src, dst, ev), host)
            self._ways[peer, ev] = way
        return way

    # --- records ------------------------------------------------------------------------------

    def _record_sent(
        self, connection: Connection, datagram: Datagram, plane: int, now_ns: int
    ) -> None:
        flow = connection.plan.sends
        if datagram.seq is None or flow is None:
            if self._workload:
                self.control_bytes += OUTER_BYTES + len(datagram.header) + len(datagram.trailer)
            return
        connection.packets_sent += 1
        connection.packets_retransmitted += datagram.retransmitted
        self._tables.transmissions(
            now_ns,
            flow,
            plane,
            datagram.ev,
            datagram.seq,
            len(datagram.payload),
            datagram.retransmitted,
        )

    def _observe(self, connection: Connection) -> None:
        for event in connection.qp.events():
            if isinstance(event, Placed):
                flow = connection.plan.receives
                if flow is not None:
                    self._tables.arrivals(
                        event.time_ns,
                        flow,
                        self._way(connection.peer, event.ev).plane,
                        event.ev,
                        event.seq,
                        event.size,
                        event.retransmitted,
                    )
            else:
                self._observe_rarer(connection, event)

    def _observe_rarer(self, connection: Connection, event: Event) -> None:
        plan, tables = connection.plan, self._tables
        match event:
            case MessageDelivered() if connection.checker is not None:
                tables.completions(
                    event.time_ns,
                    connection.checker.flow,
                    event.message,
                    event.length,
                    connection.checker.check(event),
                )
            case Lost() | Spurious() if plan.sends is not None:
                spurious = isinstance(event, Spurious)
                connection.packets_lost += -1 if spurious else 1
                tables.losses(
                    event.time_ns,
                    plan.sends,
                    event.plane,
                    event.ev,
                    event.seq,
                    event.sent_ns,
                    spurious,
                )
            case EvChanged() if plan.sends is not None:
                tables.ev_events(
                    event.time_ns,
                    plan.sends,
                    event.plane,
                    event.ev,
                    event.old,
                    event.new,
                    event.active,
                    event.reason,
                )
            case _:
                pass  # the other direction's events of a queue pair that is used one way
