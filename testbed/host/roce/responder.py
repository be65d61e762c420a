"""The responder half of a RoCE queue pair: it accepts packets in order only."""

from collections import deque
from dataclasses import dataclass

from testbed.host.roce.config import Shared
from testbed.host.roce.wire import FIRSTS, LASTS, Ack, Cnp, Nak, Reth, Write
from testbed.mrc import AccessError, MemoryTable, MessageDelivered, Placed, ReceiveCompletion
from testbed.mrc.wire.kinds import unwrap_psn, wrap_psn


@dataclass(slots=True)
class _Incoming:
    """The WRITE whose packets are arriving."""

    reth: Reth
    placed: int = 0


class Responder:
    """Receives what the peer's requester sends (IBTA 9.7).

    A packet beyond the one expected is dropped; the first of a gap is answered by a NAK, those
    after it by nothing until the gap is closed (IBTA 9.7.5.2.8). A repeated one is acknowledged.
    """

    def __init__(self, shared: Shared, memory: MemoryTable) -> None:
        config = self._config = shared.config
        self._shared = shared
        self._events = shared.events
        self._counters = shared.counters
        self._memory = memory
        self._expected = config.peer_first_psn
        self._incoming: _Incoming | None = None
        self._delivered = 0
        self._gap_reported = False
        self._next_cnp_ns = 0
        self._receive_completions: list[ReceiveCompletion] = []
        self.outbox: deque[Ack | Cnp] = deque()

    def on_write(self, packet: Write, *, ecn: bool, now_ns: int) -> None:
        """Place a WRITE packet if it is the expected one."""
        counters = self._counters
        counters.data_received += 1
        if ecn:
            self._notify(now_ns)
        seq = unwrap_psn(packet.psn, self._expected)
        if seq > self._expected:
            counters.out_of_order += 1
            if not self._gap_reported:
                self._gap_reported = True
                self._refuse(Nak.PSN_SEQUENCE_ERROR)
            return
        if seq < self._expected:
            counters.duplicates += 1
            self._events.append(Placed(seq, packet.ev, 0, True, now_ns))
            self._acknowledge()
            return
        refused = self._take(packet, seq, now_ns)
        if refused is not None:
            counters.refused += 1
            self._refuse(refused)
            return
        self._gap_reported = False
        self._expected = seq + 1
        if packet.opcode in LASTS:
            self._deliver(packet, now_ns)
        if packet.ack_request:
            self._acknowledge()

    def _take(self, packet: Write, seq: int, now_ns: int) -> Nak | None:
        """Place the payload of the next packet; return the reason if it must be refused."""
        incoming = self._incoming
        if (packet.opcode in FIRSTS) != (incoming is None):
            return Nak.INVALID_REQUEST
        if incoming is None:
            assert packet.reth is not None  # noqa: S101 - the codec gives every first packet one
            incoming = self._incoming = _Incoming(packet.reth)
        reth, size = incoming.reth, len(packet.payload)
        end = incoming.placed + size
        if end > reth.dma_length or (end < reth.dma_length and packet.opcode in LASTS):
            return Nak.INVALID_REQUEST
        try:
            self._memory.place(reth.rkey, reth.va + incoming.placed, packet.payload)
        except AccessError:
            return Nak.REMOTE_ACCESS_ERROR
        incoming.placed = end
        self._counters.bytes_placed += size
        self._events.append(Placed(seq, packet.ev, size, False, now_ns))
        return None

    def _deliver(self, packet: Write, now_ns: int) -> None:
        incoming, self._incoming = self._incoming, None
        assert incoming is not None  # noqa: S101 - a last packet was placed in it
        reth = incoming.reth
        message = self._delivered
        self._delivered += 1
        self._events.append(MessageDelivered(message, reth.va, reth.rkey, reth.dma_length, now_ns))
        if packet.immediate is not None:
            self._receive_completions.append(
                ReceiveCompletion(message, packet.immediate, reth.dma_length)
            )

    def take_receive_completions(self) -> list[ReceiveCompletion]:
        completions, self._receive_completions = self._receive_completions, []
        return completions

    def _notify(self, now_ns: int) -> None:
        """Send a CNP for an ECN mark, at most one in an interval (DCQCN's notification point)."""
        interval_ns = self._config.cnp_interval_ns
        if interval_ns is None or now_ns < self._next_cnp_ns:
            return
        self._next_cnp_ns = now_ns + interval_ns
        self._counters.cnps_sent += 1
        config = self._config
        self.outbox.append(
            Cnp(config.local_address, config.peer_address, self._shared.ev, config.peer_qpn)
        )

    def _acknowledge(self) -> None:
        """Queue an ACK of all so far, in place of one that has not left yet."""
        if self.outbox and isinstance(self.outbox[-1], Ack) and self.outbox[-1].nak is None:
            self.outbox.pop()
        self.outbox.append(self._answer(self._expected - 1, None))

    def _refuse(self, reason: Nak) -> None:
        self._counters.naks_sent += 1
        self.outbox.append(self._answer(self._expected, reason))

    def _answer(self, seq: int, nak: Nak | None) -> Ack:
        config = self._config
        return Ack(
            config.local_address,
            config.peer_address,
            self._shared.ev,
            config.peer_qpn,
            wrap_psn(seq),
            self._delivered,
            nak,
        )
