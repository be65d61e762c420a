"""What a host does whatever carries its packets: queue pairs, the workload's program, records.

The emulation's endpoint (process.py) and the simulator's host (sim/host.py) both drive a `Traffic`.
It is handed packets and times; what it sends goes to the function that it was given.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from testbed.host.plan import EndpointPlan, QpPlan
from testbed.host.queue_pairs import ReliableQp, Stack, reroute
from testbed.host.recording import Tables
from testbed.host.rounds import Load
from testbed.model.fabric.addressing import Path, directions_of_path, nic_address, path_of_ev
from testbed.model.fabric.topology import ETHERNET_HEADER, PAYLOAD_MTU
from testbed.mrc import (
    NEVER,
    Arrival,
    Datagram,
    EvChanged,
    Event,
    Lost,
    MemoryTable,
    MessageDelivered,
    Placed,
    QueuePair,
    Spurious,
)
from testbed.workloads.messages import Checker, Sender, Slots
from testbed.workloads.pattern import Block, Pattern
from testbed.workloads.program import End
from testbed.workloads.programs import program_of

_OUTER_BYTES: Final = ETHERNET_HEADER + 40

SAMPLES_PER_RTT: Final = 16
"""Samples of the state of each queue pair per base RTT."""

Launch = Callable[[Datagram, bytes, int], int]
"""Sends a datagram to the NIC of that address at that time; returns the plane that it takes."""


def slot_bytes(longest: int) -> int:
    """The size of a message's slot: the longest message, or a packet to measure the RTT with."""
    return max(longest, PAYLOAD_MTU)


@dataclass(slots=True)
class Connection:
    """One queue pair with what drives it and what watches it.

    Attributes:
        plan: what it was made from.
        qp: the queue pair.
        peer: the NIC address of its other end.
        sender: posts its messages, if it sends.
        checker: checks what arrives, if it receives.
        planes: the plane of each of the peer's EVs seen so far.
        packets_sent: data packets, retransmissions included.
        packets_retransmitted: of these.
        packets_lost: taken for lost, but for those that arrived after all.
    """

    plan: QpPlan
    qp: ReliableQp
    peer: bytes
    sender: Sender | None
    checker: Checker | None
    planes: dict[int, int] = field(default_factory=dict)
    packets_sent: int = 0
    packets_retransmitted: int = 0
    packets_lost: int = 0


