"""The responder half of a queue pair: places WRITEs as they come and reports them in SACKs."""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from testbed.mrc.config import Counters, QpConfig
from testbed.mrc.constants import (
    MPR_UNIT,
    RCVD_BYTES_UNIT,
    SACK_BITMAP_BITS,
    EvMark,
    NackReason,
    Opcode,
)
from testbed.mrc.ev import NEVER
from testbed.mrc.events import Event, MessageDelivered, Placed
from testbed.mrc.memory import AccessError, MemoryTable
from testbed.mrc.psn import unwrap_msn, unwrap_psn, wrap_psn
from testbed.mrc.wire import Nack, ReliabilityProbe, Sack, TrimmedWrite, Write

_BITMAP_MASK: Final = (1 << SACK_BITMAP_BITS) - 1
_MAX_OOO_COUNT: Final = (1 << 15) - 1
_LAST_OPCODES: Final = (Opcode.WRITE_LAST, Opcode.WRITE_ONLY)
_RCVD_BYTES_MASK: Final = (1 << 24) - 1
_SWEEP_EVERY: Final = 2
"""One SACK in so many is accompanied by one of the sweep (see `Responder._report`)."""


@dataclass(frozen=True, slots=True)
class _Trigger:
    """The packet that a SACK answers: it reflects this EV and timestamp."""

    seq: int
    ev: int
    tx_timestamp: int
    mark: EvMark


