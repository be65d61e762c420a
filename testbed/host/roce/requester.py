"""The requester half of a RoCE queue pair: sends in order, with go-back-N after a loss."""

from dataclasses import dataclass

from testbed.host.roce.config import Shared
from testbed.host.roce.dcqcn import Dcqcn
from testbed.host.roce.wire import (
    FIRSTS,
    PSN_WINDOW,
    Ack,
    Nak,
    Opcode,
    Reth,
    Write,
    encode,
)
from testbed.mrc import NEVER, CompletionStatus, Datagram, Lost, RoundTrip
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NS_PER_S
from testbed.mrc.message import Message
from testbed.mrc.recovery.send_queue import SendQueue
from testbed.mrc.wire.kinds import unwrap_psn, wrap_psn


@dataclass(slots=True)
class _Packet:
    """One packet of a message, until it is acknowledged. `sent_ns` is of its last transmission."""

    seq: int
    message: Message
    offset: int
    length: int
    ack_request: bool
    sent_ns: int = 0
    ev: int = 0
    plane: int = 0
    transmissions: int = 0


class Requester:
    """Sends what is posted, packet by packet at DCQCN's rate (IBTA 9.7).

    Packets from `_oldest` to `_cursor` are in flight; a NAK or a timeout moves `_cursor` back, and
    everything behind it is sent again: go-back-N.
    """

    def __init__(self, shared: Shared, rtt: RttEstimator, dcqcn: Dcqcn) -> None:
        config = self._config = shared.config
        self._shared = shared
        self._counters = shared.counters
        self._rtt = rtt
        self._dcqcn = dcqcn
        self._burst_ns = int(config.burst * config.base_rtt_ns)
        self._oldest = self._cursor = self._next = config.first_psn
        self._packets: dict[int, _Packet] = {}
        self.queue = SendQueue(config.mtu)
        self._free_ns = 0
        self._progress_ns = 0
        self._timeouts = 0
        self.flight = 0

    def _fail(self, status: CompletionStatus) -> None:
        """Give up: the oldest message bears the status, the others are flushed."""
        self._packets.clear()
        self.flight = 0
        self.queue.fail(status)

    # Receiving

    def on_cnp(self, now_ns: int) -> None:
        self._counters.cnps_received += 1
        self._dcqcn.on_cnp(now_ns)

    def on_ack(self, ack: Ack, now_ns: int) -> None:
        seq = unwrap_psn(ack.psn, self._oldest)
        acked = seq if ack.nak is None else seq - 1
        if not self._oldest - 1 <= acked < self._next:
            return
        self._advance(acked, now_ns)
        if ack.nak is None:
            return
        self._counters.naks_received += 1
        if ack.nak is Nak.PSN_SEQUENCE_ERROR:
            self._go_back("sequence error", now_ns)
        elif ack.nak is Nak.REMOTE_ACCESS_ERROR:
            self._fail(CompletionStatus.REMOTE_ACCESS_ERROR)
        else:
            self._fail(CompletionStatus.REMOTE_INVALID_REQUEST)

    def _advance(self, acked: int, now_ns: int) -> None:
        if acked < self._oldest:
            return
        newest: _Packet | None = None
        for seq in range(self._oldest, acked + 1):
            newest = self._packets.pop(seq)
            if seq < self._cursor:
                self.flight -= newest.length
        self._oldest = acked + 1
        self._cursor = max(self._cursor, self._oldest)
        self._progress_ns = now_ns
        self._timeouts = 0
        if newest is not None and newest.transmissions == 1:  # Karn: else it is ambiguous
            rtt_ns = now_ns - newest.sent_ns
            self._shared.events.append(RoundTrip(newest.ev, newest.plane, rtt_ns, now_ns))
            self._rtt.sample(rtt_ns, now_ns)
        self.queue.acknowledged(self._oldest)

    def _go_back(self, reason: str, now_ns: int) -> None:
        """Send everything from the oldest packet on again."""
        for seq in range(self._oldest, self._cursor):
            packet = self._packets[seq]
            lost = Lost(seq, packet.ev, packet.plane, packet.sent_ns, reason, now_ns)
            self._shared.events.append(lost)
        self._cursor = self._oldest
        self.flight = 0
        self._progress_ns = now_ns

    # Time

    @property
    def data_ns(self) -> int:
        """When the rate allows the next data packet; `NEVER` if there is none."""
        return self._free_ns if self._has_more else NEVER

    @property
    def timeout_ns(self) -> int:
        """When an acknowledgement is overdue; `NEVER` if none is awaited."""
        if self._oldest == self._cursor:
            return NEVER
        return self._progress_ns + self._config.ack_timeout_ns

    @property
    def _has_more(self) -> bool:
        if self._cursor < self._next:
            return True
        return self.queue.has_more and self._next - self._oldest < PSN_WINDOW

    def on_time(self, now_ns: int) -> None:
        """Go back or fail if the acknowledgement is overdue."""
        if self.queue.failed or now_ns < self.timeout_ns:
            return
        self._counters.timeouts += 1
        self._timeouts += 1
        if self._timeouts > self._config.retry_count:
            self._fail(CompletionStatus.RETRY_EXCEEDED)
        else:
            self._go_back("timeout", now_ns)

    # Sending

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return at most `limit` data packets that the rate allows by now."""
        datagrams: list[Datagram] = []
        if self.queue.failed or not self._has_more:
            return datagrams
        dcqcn = self._dcqcn
        dcqcn.advance(now_ns)
        self._free_ns = max(self._free_ns, now_ns - self._burst_ns)
        while len(datagrams) < limit and self._free_ns <= now_ns and self._has_more:
            packet = self._packets[self._cursor] if self._cursor < self._next else self._cut()
            datagram = self._send(packet, now_ns)
            size = len(datagram.header) + packet.length + len(datagram.trailer)
            self._free_ns += int(size * 8 * NS_PER_S / dcqcn.rate_bps)
            dcqcn.on_sent(size)
            datagrams.append(datagram)
        return datagrams

    def _cut(self) -> _Packet:
        seq = self._next
        message, offset, length = self.queue.cut(seq)
        last = offset + length == message.length
        ack_request = last or (seq + 1) % self._config.ack_packets == 0
        self._next = seq + 1
        packet = self._packets[seq] = _Packet(seq, message, offset, length, ack_request)
        return packet

    def _send(self, packet: _Packet, now_ns: int) -> Datagram:
        if self._oldest == self._cursor:
            self._progress_ns = now_ns
        self._cursor += 1
        self.flight += packet.length
        repeated = packet.transmissions > 0
        packet.transmissions += 1
        packet.sent_ns, packet.ev, packet.plane = now_ns, self._shared.ev, self._shared.plane
        self._counters.data_sent += 1
        self._counters.retransmitted += repeated
        config, message = self._config, packet.message
        end = packet.offset + packet.length
        payload = message.payload[packet.offset : end]
        opcode = _opcode(message, first=packet.offset == 0, last=end == message.length)
        write = Write(
            config.local_address,
            config.peer_address,
            packet.ev,
            config.peer_qpn,
            wrap_psn(packet.seq),
            opcode,
            packet.ack_request,
            payload,
            Reth(message.va, message.rkey, message.length) if opcode in FIRSTS else None,
            message.immediate if end == message.length else None,
        )
        dscp = config.dscp.no_trim
        header, trailer = encode(write, dscp)
        return Datagram(packet.ev, dscp, header, payload, trailer, packet.seq, repeated)


def _opcode(message: Message, *, first: bool, last: bool) -> Opcode:
    if not last:
        return Opcode.WRITE_FIRST if first else Opcode.WRITE_MIDDLE
    if message.immediate is None:
        return Opcode.WRITE_ONLY if first else Opcode.WRITE_LAST
    return Opcode.WRITE_ONLY_IMMEDIATE if first else Opcode.WRITE_LAST_IMMEDIATE
