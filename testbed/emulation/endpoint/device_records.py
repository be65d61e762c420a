"""What the device of a program records, and which commands it takes, while a fabric is watched.

A queue pair becomes a flow when it sends its first data packet. Then it gets a number: the sender
adds a line to `flows.jsonl`, and the receiver of the packet finds it there.
"""

import fcntl
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from testbed.emulation.endpoint.clock import now_ns
from testbed.host.operator import Answer, HostOperator
from testbed.host.plan import QpPlan
from testbed.host.qp_records import QpRecords
from testbed.host.recording import Tables, control_log
from testbed.host.rounds import OUTER_BYTES
from testbed.host.traffic import SAMPLES_PER_RTT
from testbed.model.closeable import Closeable
from testbed.model.fabric.addressing import host_of_nic, path_of_ev
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.operator.commands import (
    TOO_LATE,
    Command,
    DisablePort,
    EnablePort,
    TimedCommand,
    parse_command,
)
from testbed.model.run_files.content import (
    FLOWS,
    OUTCOMES,
    DeviceOutcome,
    OpenedFlow,
    ReceivedFlow,
    RunStart,
    SentFlow,
)
from testbed.model.run_files.layout import START
from testbed.model.transport import Mrc, Transport
from testbed.mrc import Datagram, EvChanged, Event, Placed, QueuePair
from testbed.mrc.wire.datagram import Outbound
from testbed.rights import acting_for
from testbed.sandbox.channel import Channel
from testbed.sandbox.system_calls import new_socket_name

SOCKET_SUFFIX = ".sock"
"""A device takes commands on a UNIX socket, `<host>-<time>.sock` beside its raw files."""

DISABLED_SUFFIX = ".disabled"
"""While a port is disabled there is `<host>.<plane>.disabled`, for all programs of the host."""


@dataclass(frozen=True, slots=True)
class _Flows:
    """What commands apply to: the flows that one program sends or receives."""

    topology: Topology
    transport: Transport
    flows: tuple[tuple[str, str, int], ...] = ()
    operator: tuple[TimedCommand, ...] = ()


@dataclass(slots=True)
class _Connection:
    """A queue pair with its records.

    Attributes:
        is_operated: whether commands apply to it: it has sent or received data.
        sent_bytes: payload that it has sent, each byte counted once.
        has_failed: whether the transport has given up.
    """

    qp: QueuePair
    plan: QpPlan
    records: QpRecords
    is_operated: bool = False
    sent_bytes: int = 0
    has_failed: bool = False

    def sent(self) -> SentFlow | None:
        """What became of the flow that it has sent, if any."""
        flow, counters = self.records.sends, self.qp.counters
        if flow is None:
            return None
        return SentFlow(
            flow=flow,
            bytes_sent=self.sent_bytes,
            bytes_unaccounted=self.sent_bytes if self.qp.failed else self.qp.flight,
            packets_sent=counters.data_sent,
            packets_lost=counters.lost - counters.spurious,
            packets_retransmitted=counters.retransmitted,
            errors=("the queue pair failed",) if self.has_failed or self.qp.given_up else (),
        )

    def received(self) -> ReceivedFlow | None:
        """What became of the flow that it has received, if any."""
        flow = self.records.receives
        if flow is None:
            return None
        return ReceivedFlow(flow=flow, bytes_placed=self.qp.counters.bytes_placed)