class Traffic(Load):
    """One host's queue pairs, what is posted to them, and what is written down about them.

    Attributes:
        connections: by queue pair number.
        senders: by the number of their flow.
        control_bytes: of control packets sent while the workload was on, on the wire.
    """

    def __init__(
        self,
        plan: EndpointPlan,
        stack: Stack,
        block: Block,
        tables: Tables,
        launch: Launch,
        now_ns: int,
    ) -> None:
        """Open every queue pair. `block` is what all messages of the run are cut from."""
        self._plan = plan
        self._stack = stack
        self._tables = tables
        self._launch = launch
        self._demux = stack.demux
        self._memory = MemoryTable()
        self._block = block
        self._slots = Slots(slot_bytes(plan.longest_bytes), plan.workload.depth)
        self.connections = {qp.qpn: self._connect(qp, now_ns) for qp in plan.qps}
        self._turns = list(self.connections.values())
        self.senders = {one.sender.flow: one.sender for one in self._turns if one.sender}
        self._program = program_of(
            plan.workload,
            plan.topology,
            plan.host.name,
            [End(qp.sends, qp.peer.name, qp.lane) for qp in plan.qps if qp.sends is not None],
            [End(qp.receives, qp.peer.name, qp.lane) for qp in plan.qps if qp.receives is not None],
        )
        self._begun = self._running = False
        self._written_off: frozenset[str] = frozenset()
        self._moves: list[tuple[int, int, Path]] = []
        self.control_bytes = 0

    def _connect(self, qp: QpPlan, now_ns: int) -> Connection:
        plan, slots = self._plan, self._slots
        opened = self._stack.open_qp(qp, self._memory)
        self._demux.add(opened)
        sender = checker = None
        if qp.sends is not None:
            sender = Sender(opened, qp.sends, slots, Pattern(self._block, qp.sends))
            for ev in qp.evs:
                self._tables.ev_events(
                    now_ns, qp.sends, ev.path.plane, ev.value, "", "GOOD", ev.active, "start"
                )
        if qp.receives is not None:
            region = slots.region(qp.receives)
            self._memory.register(region)
            checker = Checker(qp.receives, region, Pattern(self._block, qp.receives))
        peer = nic_address(plan.topology, qp.peer).packed
        return Connection(qp, opened, peer, sender, checker)

    # --- the workload -------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """Start the workload."""
        self._begun = self._running = True
        self._moves = sorted(
            (
                (now_ns + move.at_ns, connection.plan.qpn, move.path)
                for connection in self._turns
                for move in connection.plan.moves
            ),
            reverse=True,
        )
        self._program.begin(now_ns)

    def end(self) -> None:
        """Post no more."""
        self._running = False

    def work(self, now_ns: int) -> None:
        """Move what routing moves, take in what has completed, post what the program wants."""
        while self._moves and self._moves[-1][0] <= now_ns:
            _, qpn, path = self._moves.pop()
            reroute(self.connections[qpn].qp, path, now_ns)
        for connection in self._turns:
            self._reap(connection, now_ns)
        if self._running:
            for post in self._program.posts(now_ns):
                self.senders[post.flow].post(post.size, immediate=post.immediate)
        if self._program.finished:
            self._record_operations()

    def _reap(self, connection: Connection, now_ns: int) -> None:
        sender, checker, qp = connection.sender, connection.checker, connection.qp
        if sender is not None:
            for completion in qp.poll_cq():
                if sender.complete(completion) and self._begun:
                    self._program.completed(sender.flow, now_ns)
        if checker is not None:
            for _ in qp.poll_recv_cq():
                self._program.received_immediate(checker.flow)

    def write_off(self, hosts: Collection[str]) -> None:
        """Wait no more for messages to these hosts: their endpoints have been killed."""
        self._written_off = frozenset(hosts)

    @property
    def idle(self) -> bool:
        """Whether every message posted has completed or failed, or is written off."""
        return all(
            one.sender is None
            or one.sender.idle
            or one.sender.failed
            or one.plan.peer.name in self._written_off
            for one in self._turns
        )

    def deny(self, directions: frozenset[str], now_ns: int) -> None:
        """Have MRC avoid every EV whose path crosses one of these link directions, and no other."""
        topology, host = self._plan.topology, self._plan.host
        for connection in self._turns:
            plan, qp = connection.plan, connection.qp
            if isinstance(qp, QueuePair):
                crossing = frozenset(
                    ev.value
                    for ev in plan.evs
                    if directions.intersection(
                        directions_of_path(topology, host, plan.peer, ev.path)
                    )
                )
                qp.set_denied_evs(crossing, now_ns)

    # --- packets ------------------------------------------------------------------------------

    def receive(self, packet: memoryview, arrival: Arrival) -> None:
        """Take in an inner packet, whatever it is."""
        answer = self._demux.receive(packet, arrival)
        if answer is not None:
            self._launch(answer.datagram, answer.peer, arrival.rx_ns)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """The host's own port of a plane lost its carrier, or has it again."""
        for connection in self._turns:
            qp = connection.qp
            if isinstance(qp, QueuePair):
                qp.port_changed(plane, up=up, now_ns=now_ns)

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due: control packets at once, data as there is room for full packets.

        A round begins with another queue pair each time. Returns the room that is left.

        What the core did is written down once a round, after sending: a slot of the receiver's
        memory is not written again before the peer has heard that its message is complete, so the
        checker never comes too late.
        """
        turns = self._turns
        for connection in turns:
            room -= self._send(connection, now_ns, room)
            self._observe(connection)
        if len(turns) > 1:
            turns.append(turns.pop(0))
        return room

    def _send(self, connection: Connection, now_ns: int, room: int) -> int:
        """Send what is due of one queue pair; returns how many data packets."""
        launch, peer, flow = self._launch, connection.peer, connection.plan.sends
        sent: list[tuple[int, ...]] = []
        control_bytes = data = 0
        for datagram in connection.qp.transmit(now_ns, room):
            plane = launch(datagram, peer, now_ns)
            ev, _, header, payload, trailer, seq, retransmitted, _, _ = datagram
            if seq is None:
                control_bytes += _OUTER_BYTES + len(header) + len(trailer)
                continue
            data += 1
            if flow is not None:
                sent.append((now_ns, flow, plane, ev, seq, len(payload), retransmitted))
                connection.packets_retransmitted += retransmitted
        if sent:
            connection.packets_sent += len(sent)
            self._tables.transmissions(sent)
        if self._running:
            self.control_bytes += control_bytes
        return data

    def deadline_ns(self, now_ns: int, *, full: bool) -> int:
        """When to come back even if nothing arrives; `full` ports leave what is due now waiting."""
        wake_ns = self._program.wake_ns if self._running else NEVER
        if self._moves:
            wake_ns = min(wake_ns, self._moves[-1][0])
        for connection in self._turns:
            deadline_ns = connection.qp.next_deadline()
            if (
                deadline_ns is not None
                and deadline_ns < wake_ns
                and (deadline_ns > now_ns or not full)
            ):
                wake_ns = deadline_ns
        return wake_ns

    def report(self) -> dict[str, Any]:
        """What became of every flow that begins or ends here, and what else was counted."""
        sent, received = [], []
        for connection in self.connections.values():
            sender, checker = connection.sender, connection.checker
            if sender is not None:
                sent.append(
                    {
                        "flow": sender.flow,
                        "bytes_sent": sender.bytes_posted,
                        "bytes_completed": sender.bytes_completed,
                        "bytes_under_way": sender.bytes_under_way,
                        "errors": sender.failed,
                        "packets_sent": connection.packets_sent,
                        "packets_lost": connection.packets_lost,
                        "packets_retransmitted": connection.packets_retransmitted,
                    }
                )
            if checker is not None:
                received.append(
                    {
                        "flow": checker.flow,
                        "bytes_verified": checker.bytes_verified,
                        "bytes_corrupted": checker.bytes_corrupted,
                    }
                )
        return {
            "sent": sent,
            "received": received,
            "control_bytes": self.control_bytes,
            "refused": {reason: count for reason, count in self._demux.refused().items() if count},
        }

    # --- records ------------------------------------------------------------------------------

    def sample(self, now_ns: int) -> None:
        """Record the state of every queue pair that sends."""
        for connection in self._turns:
            flow, qp = connection.plan.sends, connection.qp
            if flow is not None:
                self._tables.qp(now_ns, flow, qp.congestion.window, qp.flight, qp.rtt.smoothed_ns)

    def _record_operations(self) -> None:
        for one in self._program.finished:
            self._tables.operations(
                one.end_ns,
                one.start_ns,
                self._plan.host.name,
                one.kind,
                one.number,
                one.size,
                one.hosts,
            )
        self._program.finished.clear()

    def _observe(self, connection: Connection) -> None:
        flow, planes = connection.plan.receives, connection.planes
        arrived: list[tuple[int, ...]] = []
        for event in connection.qp.events():
            if not isinstance(event, Placed):
                self._observe_rarer(connection, event)
            elif flow is not None:
                seq, ev, size, retransmitted, time_ns = event
                plane = planes.get(ev)
                if plane is None:
                    plane = self._plane(connection, ev)
                arrived.append((time_ns, flow, plane, ev, seq, size, retransmitted))
        if arrived:
            self._tables.arrivals(arrived)

    def _plane(self, connection: Connection, ev: int) -> int:
        path = path_of_ev(self._plan.topology, connection.plan.peer, self._plan.host, ev)
        connection.planes[ev] = path.plane
        return path.plane

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
