"""The traffic of one host: its queue pairs, its part in the workload, and the records of both.

The emulation's endpoint (endpoint/process.py) and the simulator's host (sim/host.py) both drive a
`Traffic`. They hand it packets and times, and a function that sends.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from testbed.host.busy import PortRemap, refused_busy, set_busy
from testbed.host.operator import HostOperator
from testbed.host.plan import EndpointPlan, QpPlan
from testbed.host.qp_records import QpRecords
from testbed.host.queue_pairs import ReliableQp, Stack, mrc_of, reroute
from testbed.host.recording import Tables, control_log
from testbed.host.rounds import OUTER_BYTES
from testbed.host.workloads.messages import Block, Checker, Pattern, Sender, Slots
from testbed.host.workloads.programs import FlowEnd, Jobs, Part, program_of
from testbed.model.fabric.addressing import Path, nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.workload import Graphed
from testbed.mrc import (
    NEVER,
    Arrival,
    CompletionStatus,
    Datagram,
    EvChanged,
    Lost,
    MemoryTable,
    MessageDelivered,
    Outbound,
    QueuePair,
    Spurious,
)

SAMPLES_PER_RTT: Final = 16
"""Samples per base RTT: of the state of each queue pair, and of the switches' queues."""

Launch = Callable[[Datagram, bytes, int], int]
"""Sends a datagram to a NIC address at a time; returns the plane that it takes."""


def slot_bytes(longest: int) -> int:
    """The size of a message's slot: the longest message, or a packet to measure the RTT with."""
    return max(longest, PAYLOAD_MTU)


@dataclass(slots=True)
class Connection:
    """One queue pair with what posts to it and what checks its arrivals.

    Attributes:
        plan: the plan that the queue pair was made from.
        qp: the queue pair.
        mrc: the same if it is MRC's, else None.
        peer: the NIC address of its other end.
        sender: posts its messages, if it sends.
        checker: checks what arrives, if it receives.
        records: records what its core reports.
        timer_ns: when its queue pair has to do something even if no packet arrives.
        data_ns: when it has data to send, if there is room.
        unpolled: whether it had a turn since its completions were polled.
    """

    plan: QpPlan
    qp: ReliableQp
    mrc: QueuePair | None
    peer: bytes
    sender: Sender | None
    checker: Checker | None
    records: QpRecords
    timer_ns: int = 0
    data_ns: int = 0
    unpolled: bool = True

    @property
    def peer_node(self) -> Node:
        return self.plan.peer


