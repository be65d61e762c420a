"""The responder half of a queue pair: places WRITEs in any order and reports them in SACKs."""

from collections import deque
from heapq import heappop, heappush
from typing import Final, NamedTuple

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import (
    MPR_UNIT,
    NEVER,
    RCVD_BYTES_UNIT,
    SACK_BITMAP_BITS,
    EvMark,
    NackReason,
    Opcode,
)
from testbed.mrc.counters import Counters
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Event, MessageDelivered, Placed
from testbed.mrc.memory import AccessError, MemoryTable, RkeyError
from testbed.mrc.message import ReceiveCompletion
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.packets import Nack, ReliabilityProbe, Sack, TrimmedWrite, Write
from testbed.mrc.wire.psn import unwrap_msn, unwrap_psn, wrap_psn

_BITMAP_MASK: Final = (1 << SACK_BITMAP_BITS) - 1
_MAX_OOO_COUNT: Final = (1 << 15) - 1
_ONLY_OPCODES: Final = frozenset((Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE))
_LAST_OPCODES: Final = _ONLY_OPCODES | {Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMMEDIATE}
_RCVD_BYTES_MASK: Final = (1 << 24) - 1
_EARLY_PERIOD: Final = 3
"""Every third SACK is sent one packet early. If each were sent after 8 packets, then with 2, 4 or 8
planes a packet of the same plane would always trigger it, and only its delay would be measured."""

_SWEEP_PERIOD: Final = 2
"""Every second time, a SACK of the sweep is sent too (see `Responder._report`)."""


class _Trigger(NamedTuple):
    """The packet that a SACK answers: it reflects this EV and timestamp."""

    seq: int
    ev: int
    tx_timestamp: int
    mark: EvMark


