"""The process in a host: hands packets and times to the MRC core, and its packets to the kernel.

Propagation delay is modelled here: each arrival waits until its kernel receive timestamp plus the
delay of the path that it took (told by how many switches lowered its hop limit) before the core
sees it. The loop therefore never waits for packets, only for times; it wakes a few hundred times a
second, drains the socket, and processes all that has become due.
"""

import gc
import heapq
import json
import os
import select
import socket
from dataclasses import dataclass

from testbed.endpoint.carriers import HOP_LIMIT, Carriers
from testbed.endpoint.clock import now_ns, realtime_offset_ns
from testbed.endpoint.health import HealthLog
from testbed.endpoint.plan import EndpointPlan, QpPlan
from testbed.endpoint.port_scheduler import PortScheduler
from testbed.endpoint.queue_pairs import open_queue_pair
from testbed.endpoint.sockets import HostSockets, Received
from testbed.model.addressing import nic_address
from testbed.model.topology import ETHERNET_HEADER, PAYLOAD_MTU
from testbed.mrc import (
    Arrival,
    Datagram,
    DecodeError,
    DscpClasses,
    EndpointRequest,
    EvChanged,
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
from testbed.workloads.pattern import Pattern
from testbed.workloads.write_bw import Checker, Sender, Slots

TICKS_PER_RTT = 40
"""The loop wakes at most this often per base RTT: waking up is what costs on a small machine."""

POLLS_PER_DELAY = 8
"""The socket is drained at least this often per propagation delay, so that nothing comes late."""

LEAD_PACKETS = 2
"""Full packets handed to a port ahead of its line rate: covers the time between two wake-ups."""

RTT_TIMEOUT_S = 10

_ECN_MASK = 0b11


@dataclass(slots=True)
class _Connection:
    """One queue pair with what drives it and what watches it."""

    plan: QpPlan
    qp: QueuePair
    peer: bytes
    sender: Sender | None
    checker: Checker | None
    packets_sent: int = 0
    packets_retransmitted: int = 0
    packets_lost: int = 0
    control_bytes: int = 0


@dataclass(slots=True)
class _Tables:
    """The recorders of one endpoint."""

    arrivals: Recorder
    transmissions: Recorder
    losses: Recorder
    ev_events: Recorder
    qp: Recorder
    completions: Recorder

    def close(self) -> None:
        for recorder in (
            self.arrivals,
            self.transmissions,
            self.losses,
            self.ev_events,
            self.qp,
            self.completions,
        ):
            recorder.close()


def _open_tables(plan: EndpointPlan) -> _Tables:
    def recorder(table: records.Table) -> Recorder:
        return Recorder(raw_path(plan.raw_directory, plan.host.name, table), table)

    return _Tables(
        recorder(records.ARRIVALS),
        recorder(records.TRANSMISSIONS),
        recorder(records.LOSSES),
        recorder(records.EV_EVENTS),
        recorder(records.QP),
        recorder(records.COMPLETIONS),
    )


_Held = tuple[int, int, Received]
"""When the core may see an arrival that is still on its way as far as the core knows; its number
among arrivals, for order; the arrival."""


class Endpoint:
    """One host's queue pairs, sockets and records; `run` is its event loop."""

    def __init__(self, plan: EndpointPlan, control: socket.socket) -> None:
        """Open everything; the process must be in the host's network namespace already."""
        topology = plan.topology
        self._plan = plan
        self._control = control
        self._sockets = HostSockets()
        self._carriers = Carriers(topology, plan.host)
        self._ports = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, LEAD_PACKETS
        )
        self._delay_ns = [topology.one_way_ns(switches) for switches in range(8)]
        self._tick_ns = topology.propagation_rtt_ns // TICKS_PER_RTT
        self._poll_ns = topology.one_way_ns(1) // POLLS_PER_DELAY
        self._bin_ns = topology.propagation_rtt_ns // 16
        self._tables = _open_tables(plan)
        self._dscp = DscpClasses()
        self._trimmed = (self._dscp.trimmed, self._dscp.trimmed_lasthop)
        self._memory = MemoryTable()
        self._connections = {qp.qpn: self._connect(qp) for qp in plan.qps}
        self._held: list[_Held] = []
        self._arrived = 0
        self._offset_ns = realtime_offset_ns()
        start = now_ns()
        self._health = HealthLog(plan.raw_directory.parent / "health.jsonl", plan.host.name, start)
        self._next_bin_ns = start
        self._ports_full_until_ns = 0
        self._decode_errors = 0
        self._strays = 0
        self._workload = False
        self._stop_ns: int | None = None
        self._start_ns: int | None = None
        self._drained = False
        self._finished = False

    def _connect(self, plan: QpPlan) -> _Connection:
        topology, host = self._plan.topology, self._plan.host
        qp = open_queue_pair(topology, host, plan, self._memory)
        slots = Slots(max(plan.message_size, PAYLOAD_MTU), plan.depth)
        sender = checker = None
        if plan.sends is not None:
            pattern = Pattern(plan.sends, plan.seed, slots.size)
            sender = Sender(qp, plan.sends, slots, pattern)
            now = now_ns()
            for ev in plan.evs:
                self._tables.ev_events.append(
                    now, plan.sends, ev.path.plane, ev.value, "", "GOOD", ev.active, "start"
                )
        if plan.receives is not None:
            region = slots.region(plan.receives)
            self._memory.register(region)
            checker = Checker(plan.receives, region, Pattern(plan.receives, plan.seed, slots.size))
        return _Connection(plan, qp, nic_address(topology, plan.peer).packed, sender, checker)

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Work until the parent says finish; raises what nobody foresaw."""
        wake_ns = now_ns()
        while not self._finished:
            now = now_ns()
            self._health.lag(max(now - wake_ns, 0))
            self._drain()
            self._process_due(now)
            self._work(now)
            self._send(now_ns())
            self._keep_records(now)
            wake_ns = max(self._next_wake_ns(now), now + self._tick_ns)
            timeout_ns = max(wake_ns - now_ns(), 0)
            if select.select([self._control], [], [], timeout_ns / 1e9)[0]:
                self._obey()
                wake_ns = now_ns()

    def _drain(self) -> None:
        held, delay_ns, offset_ns = self._held, self._delay_ns, self._offset_ns
        for received in self._sockets.receive():
            due_ns = received.realtime_ns - offset_ns + delay_ns[HOP_LIMIT - received.hop_limit]
            self._arrived += 1
            heapq.heappush(held, (due_ns, self._arrived, received))

    def _process_due(self, now: int) -> None:
        held = self._held
        while held and held[0][0] <= now:
            due_ns, _, arrival = heapq.heappop(held)
            seen_ns = now_ns()
            self._health.lag(seen_ns - due_ns)
            self._receive(arrival, seen_ns)

    def _receive(self, arrival: Received, now: int) -> None:
        dscp, ecn = arrival.traffic_class >> 2, arrival.traffic_class & _ECN_MASK
        try:
            packet = decode(memoryview(arrival.packet), trimmed=dscp in self._trimmed)
        except DecodeError:
            self._decode_errors += 1
            return
        if isinstance(packet, EndpointRequest):
            self._transmit(respond(packet, self._dscp), packet.source, now)
            return
        connection = self._connections.get(packet.qpn)
        if connection is None or packet.source != connection.peer:
            self._strays += 1
            return
        connection.qp.receive(packet, Arrival(ecn, dscp, now))

    def _observe(self, connection: _Connection) -> None:
        """Write down what the core did.

        Once a round, after sending: a slot of the receiver's memory is not written again before the
        peer has heard that its message is complete, so the checker never comes too late.
        """
        plan, tables = connection.plan, self._tables
        for event in connection.qp.events():
            match event:
                case Placed() if plan.receives is not None:
                    tables.arrivals.append(
                        event.time_ns,
                        plan.receives,
                        self._carriers.to(connection.peer, event.ev, self._dscp.control).plane,
                        event.ev,
                        event.seq,
                        event.size,
                        event.retransmitted,
                    )
                case MessageDelivered() if connection.checker is not None:
                    tables.completions.append(
                        event.time_ns,
                        connection.checker.flow,
                        event.message,
                        event.length,
                        connection.checker.check(event),
                    )
                case Lost() | Spurious() if plan.sends is not None:
                    spurious = isinstance(event, Spurious)
                    connection.packets_lost += -1 if spurious else 1
                    tables.losses.append(
                        event.time_ns,
                        plan.sends,
                        event.plane,
                        event.ev,
                        event.seq,
                        event.sent_ns,
                        spurious,
                    )
                case EvChanged() if plan.sends is not None:
                    tables.ev_events.append(
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

    def _work(self, now: int) -> None:
        """Keep the workload going, and say when the last WRITE has completed."""
        if self._start_ns is not None and now >= self._start_ns:
            self._workload = self._stop_ns is None or now < self._stop_ns
        for connection in self._connections.values():
            sender = connection.sender
            if sender is None:
                continue
            sender.reap()
            if self._workload:
                sender.fill(connection.plan.message_size)
        stopped = self._stop_ns is not None and now >= self._stop_ns
        if stopped and not self._drained and self._idle:
            self._drained = True
            self._tell({"drained": True})

    @property
    def _idle(self) -> bool:
        senders = [c.sender for c in self._connections.values() if c.sender is not None]
        return all(sender.idle or sender.failed for sender in senders)

    def _send(self, now: int) -> None:
        """Send what is due: control packets at once, data as the ports have room."""
        room = self._ports.room(now)
        for connection in self._connections.values():
            for datagram in connection.qp.transmit(now, room):
                plane = self._transmit(datagram, connection.peer, now)
                if datagram.is_data:
                    room -= 1
                self._record_sent(connection, datagram, plane, now)
            self._observe(connection)
        self._sockets.flush()
        self._ports_full_until_ns = self._ports.next_room_ns(now) if room <= 0 else 0

    def _transmit(self, datagram: Datagram, peer: bytes, now: int) -> int:
        """Hand a packet to the kernel; returns the plane that it goes through."""
        carrier = self._carriers.to(peer, datagram.ev, datagram.dscp)
        inner = len(datagram.header) + len(datagram.payload) + len(datagram.trailer)
        outer = carrier.outer_header(inner)
        self._ports.sent(carrier.plane, ETHERNET_HEADER + len(outer) + inner, now)
        self._sockets.send(outer, datagram.header, datagram.payload, datagram.trailer)
        return carrier.plane

    def _record_sent(
        self, connection: _Connection, datagram: Datagram, plane: int, now: int
    ) -> None:
        plan = connection.plan
        if datagram.seq is None or plan.sends is None:
            if self._workload:
                connection.control_bytes += (
                    ETHERNET_HEADER + 40 + len(datagram.header) + len(datagram.trailer)
                )
            return
        connection.packets_sent += 1
        connection.packets_retransmitted += datagram.retransmitted
        self._tables.transmissions.append(
            now,
            plan.sends,
            plane,
            datagram.ev,
            datagram.seq,
            len(datagram.payload),
            datagram.retransmitted,
        )

    def _next_wake_ns(self, now: int) -> int:
        wake_ns = now + self._poll_ns
        if self._held:
            wake_ns = min(wake_ns, self._held[0][0])
        if self._ports_full_until_ns:
            wake_ns = min(wake_ns, self._ports_full_until_ns)
        for connection in self._connections.values():
            deadline_ns = connection.qp.next_deadline()
            if deadline_ns is not None and (deadline_ns > now or not self._ports_full_until_ns):
                wake_ns = min(wake_ns, deadline_ns)
        return wake_ns

    def _keep_records(self, now: int) -> None:
        if now >= self._next_bin_ns:
            self._next_bin_ns = now + self._bin_ns
            for connection in self._connections.values():
                if connection.plan.sends is not None:
                    qp = connection.qp
                    self._tables.qp.append(
                        now,
                        connection.plan.sends,
                        qp.congestion.window,
                        qp.flight,
                        qp.rtt.smoothed_ns,
                    )
        if now >= self._health.due_ns:
            self._offset_ns = realtime_offset_ns()
            self._health.write(now, {"raw_socket": self._sockets.overflowed})

    # --- the parent's words -------------------------------------------------------------------

    def _tell(self, message: dict[str, object]) -> None:
        self._control.send(json.dumps(message).encode())

    def _obey(self) -> None:
        data = self._control.recv(65536)
        if not data:
            raise ConnectionError("the run that this endpoint belongs to has ended")
        command = json.loads(data)
        match command:
            case {"measure_rtt": flow}:
                self._tell({"rtt_ns": self._measure_rtt(flow)})
            case {"start_ns": start, "stop_ns": stop}:
                self._start_ns, self._stop_ns = start, stop
            case {"finish": True}:
                self._finish()
            case _:
                raise ValueError(f"unknown command {command}")

    def _measure_rtt(self, flow: int) -> int:
        """One base RTT sample: from handing a full packet to the socket to processing its SACK."""
        senders = (connection.sender for connection in self._connections.values())
        sender = next(one for one in senders if one is not None and one.flow == flow)
        sender.post(PAYLOAD_MTU)
        sent_ns = now_ns()
        self._send(sent_ns)
        deadline_ns = sent_ns + RTT_TIMEOUT_S * 1_000_000_000
        while (now := now_ns()) < deadline_ns:
            self._drain()
            self._process_due(now)
            sender.reap()
            if sender.idle:
                return now_ns() - sent_ns
            self._send(now_ns())
            wake_ns = max(self._next_wake_ns(now), now + self._tick_ns)
            select.select([], [], [], max(wake_ns - now_ns(), 0) / 1e9)
        raise TimeoutError(f"no SACK within {RTT_TIMEOUT_S} s on an idle fabric")

    def _finish(self) -> None:
        self._finished = True
        self._health.write(now_ns(), {"raw_socket": self._sockets.overflowed})
        self._health.close()
        self._tables.close()
        self._tell({"finished": self._report()})
        self._sockets.close()

    def _report(self) -> dict[str, object]:
        sent, received = [], []
        for connection in self._connections.values():
            if connection.sender is not None:
                sender = connection.sender
                sent.append(
                    {
                        "flow": sender.flow,
                        "bytes_sent": sender.bytes_posted,
                        "bytes_completed": sender.bytes_completed,
                        "errors": sender.failed,
                        "packets_sent": connection.packets_sent,
                        "packets_lost": connection.packets_lost,
                        "packets_retransmitted": connection.packets_retransmitted,
                    }
                )
            if connection.checker is not None:
                checker = connection.checker
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
            "control_bytes": sum(c.control_bytes for c in self._connections.values()),
            "decode_errors": self._decode_errors,
            "strays": self._strays,
            "send_errors": self._sockets.send_errors,
        }


def run_endpoint(plan: EndpointPlan, control: socket.socket) -> int:
    """Be the endpoint of a host until the parent says finish; returns the exit status."""
    gc.freeze()
    gc.disable()  # nothing here makes cycles; a collection would stop the loop at a bad moment
    endpoint = Endpoint(plan, control)
    control.send(b'{"ready": true}')
    endpoint.run()
    return os.EX_OK