class Traffic:
    """One host's queue pairs, what is posted to them, and what is recorded about them.

    Attributes:
        connections: by queue pair number.
        senders: by the number of their flow.
        demux: hands arrivals to its queue pairs.
        control_bytes: bytes of control packets on the wire while the workload ran.
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
        """Open every queue pair."""
        self._plan = plan
        self._stack = stack
        self.demux = stack.demux
        self._tables = tables
        self._launch = launch
        self._memory = MemoryTable()
        self._block = block
        self._slots = Slots(slot_bytes(plan.scenario.longest_bytes), plan.scenario.depth)
        self.connections = {qp.qpn: self._connect(qp, now_ns) for qp in plan.qps}
        self._turns = list(self.connections.values())
        senders = (connection.sender for connection in self._turns)
        self.senders = {sender.flow: sender for sender in senders if sender is not None}
        self._program = Jobs([*_parts(plan)])
        received = {end.peer: end.plan.receives for end in reversed(self._turns)}
        self._control = control_log(plan.scenario.topology, tables, received)
        self.operator = HostOperator(plan.scenario, plan.host, tables)
        for connection in self._turns:
            if connection.mrc is not None:
                self.operator.add(connection.mrc, connection.plan, now_ns)
        self._begun = self._running = False
        self._written_off: frozenset[str] = frozenset()
        self._moves: list[tuple[int, int, Path]] = []
        self._remap = PortRemap(plan.scenario.remap_delay_ns)
        self.control_bytes = 0

    def _connect(self, plan: QpPlan, now_ns: int) -> Connection:
        slots = self._slots
        qp = self._stack.open_qp(plan, self._memory)
        own = mrc_of(qp)
        self.demux.add(qp)
        sender = checker = None
        if plan.sends is not None:
            sender = Sender(qp, plan.sends, slots, Pattern(self._block, plan.sends))
            for ev in plan.evs:
                self._tables.ev_events(
                    now_ns, plan.sends, ev.path.plane, ev.value, "", "GOOD", ev.active, "start"
                )
        if plan.receives is not None:
            region = slots.region(plan.receives, copied=self._plan.sealed)
            self._memory.register(region)
            checker = Checker(plan.receives, region, Pattern(self._block, plan.receives))
            if own is not None:
                for wr_id in range(own.config.capabilities.immediates):
                    own.post_receive(wr_id)
        topology = self._plan.scenario.topology
        peer = nic_address(topology, plan.peer).packed
        ends = self._plan.host, plan.peer
        records = QpRecords(self._tables, topology, ends, plan.sends, plan.receives)
        return Connection(plan, qp, own, peer, sender, checker, records)

    # --- the workload -------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        self._begun = self._running = True
        self._moves = sorted(
            (
                (now_ns + move.at_ns, connection.plan.qpn, move.path)
                for connection in self._turns
                for move in connection.plan.moves
            ),
            reverse=True,
        )
        self.operator.begin(now_ns)
        self._program.begin(now_ns)

    def end(self) -> None:
        """Post no more messages."""
        self._running = False

    def work(self, now_ns: int) -> None:
        """Apply changes of routing, handle completions, post what the program wants to send."""
        while self._moves and self._moves[-1][0] <= now_ns:
            _, qpn, path = self._moves.pop()
            reroute(self.connections[qpn].qp, path, now_ns)
        if self._remap.deadline_ns <= now_ns:
            for plane in self._remap.due(now_ns):
                self._change_port(plane, up=False, now_ns=now_ns)
        self.operator.work(now_ns)
        for connection in self._turns:
            if connection.unpolled or connection.qp.touched:
                connection.unpolled = False
                self._poll_completions(connection, now_ns)
        if self._running:
            for post in self._program.posts(now_ns):
                self.senders[post.flow].post(post.size, immediate=post.immediate)
        if self._program.finished:
            self._record_operations()

    def _poll_completions(self, connection: Connection, now_ns: int) -> None:
        sender, checker, qp = connection.sender, connection.checker, connection.qp
        if sender is not None:
            for completion in qp.poll_cq():
                if sender.complete(completion) and self._begun:
                    self._program.completed(sender.flow, now_ns)
        if checker is not None:
            for received in qp.poll_recv_cq():
                if received.status is CompletionStatus.SUCCESS:
                    self._program.received_immediate(checker.flow, received.immediate, now_ns)
                    if connection.mrc is not None:
                        connection.mrc.post_receive(received.wr_id)

    def write_off(self, hosts: Collection[str]) -> None:
        """Wait no longer for messages to these hosts, whose endpoints have been killed."""
        self._written_off = frozenset(hosts)

    @property
    def idle(self) -> bool:
        """Whether every message has completed, failed or been written off."""
        return all(
            connection.sender is None
            or connection.sender.idle
            or connection.sender.counts.errors
            or connection.plan.peer.name in self._written_off
            for connection in self._turns
        )

    # --- packets ------------------------------------------------------------------------------

    def receive(self, packet: memoryview, arrival: Arrival) -> None:
        """Process the bytes of an inner packet, valid or not."""
        if self._control is not None:
            self._control.arrived(packet, arrival.rx_ns)
        self._answer(self.demux.receive(packet, arrival), arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Process a packet that arrived undamaged; only a simulator knows that."""
        if self._control is not None and datagram.seq is None:
            self._control.arrived(memoryview(datagram.join()), arrival.rx_ns)
        self._answer(self.demux.receive_undamaged(datagram, arrival), arrival)

    def _answer(self, answer: Outbound | None, arrival: Arrival) -> None:
        if answer is not None:
            plane = self._launch(answer.datagram, answer.peer, arrival.rx_ns)
            if self._control is not None:
                self._control.answered(answer, plane, arrival.rx_ns)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Act on the loss or the return of the carrier of this host's port in a plane.

        Only MRC does: other transports send where the fabric routes them.
        """
        self.operator.record_port(plane, "up" if up else "no carrier", now_ns)
        if not self._remap.holds_back(plane, up=up, now_ns=now_ns):
            self._change_port(plane, up=up, now_ns=now_ns)

    def _change_port(self, plane: int, *, up: bool, now_ns: int) -> None:
        for connection in self._turns:
            if connection.mrc is not None:
                connection.mrc.port_changed(plane, up=up, now_ns=now_ns)

    def set_busy(self, state: Mapping[str, Any]) -> int:
        """Apply a fault `busy` (see `testbed.host.busy`); returns the number of refused packets."""
        set_busy(self._plan.scenario.topology, self._plan.host, self._turns, state)
        return self.refused_busy

    @property
    def refused_busy(self) -> int:
        return refused_busy(self._turns)

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due: control packets at once, data as there is room for full packets.

        A round begins with another queue pair each time, and passes over those that have nothing to
        do, which are most if there are many. Returns the room that is left.

        The core's events are recorded once a round, after sending. A slot of the receiver's memory
        is not written again before the peer has learnt that its message is complete, so the check
        of the message never comes too late.
        """
        turns = self._turns
        for connection in turns:
            if (
                connection.qp.touched
                or connection.timer_ns <= now_ns
                or (connection.data_ns <= now_ns and room > 0)
            ):
                room -= self._send(connection, now_ns, room)
                self._record_events(connection)
                connection.timer_ns, connection.data_ns = connection.qp.deadlines()
                connection.unpolled = True
        if len(turns) > 1:
            turns.append(turns.pop(0))
        return room

    def _send(self, connection: Connection, now_ns: int, room: int) -> int:
        """Send what is due on one queue pair; returns the number of data packets."""
        launch, peer, sender = self._launch, connection.peer, connection.sender
        sent: list[tuple[int, ...]] = []
        control_bytes = data = again = 0
        for datagram in connection.qp.transmit(now_ns, room):
            plane = launch(datagram, peer, now_ns)
            ev, _, header, payload, trailer, seq, retransmitted, _, _ = datagram
            if seq is None:
                control_bytes += OUTER_BYTES + len(header) + len(trailer)
                if self._control is not None:
                    self._control.sent(connection.plan, datagram, plane, now_ns)
                continue
            data += 1
            if sender is not None:
                sent.append((now_ns, sender.flow, plane, ev, seq, len(payload), retransmitted))
                again += retransmitted
        if sent and sender is not None:
            sender.counts.packets_sent += data
            sender.counts.packets_retransmitted += again
            self._tables.transmissions(sent)
        if self._running:
            self.control_bytes += control_bytes
        return data

    def deadline_ns(self, now_ns: int, *, full: bool) -> int:
        """When `work` and `transmit` must be called even if nothing arrives."""
        wake_ns = self._program.wake_ns if self._running else NEVER
        if self._moves:
            wake_ns = min(wake_ns, self._moves[-1][0])
        wake_ns = min(wake_ns, self.operator.deadline_ns, self._remap.deadline_ns)
        for connection in self._turns:  # a thousand, each round: calls would cost more than packets
            if connection.qp.touched:
                deadline_ns = min(connection.qp.deadlines())
            elif connection.timer_ns < connection.data_ns:
                deadline_ns = connection.timer_ns
            else:
                deadline_ns = connection.data_ns
            if deadline_ns < wake_ns and (deadline_ns > now_ns or not full):
                wake_ns = deadline_ns
        return wake_ns

    # --- records ------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """The counts of every flow that begins or ends here, and of the host."""
        self._stack.record_counts()
        checkers = (connection.checker for connection in self.connections.values())
        refused = self.demux.refused()
        return {
            "sent": [asdict(sender.counts) for sender in self.senders.values()],
            "received": [asdict(checker.counts) for checker in checkers if checker is not None],
            "control_bytes": self.control_bytes,
            "begun": self._program.begun_by_kind,
            "refused": {reason: count for reason, count in refused.items() if count},
        }

    def sample(self, now_ns: int) -> None:
        """Record the state of every queue pair that sends."""
        self._stack.record_counts()
        for connection in self._turns:
            flow = connection.plan.sends
            if flow is not None:
                self._tables.qp(now_ns, flow, *connection.qp.sample())

    def _record_operations(self) -> None:
        host = self._plan.host.name
        for kind, number, start_ns, end_ns, size, hosts in self._program.finished:
            self._tables.operations(end_ns, start_ns, host, kind, number, size, hosts)
        self._program.finished.clear()

    def _record_events(self, connection: Connection) -> None:
        """Record the core's events; those that are rarer than a packet are counted as well."""
        records, sender, checker = connection.records, connection.sender, connection.checker
        for event in records.record_packets(connection.qp.events()):
            records.record_rare(event)
            if isinstance(event, MessageDelivered):
                if checker is not None:
                    verified = checker.check(event)
                    self._tables.completions(
                        event.time_ns, checker.flow, event.message, event.length, verified
                    )
            elif sender is None:
                continue
            elif isinstance(event, Lost | Spurious):
                sender.counts.packets_lost += -1 if isinstance(event, Spurious) else 1
            elif isinstance(event, EvChanged):
                self.operator.record_event(sender.flow, event)


def _parts(plan: EndpointPlan) -> Iterator[Part]:
    """A host's part in each of its jobs. A job counts its lanes from 0."""
    scenario, lanes = plan.scenario, plan.scenario.transport.qps
    sends: dict[int, list[FlowEnd]] = defaultdict(list)
    receives: dict[int, list[FlowEnd]] = defaultdict(list)
    for qp in plan.qps:
        for flow, ends_of_job in ((qp.sends, sends), (qp.receives, receives)):
            if flow is not None:
                ends_of_job[qp.job].append(FlowEnd(flow, qp.peer.name, qp.lane % lanes))
    for number, job in enumerate(scenario.job_list):
        workload = job.workload
        works = isinstance(workload, Graphed) and workload.graph.of_host(plan.host.name)
        if works or number in sends or number in receives:
            ends = sends[number], receives[number]
            program = program_of(scenario, job, plan.host.name, *ends, plan.meetings.get(number))
            yield Part(job.start, program, {end.flow for end in chain(*ends)})