class Responder:
    """Receives what the peer's requester sends.

    A packet above the window [cack + 1, cack + MPR) is dropped silently: a requester that keeps to
    the window sends none. (Sources disagree on whether to NACK it.) A packet below the window, or a
    repeated one, is acknowledged at once, since the peer seems not to know that it arrived. When
    the window shrinks, packets that it once allowed are still accepted: they may be on their way.

    A WRITE that memory refuses, or whose lengths are inconsistent (IBTA: first and middle packets
    are full, the length of the message fits the opcode), is answered by a NACK with UNEXP_EVENT:
    MRC's reason for a remote access error is not public.
    """

    def __init__(
        self,
        config: QpConfig,
        memory: MemoryTable,
        events: list[Event],
        counters: Counters,
        reverse: ReversePaths,
    ) -> None:
        self._config = config
        self._memory = memory
        self._events = events
        self._counters = counters
        self._reverse = reverse
        self._cack = config.peer_first_psn - 1
        self._mpr = config.mpr
        self._edge = self._cack + config.mpr * MPR_UNIT
        self._received = 0  # bit i: cack + 1 + i has been placed
        self._ends: list[tuple[int, int, int, int, int, int | None]] = []
        self._receive_completions: list[ReceiveCompletion] = []
        self._delivered = 0
        self._rcvd_bytes = 0
        self._unsacked: list[int] = []
        self._unreported = 0
        self._packets_until_sack = config.sack_packets
        self._since_early = 0
        self._newest: _Trigger | None = None
        self._triggers: list[_Trigger] = []
        self._deadline_ns = NEVER
        self._sack_delay_ns = int(config.sack_delay * config.base_rtt_ns)
        self._sweep = 0
        self._sacks = 0
        self._outbox: deque[Sack | Nack] = deque()
        self.window_penalty = 0
        self.restore_cwnd = False

    @property
    def deadline_ns(self) -> int:
        """When `transmit` has something to send: 0 for now, `NEVER` for not yet."""
        if self._outbox or self._triggers:
            return 0
        return self._deadline_ns

    def set_mpr(self, mpr: int) -> None:
        """Advertise a window of `mpr` units of 128 PSNs from the next SACK on."""
        self._mpr = mpr

    def on_write(self, packet: Write, *, ecn: bool, now_ns: int) -> None:
        """Place a WRITE packet, and acknowledge it now or later."""
        counters = self._counters
        counters.data_received += 1
        self._reverse.data_arrived(now_ns)
        cack = self._cack
        seq = unwrap_psn(packet.psn, cack + 1)
        position = seq - cack - 1
        if seq >= self._edge:
            counters.out_of_window += 1
            return
        if position < 0 or self._received >> position & 1:
            size = 0
            counters.duplicates += 1
        else:
            payload = packet.payload
            size = len(payload)
            if not self._lengths_fit(packet, size):
                counters.invalid_request += 1
                self._nack(packet, NackReason.UNEXP_EVENT, now_ns)
                return
            try:
                self._memory.place(packet.rkey, packet.va, payload)
            except AccessError as error:
                if isinstance(error, RkeyError):
                    counters.unknown_rkey += 1
                else:
                    counters.out_of_bounds += 1
                self._nack(packet, NackReason.UNEXP_EVENT, now_ns)
                return
            counters.bytes_placed += size
            self._rcvd_bytes += size
            if packet.opcode in _LAST_OPCODES:
                length = packet.dma_length
                start = packet.va + size - length
                end = (seq, packet.msn, start, packet.rkey, length, packet.immediate)
                heappush(self._ends, end)
            self._received |= 1 << position
            if position == 0:
                self._advance(now_ns)
        self._events.append(new(Placed, (seq, packet.ev, size, packet.retransmitted, now_ns)))
        self._unsacked.append(seq)
        self._unreported += 1
        trigger = new(
            _Trigger,
            (seq, packet.ev, packet.tx_timestamp, EvMark.SKIP_ONCE if ecn else EvMark.NONE),
        )
        if (
            self._unreported >= self._packets_until_sack
            or ecn
            or packet.retransmitted
            or packet.ack_request
            or size == 0
        ):
            self._triggers.append(trigger)
            self._since_early = (self._since_early + 1) % _EARLY_PERIOD
            self._packets_until_sack = self._config.sack_packets - (self._since_early == 0)
            self._unreported = 0
            self._deadline_ns = NEVER
        else:
            self._newest = trigger
            if self._deadline_ns == NEVER:
                self._deadline_ns = now_ns + self._sack_delay_ns

    def _lengths_fit(self, packet: Write, size: int) -> bool:
        mtu = self._config.mtu
        if packet.opcode in _ONLY_OPCODES:
            return size == packet.dma_length <= mtu
        if packet.opcode in _LAST_OPCODES:
            return 0 < size <= mtu < packet.dma_length
        return size == mtu < packet.dma_length

    def on_trimmed(self, packet: TrimmedWrite, *, last_hop: bool, now_ns: int) -> None:
        """Ask for a packet whose payload a switch has cut off."""
        self._counters.trimmed_received += 1
        seq = unwrap_psn(packet.psn, self._cack + 1)
        position = seq - self._cack - 1
        if seq >= self._edge:
            self._counters.out_of_window += 1
        elif position >= 0 and not self._received >> position & 1:
            reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
            self._nack(packet, reason, now_ns)

    def on_probe(self, probe: ReliabilityProbe) -> None:
        """Report the whole window: the SACK with `probe_reply` comes last."""
        trigger = _Trigger(self._cack, probe.ev, probe.tx_timestamp, EvMark.NONE)
        first = self._cack + 1
        above = range(
            first + SACK_BITMAP_BITS, first + self._received.bit_length(), SACK_BITMAP_BITS
        )
        ev = trigger.ev
        self._outbox.extend(self._sack(trigger, start, ev) for start in above)
        self._outbox.append(self._sack(trigger, first, ev, probe_id=probe.probe_id))

    def transmit(self, now_ns: int) -> deque[Sack | Nack]:
        """Return the queue of packets to send now; the caller pops what it sends."""
        if self._deadline_ns <= now_ns and self._newest is not None:
            self._triggers.append(self._newest)
            self._unreported = 0
            self._deadline_ns = NEVER
        if self._triggers:
            self._report(now_ns)
        return self._outbox

    def _advance(self, now_ns: int) -> None:
        received = self._received
        run = (~received & (received + 1)).bit_length() - 1
        self._received = received >> run
        self._cack += run
        ends = self._ends
        while ends and ends[0][0] <= self._cack:
            _, msn, va, rkey, length, immediate = heappop(ends)
            message = unwrap_msn(msn, self._delivered)
            self._delivered = message + 1
            self._events.append(MessageDelivered(message, va, rkey, length, now_ns))
            if immediate is not None:
                self._receive_completions.append(ReceiveCompletion(message, immediate, length))

    def take_receive_completions(self) -> list[ReceiveCompletion]:
        completions, self._receive_completions = self._receive_completions, []
        return completions

    def _report(self, now_ns: int) -> None:
        """Queue SACKs that report every packet received since the last SACKs.

        Each bitmap ends at the newest packet that it has to report. In steady flow many SACKs thus
        report a packet, and losing one of them does no harm. A packet may still be unknown to the
        peer, if the only SACK for a filled hole was lost. Therefore, while the window is longer
        than a bitmap, a sweep walks through it from cack, one bitmap with every second SACK.
        """
        first = self._cack + 1
        starts: list[int] = []
        covered_from = NEVER
        for seq in sorted(self._unsacked, reverse=True):
            if seq < first:
                break
            if seq < covered_from:
                covered_from = max(first, seq - SACK_BITMAP_BITS + 1)
                starts.append(covered_from)
        self._unsacked.clear()
        self._sacks += 1
        extent = self._received.bit_length()
        if extent > SACK_BITMAP_BITS and self._sacks % _SWEEP_PERIOD == 0:
            self._sweep += SACK_BITMAP_BITS
            if self._sweep >= extent:
                self._sweep = 0
            starts.append(first + self._sweep)
        newest = starts[0] if starts else first
        triggers = self._triggers
        for index in range(max(len(triggers), len(starts))):
            trigger = triggers[index] if index < len(triggers) else self._unmarked(triggers[-1])
            start = starts[index] if index < len(starts) else newest
            self._outbox.append(
                self._sack(trigger, start, self._reverse.for_sack(trigger.ev, now_ns))
            )
        triggers.clear()

    @staticmethod
    def _unmarked(trigger: _Trigger) -> _Trigger:
        return _Trigger(trigger.seq, trigger.ev, trigger.tx_timestamp, EvMark.NONE)

    def _sack(self, trigger: _Trigger, start: int, ev: int, probe_id: int | None = None) -> Sack:
        config = self._config
        cack = self._cack
        self._counters.sacks_sent += 1
        self._edge = max(self._edge, cack + self._mpr * MPR_UNIT)
        offset = trigger.seq - cack if probe_id is None else probe_id
        return Sack(
            source=config.local_address,
            destination=config.peer_address,
            ev=ev,
            qpn=config.peer_qpn,
            mark=trigger.mark,
            probe_reply=probe_id is not None,
            ack_psn_offset=((offset + 0x8000) & 0xFFFF) - 0x8000,
            reflected_ev=trigger.ev,
            cack_psn=wrap_psn(cack),
            mpr=self._mpr,
            sack_offset=start - cack,
            bitmap=self._received >> (start - cack - 1) & _BITMAP_MASK,
            tx_timestamp=trigger.tx_timestamp,
            ooo_count=min(self._received.bit_count(), _MAX_OOO_COUNT),
            restore_cwnd=self.restore_cwnd,
            rcv_cwnd_pen=self.window_penalty,
            rcvd_bytes=self._rcvd_bytes // RCVD_BYTES_UNIT & _RCVD_BYTES_MASK,
        )

    def _nack(self, packet: Write | TrimmedWrite, reason: NackReason, now_ns: int) -> None:
        config = self._config
        self._counters.nacks_sent += 1
        self._outbox.append(
            Nack(
                source=config.local_address,
                destination=config.peer_address,
                ev=self._reverse.for_nack(packet.ev, now_ns),
                qpn=config.peer_qpn,
                reason=reason,
                reflected_ev=packet.ev,
                nack_psn=packet.psn,
                tx_timestamp=packet.tx_timestamp,
            )
        )