class DeviceRecords(Closeable):
    """Records one device's queue pairs, as an endpoint does those of a run. Times in ns.

    Attributes:
        deadline_ns: when `work` has something to do even if nothing arrives.
        operator: carries out commands on the queue pairs that have sent or received data.
        port_switched: is told when a command has disabled a port, or enabled it again.
        refused: how many packets the device did not accept, by reason; it sets it at its end.
    """

    def __init__(
        self,
        raw: Path,
        topology: Topology,
        host: Node,
        evs_of: Callable[[Node], tuple[EvChoice, ...]],
        operator: HostOperator | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Create the raw files.

        Args:
            raw: their directory; `start.json` in it says when the fabric's records begin.
            topology: the fabric.
            host: the device's.
            evs_of: the EVs to a peer.
            operator: that of the workload which the host sends as well; None: it sends none.
            transport: what the flows send with; None: MRC as by default.
        """
        self._rights = acting_for(raw)  # until `close`: files are added to by their names
        self._rights.__enter__()
        self._raw = raw
        self._topology = topology
        self._host = host
        self._evs_of = evs_of
        name = f"{host.name}-{now_ns()}"
        self._tables = Tables(raw, name)
        self.refused: Mapping[str, int] = {}
        self._ended: list[_Connection] = []
        self._control_bytes = 0
        self._connections: dict[QueuePair, _Connection] = {}
        self._sent: list[tuple[int, ...]] = []
        self._received: dict[bytes, int | None] = {}
        self._control = control_log(topology, self._tables, self._received)
        self._sample_ns = max(topology.propagation_rtt_ns // SAMPLES_PER_RTT, 1)
        self._next_sample_ns = 0
        self._operated = _Flows(topology, transport=transport or Mrc())
        self.operator = operator or HostOperator(self._operated, host, self._tables)
        self._shares_operator = operator is not None
        start = RunStart.model_validate_json((raw / START).read_text(encoding="utf-8"))
        self._t0_ns, self._planned = start.t0_ns, start.planned
        if operator is not None:
            self._operated = replace(self._operated, flows=operator.flows)
        self._lock = (raw / f"{name}.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # until the program ends, however it does
        self._socket_file = raw / f"{name}{SOCKET_SUFFIX}"
        self._commands = socket.socket(socket.AF_UNIX)
        with new_socket_name(self._socket_file) as path:
            self._commands.bind(path)
        self._commands.listen()
        self._callers: dict[int, Channel] = {}
        self._poll = select.poll()  # it takes any descriptor; select(2) none above 1023
        self._poll.register(self._commands, select.POLLIN)
        self.port_switched: Callable[[int, bool, int], None] = lambda *_: None

    @property
    def deadline_ns(self) -> int:
        """When `work` has something to do even if nothing arrives."""
        return self.operator.deadline_ns

    def close(self) -> None:
        self.operator.forget(self._connections.keys())
        self._write_outcome()
        self._commands.close()
        for caller in self._callers.values():
            caller.close()
        self._socket_file.unlink(missing_ok=True)
        self._tables.close()
        self._lock.close()
        self._rights.__exit__(None, None, None)

    def _write_outcome(self) -> None:
        connections = *self._ended, *self._connections.values()
        outcome = DeviceOutcome(
            host=self._host.name,
            control_bytes=self._control_bytes,
            refused={reason: count for reason, count in self.refused.items() if count},
            sent=tuple(filter(None, (each.sent() for each in connections))),
            received=tuple(filter(None, (each.received() for each in connections))),
        )
        with (self._raw / OUTCOMES).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(outcome.model_dump_json().encode() + b"\n")

    def work(self, now_ns: int) -> None:
        """Carry out commands, and report probes that are over."""
        for descriptor, _ in self._poll.poll(0):
            if descriptor == self._commands.fileno():
                caller = Channel(self._commands.accept()[0].detach())
                self._callers[caller.fileno()] = caller
                self._poll.register(caller, select.POLLIN)
                continue
            caller = self._callers[descriptor]
            requests = caller.receive()
            if requests is None:
                self._poll.unregister(descriptor)
                del self._callers[descriptor]
                caller.close()
            for request in requests or ():
                self.carry_out(request, caller, now_ns)
        with suppress(ConnectionError):  # nobody waits for the answer any more
            self.operator.work(now_ns)

    def carry_out(self, request: dict[str, Any], caller: Channel, now_ns: int) -> None:
        """Carry out a command; the answer goes to the caller when it has taken effect."""
        number, command = request["operate"], parse_command(request["command"])

        def answer(content: dict[str, Any]) -> None:
            try:
                caller.send({"operated": number, "content": content})
            except OSError as error:  # closed at one end or the other
                raise ConnectionError("nobody waits for the answer") from error

        with suppress(ConnectionError):  # nobody waits for the answer any more
            if now_ns > request["until_ns"]:
                answer(TOO_LATE)
            else:
                self.handle(command, answer, now_ns)

    def handle(self, command: Command, answer: Answer, now_ns: int) -> None:
        """Carry out a command; `answer` is called when it has taken effect."""

        def marked(content: dict[str, Any]) -> None:
            if isinstance(command, DisablePort | EnablePort) and "ports" in content:
                disabled = isinstance(command, DisablePort)
                self._mark_port(command.plane, disabled=disabled)
                self.port_switched(command.plane, disabled, now_ns)
            answer(content)

        self.operator.handle(command, now_ns, marked)

    def switch_port(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Disable a port, or enable it again, as the operator does by hand."""
        self.operator.switch_port(plane, disabled=disabled, now_ns=now_ns)
        self._mark_port(plane, disabled=disabled)

    def _mark_port(self, plane: int, *, disabled: bool) -> None:
        """Mark a port as disabled, or not, whichever of the host's programs disabled it."""
        file = self._raw / f"{self._host.name}.{plane}{DISABLED_SUFFIX}"
        if disabled:
            file.touch()
        else:
            file.unlink(missing_ok=True)

    def disabled_ports(self) -> list[int]:
        """The ports that commands to the host, or its programs, have disabled."""
        if self._shares_operator:
            return sorted(self.operator.disabled)
        files = self._raw.glob(f"{self._host.name}.*{DISABLED_SUFFIX}")
        return [int(file.stem.rpartition(".")[2]) for file in files]

    def arrived(self, packet: memoryview, rx_ns: int) -> None:
        """Record an inner packet that has arrived, if it is a control packet."""
        if self._control is not None:
            self._control.arrived(packet, rx_ns)

    def answered(self, answer: Outbound, plane: int, now_ns: int) -> None:
        """Record the answer to a probe."""
        self._count_control(answer.datagram)
        if self._control is not None:
            self._control.answered(answer, plane, now_ns)

    def _count_control(self, datagram: Datagram) -> None:
        self._control_bytes += OUTER_BYTES + len(datagram.header) + len(datagram.trailer)

    def sent(self, core: QueuePair, datagram: Datagram, plane: int, now_ns: int) -> None:
        """Record a packet that was handed to the socket."""
        if datagram.is_data:
            self._sent_data(core, datagram, plane, now_ns)
            return
        self._count_control(datagram)
        if self._control is not None:
            connection = self._connections.get(core) or self._connect(core)
            self._learn_number(connection)
            self._control.sent(connection.plan, datagram, plane, now_ns)

    def _sent_data(self, core: QueuePair, datagram: Datagram, plane: int, now_ns: int) -> None:
        connection = self._connections.get(core) or self._connect(core)
        flow = connection.records.sends
        if flow is None:
            flow = self._open(connection, now_ns)
        ev, seq, again = datagram.ev, datagram.seq, datagram.retransmitted
        assert seq is not None  # noqa: S101 - it is data
        if not again:
            connection.sent_bytes += len(datagram.payload)
        self._sent.append((now_ns, flow, plane, ev, seq, len(datagram.payload), again))

    def end_round(self, events: Sequence[tuple[QueuePair, list[Event]]], now_ns: int) -> None:
        """Record what the device's queue pairs report, and their state if it is time."""
        if self._sent:
            self._tables.transmissions(self._sent)
            self._sent.clear()
        for core, of_core in events:
            if not of_core:
                continue
            connection = self._connections.get(core) or self._connect(core)
            records = connection.records
            if any(isinstance(event, Placed) for event in of_core):
                self._receive(connection, now_ns)
            for event in records.record_packets(of_core):
                records.record_rare(event)
                if isinstance(event, EvChanged) and records.sends is not None:
                    self.operator.record_event(records.sends, event)
        if now_ns >= self._next_sample_ns:
            self._next_sample_ns = now_ns + self._sample_ns
            self._forget_all_but({core for core, _ in events})
            for connection in self._connections.values():
                connection.has_failed = connection.has_failed or connection.qp.given_up
                if connection.records.sends is not None:
                    self._tables.qp(now_ns, connection.records.sends, *connection.qp.sample())
            self._tables.flush()

    def _forget_all_but(self, cores: set[QueuePair]) -> None:
        """Forget the queue pairs that a program has destroyed."""
        ended = self._connections.keys() - cores
        if ended:
            self.operator.forget(ended)
        self._ended.extend(self._connections.pop(core) for core in ended)

    def _connect(self, core: QueuePair) -> _Connection:
        peer = host_of_nic(self._topology, IPv6Address(core.config.peer_address))
        assert peer is not None  # noqa: S101 - the queue pair has EVs to it
        config = core.config
        evs = self._evs_now(core, peer)
        plan = QpPlan(peer, 0, config.qpn, config.peer_qpn, None, None, evs, ())
        records = QpRecords(self._tables, self._topology, (self._host, peer), None, None)
        connection = self._connections[core] = _Connection(core, plan, records)
        return connection

    def _evs_now(self, core: QueuePair, peer: Node) -> tuple[EvChoice, ...]:
        """The EVs that a queue pair has at present: those to its peer, or the program's own."""
        usual = {ev.value: ev for ev in self._evs_of(peer)}

        def choice(ev: int, *, active: bool) -> EvChoice:
            if ev in usual:
                return replace(usual[ev], active=active)
            return EvChoice(ev, path_of_ev(self._topology, self._host, peer, ev), active)

        return tuple(choice(each.ev, active=each.active) for each in core.evs())

    # --- the numbers of flows -----------------------------------------------------------------

    def _open(self, connection: _Connection, now_ns: int) -> int:
        """Give the flow that a queue pair begins to send a number, and record its EVs."""
        config, peer = connection.qp.config, connection.plan.peer.name
        with (self._raw / FLOWS).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = _read(file)
            ends = self._host.name, peer
            others = *self._planned, *((flow.src, flow.dst) for flow in known)
            lane = others.count(ends)
            new = OpenedFlow(
                flow=len(self._planned) + len(known),
                src=ends[0],
                dst=ends[1],
                lane=lane,
                qpn=config.qpn,
                psn=config.first_psn,
                program=Path(self._lock.name).name,
            )
            file.write(new.model_dump_json().encode() + b"\n")
        number = connection.records.sends = new.flow
        core = connection.qp
        evs = self._evs_now(core, connection.plan.peer)
        connection.plan = replace(connection.plan, lane=lane, sends=number, evs=evs)
        for ev in core.evs():
            self._tables.ev_events(
                now_ns, number, ev.plane, ev.ev, "", ev.state.name, ev.active, "start"
            )
        self._operate(connection, (*ends, lane), now_ns)
        return number

    def _operate(self, connection: _Connection, flow: tuple[str, str, int], now_ns: int) -> None:
        """Have commands apply to a queue pair that sends or receives a flow."""
        if not self._operated.flows:
            self.operator.begin(self._t0_ns, self.disabled_ports())
        self._operated = replace(self._operated, flows=(*self._operated.flows, flow))
        self.operator.use_flows_of(self._operated)
        self.operator.add(connection.qp, connection.plan, now_ns)
        connection.is_operated = True

    def _receive(self, connection: _Connection, now_ns: int) -> None:
        """Note that data of a flow arrives on a queue pair."""
        self._learn_number(connection)
        if not connection.is_operated:
            ends = connection.plan.peer.name, self._host.name
            self._operate(connection, (*ends, connection.plan.lane), now_ns)

    def _learn_number(self, connection: _Connection) -> None:
        """Find the number of the flow that arrives; its sender records it before it sends."""
        if connection.records.receives is None:
            number = connection.records.receives = self._number_of_peer(connection)
            connection.plan = replace(connection.plan, receives=number)
            if number is not None:
                self._received.setdefault(connection.qp.config.peer_address, number)

    def _number_of_peer(self, connection: _Connection) -> int | None:
        """The number of the flow that arrives; None if its sender does not record."""
        config, peer = connection.qp.config, connection.plan.peer.name
        key = peer, self._host.name, config.peer_qpn, config.peer_first_psn
        with suppress(FileNotFoundError), (self._raw / FLOWS).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # another host may be adding a line
            for flow in _read(file):
                if (flow.src, flow.dst, flow.qpn, flow.psn) == key:
                    return flow.flow
        return None


def _read(file: Any) -> list[OpenedFlow]:
    file.seek(0)
    return [OpenedFlow.model_validate_json(line) for line in iter(partial(file.readline), b"")]