class Responder:
    """Receives what the peer's requester sends.

    A packet outside the window [cack + 1, cack + MPR) above is dropped silently: no requester that
    heeds the window sends one. (Sources disagree on whether to NACK it.) One below it, or repeated,
    is answered at once, since the peer seems not to know that it arrived.

    A WRITE that memory refuses is answered by a NACK with UNEXP_EVENT: how MRC names a remote
    access error is not public.
    """

    def __init__(
        self, config: QpConfig, memory: MemoryTable, events: list[Event], counters: Counters
    ) -> None:
        self._config = config
        self._memory = memory
        self._events = events
        self._counters = counters
        self._cack = config.peer_first_psn - 1
        self._window = config.mpr * MPR_UNIT
        self._received = 0  # bit i: cack + 1 + i has been placed
        self._ends: list[tuple[int, int, int, int, int]] = []
        self._delivered = 0
        self._rcvd_bytes = 0
        self._fresh: list[int] = []
        self._unreported = 0
        self._newest: _Trigger | None = None
        self._triggers: list[_Trigger] = []
        self._deadline_ns = NEVER
        self._sack_delay_ns = int(config.sack_delay * config.base_rtt_ns)
        self._sweep = 0
        self._sacks = 0
        self._outbox: deque[Sack | Nack] = deque()

    @property
    def deadline_ns(self) -> int:
        """When `transmit` has something to send: 0 for now, `NEVER` for not yet."""
        if self._outbox or self._triggers:
            return 0
        return self._deadline_ns

    def on_write(self, packet: Write, *, ecn: bool, now_ns: int) -> None:
        """Place a WRITE packet and see to its acknowledgement."""
        counters = self._counters
        counters.data_received += 1
        cack = self._cack
        seq = unwrap_psn(packet.psn, cack + 1)
        position = seq - cack - 1
        if position >= self._window - 1:
            counters.out_of_window += 1
            return
        if position < 0 or self._received >> position & 1:
            size = 0
            counters.duplicates += 1
        else:
            payload = packet.payload
            size = len(payload)
            try:
                self._memory.place(packet.rkey, packet.va, payload)
            except AccessError:
                counters.refused += 1
                self._nack(packet, NackReason.UNEXP_EVENT)
                return
            counters.bytes_placed += size
            self._rcvd_bytes += size
            if packet.opcode in _LAST_OPCODES:
                length = packet.dma_length
                start = packet.va + size - length
                heappush(self._ends, (seq, packet.msn, start, packet.rkey, length))
            self._received |= 1 << position
            if position == 0:
                self._advance(now_ns)
        self._events.append(Placed(seq, packet.ev, size, packet.retransmitted, now_ns))
        self._fresh.append(seq)
        self._unreported += 1
        trigger = _Trigger(
            seq, packet.ev, packet.tx_timestamp, EvMark.SKIP_ONCE if ecn else EvMark.NONE
        )
        if (
            self._unreported >= self._config.sack_packets
            or ecn
            or packet.retransmitted
            or packet.ack_request
            or size == 0
        ):
            self._triggers.append(trigger)
            self._unreported = 0
            self._deadline_ns = NEVER
        else:
            self._newest = trigger
            if self._deadline_ns == NEVER:
                self._deadline_ns = now_ns + self._sack_delay_ns

    def on_trimmed(self, packet: TrimmedWrite, *, last_hop: bool) -> None:
        """Ask for a packet whose payload a switch has cut off."""
        self._counters.trimmed_received += 1
        position = unwrap_psn(packet.psn, self._cack + 1) - self._cack - 1
        if 0 <= position < self._window - 1 and not self._received >> position & 1:
            self._nack(packet, NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED)

    def on_probe(self, probe: ReliabilityProbe) -> None:
        """Report the whole window: the SACK with `probe_reply` comes last."""
        trigger = _Trigger(self._cack, probe.ev, probe.tx_timestamp, EvMark.NONE)
        first = self._cack + 1
        above = range(
            first + SACK_BITMAP_BITS, first + self._received.bit_length(), SACK_BITMAP_BITS
        )
        self._outbox.extend(self._sack(trigger, start) for start in above)
        self._outbox.append(self._sack(trigger, first, probe_id=probe.probe_id))

    def transmit(self, now_ns: int) -> deque[Sack | Nack]:
        """Return the queue of what is to be sent now; the caller pops what it sends."""
        if self._deadline_ns <= now_ns and self._newest is not None:
            self._triggers.append(self._newest)
            self._unreported = 0
            self._deadline_ns = NEVER
        if self._triggers:
            self._report()
        return self._outbox

    def _advance(self, now_ns: int) -> None:
        received = self._received
        run = (~received & (received + 1)).bit_length() - 1
        self._received = received >> run
        self._cack += run
        ends = self._ends
        while ends and ends[0][0] <= self._cack:
            _, msn, va, rkey, length = heappop(ends)
            message = unwrap_msn(msn, self._delivered)
            self._delivered = message + 1
            self._events.append(MessageDelivered(message, va, rkey, length, now_ns))

    def _report(self) -> None:
        """Queue SACKs that tell of every packet received since the last ones.

        Each bitmap ends at the newest packet it has to report, so that in steady flow a packet is
        reported by many SACKs and losing one costs nothing. What is still unknown to the peer after
        that (the one SACK for a filled hole was lost) is told by a sweep that walks through the
        window from cack, one bitmap with every other SACK, while the window exceeds one bitmap.
        """
        first = self._cack + 1
        starts: list[int] = []
        covered_from = NEVER
        for seq in sorted(self._fresh, reverse=True):
            if seq < first:
                break
            if seq < covered_from:
                covered_from = max(first, seq - SACK_BITMAP_BITS + 1)
                starts.append(covered_from)
        self._fresh.clear()
        self._sacks += 1
        extent = self._received.bit_length()
        if extent > SACK_BITMAP_BITS and self._sacks % _SWEEP_EVERY == 0:
            self._sweep += SACK_BITMAP_BITS
            if self._sweep >= extent:
                self._sweep = 0
            starts.append(first + self._sweep)
        newest = starts[0] if starts else first
        triggers = self._triggers
        for index in range(max(len(triggers), len(starts))):
            trigger = triggers[index] if index < len(triggers) else self._unmarked(triggers[-1])
            self._outbox.append(
                self._sack(trigger, starts[index] if index < len(starts) else newest)
            )
        triggers.clear()

    @staticmethod
    def _unmarked(trigger: _Trigger) -> _Trigger:
        return _Trigger(trigger.seq, trigger.ev, trigger.tx_timestamp, EvMark.NONE)

    def _sack(self, trigger: _Trigger, start: int, probe_id: int | None = None) -> Sack:
        config = self._config
        cack = self._cack
        self._counters.sacks_sent += 1
        offset = trigger.seq - cack if probe_id is None else probe_id
        return Sack(
            source=config.local_address,
            destination=config.peer_address,
            ev=trigger.ev,
            qpn=config.peer_qpn,
            mark=trigger.mark,
            probe_reply=probe_id is not None,
            ack_psn_offset=((offset + 0x8000) & 0xFFFF) - 0x8000,
            reflected_ev=trigger.ev,
            cack_psn=wrap_psn(cack),
            mpr=config.mpr,
            sack_offset=start - cack,
            bitmap=self._received >> (start - cack - 1) & _BITMAP_MASK,
            tx_timestamp=trigger.tx_timestamp,
            ooo_count=min(self._received.bit_count(), _MAX_OOO_COUNT),
            restore_cwnd=False,
            rcv_cwnd_pen=0,
            rcvd_bytes=self._rcvd_bytes // RCVD_BYTES_UNIT & _RCVD_BYTES_MASK,
        )

    def _nack(self, packet: Write | TrimmedWrite, reason: NackReason) -> None:
        config = self._config
        self._counters.nacks_sent += 1
        self._outbox.append(
            Nack(
                source=config.local_address,
                destination=config.peer_address,
                ev=packet.ev,
                qpn=config.peer_qpn,
                reason=reason,
                reflected_ev=packet.ev,
                nack_psn=packet.psn,
                tx_timestamp=packet.tx_timestamp,
            )
        )
