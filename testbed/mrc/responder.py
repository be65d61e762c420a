"""The responder half of a queue pair: places WRITEs in any order and reports them in SACKs.

Each WRITE says where its bytes go, so a packet is placed the moment it arrives, however many are
missing before it. A bitmap above the left edge (`cack`: all up to it have arrived) says which have.
When enough bytes are unreported, or the oldest has waited long enough, a SACK reports edge and
bitmap; it answers one packet, the *trigger*, whose EV and timestamp it reflects, and so measures
one path. A trimmed packet, one beyond the window and one that cannot be taken now are answered by a
NACK, at once.

Messages complete in order, when the edge passes their ends (`Delivery`), and a transport ACK says
so. `receive` only notes what is due; `transmit` makes the packets.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, NamedTuple

from testbed.mrc.config import NOT_BUSY, BusyState, QpConfig
from testbed.mrc.constants import (
    AETH_MSN_MASK,
    ECN_CE,
    MPR_UNIT,
    NEVER,
    RCVD_BYTES_UNIT,
    SACK_BITMAP_BITS,
    SACK_LEAST_BYTES,
    EvMark,
    NackReason,
    NakCode,
)
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Counters, Event, MessageDelivered, Placed
from testbed.mrc.message import (
    AccessError,
    CompletionStatus,
    MemoryTable,
    ReceiveCompletion,
    RkeyError,
)
from testbed.mrc.wire.control import Ack, Nack, ReliabilityProbe, RequestPacket, Sack
from testbed.mrc.wire.datagram import Arrival, new
from testbed.mrc.wire.kinds import (
    Opcode,
    TrimmedWrite,
    Write,
    nominal_size,
    unwrap_msn,
    unwrap_psn,
    wrap_psn,
)

# --------------------------------------------------------------------------------------------------
# Messages at the responder: when they are complete, what they consume, what is acknowledged.
#
# Packets are placed in any order, messages complete in order. A transport ACK (opcode D1) is due
# when the left edge of what has arrived passes the end of a message or a packet with AckReq, one
# for all that it passes; and when a packet from below the edge arrives again, since its ACK may be
# lost.
#
# Each WRITE with immediate consumes a posted receive (OCP MRC API). A WRITE that cannot be carried
# out is answered by a NAK in place of an ACK, once all before it has arrived, and nothing completes
# after it. Codes are IBTA's; which of them MRC uses for a missing receive is not public.


class Delivery:
    """What a responder has received, message by message.

    Attributes:
        ack_due: whether an ACK, or a NAK, is to be sent.
        delivered: messages completed.
        next_seq: the oldest packet at which `advance` has something to do.
    """

    def __init__(self, config: QpConfig, events: list[Event], counters: Counters) -> None:
        self._config = config
        self._events = events
        self._counters = counters
        self._ends: list[tuple[int, int, int, int, int, int | None]] = []
        self._ack_requests: list[int] = []
        self._immediates = 0
        self._receives: deque[int] = deque()
        self._completions: list[ReceiveCompletion] = []
        self._failed_seq = NEVER
        self._error: NakCode | None = None
        self.ack_due = False
        self.delivered = 0
        self.next_seq = NEVER

    def end_of_message(self, packet: Write, seq: int) -> None:
        """Note that the last packet of a message has arrived."""
        immediate, length = packet.immediate, packet.dma_length
        start = packet.va + len(packet.payload) - length
        heappush(self._ends, (seq, packet.msn, start, packet.rkey, length, immediate))
        self.next_seq = min(self.next_seq, seq)
        if immediate is not None:
            self._immediates += 1
            if self._immediates > self._config.capabilities.immediates:
                self._counters.excess_immediates += 1
                self.fail(seq, NakCode.INVALID_REQUEST)

    def ack_request(self, seq: int) -> None:
        """Note that packet `seq` asks for an ACK."""
        heappush(self._ack_requests, seq)
        self.next_seq = min(self.next_seq, seq)

    def fail(self, seq: int, error: NakCode) -> None:
        """Note that packet `seq` cannot be carried out; the first such packet decides."""
        if seq < self._failed_seq:
            self._failed_seq, self._error = seq, error
            self.next_seq = min(self.next_seq, seq)

    def advance(self, cack: int, now_ns: int) -> None:
        """Complete the messages that end at `cack` or before: all packets so far have arrived."""
        requests = self._ack_requests
        while requests and requests[0] <= cack:
            heappop(requests)
            self.ack_due = True
        ends = self._ends
        while ends and ends[0][0] <= cack and ends[0][0] < self._failed_seq:
            seq, msn, va, rkey, length, immediate = ends[0]
            if immediate is not None and not self._receives:
                self._counters.no_receive += 1
                self.fail(seq, NakCode.REMOTE_OPERATION_ERROR)
                break
            heappop(ends)
            message = unwrap_msn(msn, self.delivered)
            self.delivered = message + 1
            self.ack_due = True
            self._events.append(MessageDelivered(message, va, rkey, length, now_ns))
            if immediate is not None:
                self._immediates -= 1
                wr_id = self._receives.popleft()
                self._completions.append(ReceiveCompletion(message, immediate, length, wr_id))
        if cack >= self._failed_seq:
            self.ack_due = True
        self.next_seq = min(
            requests[0] if requests else NEVER, ends[0][0] if ends else NEVER, self._failed_seq
        )

    def take_ack(self, cack: int, ev: int) -> Ack:
        """Return the ACK of everything up to `cack`, or the NAK, to be sent on `ev`."""
        config = self._config
        self.ack_due = False
        failed = cack >= self._failed_seq
        self._counters.naks_sent += failed
        return Ack(
            config.local_address,
            config.peer_address,
            ev,
            config.peer_qpn,
            wrap_psn(self._failed_seq if failed else cack),
            self.delivered & AETH_MSN_MASK,
            self._error if failed else None,
        )

    def post_receive(self, wr_id: int, *, flushed: bool) -> None:
        """Post a receive, or flush it."""
        self._receives.append(wr_id)
        if flushed:
            self.flush()

    def flush(self) -> None:
        while self._receives:
            wr_id = self._receives.popleft()
            self._completions.append(ReceiveCompletion(0, 0, 0, wr_id, CompletionStatus.FLUSHED))

    def take_completions(self) -> list[ReceiveCompletion]:
        """Return the receives that have completed since the last call."""
        completions, self._completions = self._completions, []
        return completions


_BITMAP_MASK: Final = (1 << SACK_BITMAP_BITS) - 1
_MAX_OOO_COUNT: Final = (1 << 15) - 1
_ONLY_OPCODES: Final = frozenset((Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE))
_LAST_OPCODES: Final = _ONLY_OPCODES | {Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMMEDIATE}
_RCVD_BYTES_MASK: Final = (1 << 24) - 1
_EARLY_PERIOD: Final = 3
"""Every third SACK is sent one packet early. If each were sent after 8 packets, then with 2, 4 or 8
planes a packet of the same plane would always trigger it, and only its delay would be measured."""

_BEHIND: Final = (1 << 23) - 1
"""A PSN that is further behind the next expected one is invalid (OCP MRC 1.0, one source)."""

_SWEEP_PERIOD: Final = 2
"""Every second time, a SACK of the sweep is sent too (see `Responder._report`)."""


class _Trigger(NamedTuple):
    """The packet that a SACK answers: it reflects this EV and timestamp."""

    seq: int
    ev: int
    tx_timestamp: int
    mark: EvMark
    retransmitted: bool = False


class Responder:
    """Receives what the peer's requester sends.

    A packet above the window, from cack + 1 to cack + MPR, is answered by a NACK or dropped
    silently, as the configuration says. A packet below the window, or a repeated one, is
    acknowledged at once, since the peer seems not to know that it arrived. When the window shrinks,
    packets that it once allowed are still accepted: they may be on their way.

    A WRITE that cannot be carried out counts as received, and its operation is answered by a NAK
    once all before it has arrived: one that memory refuses; one whose lengths are inconsistent
    (IBTA: first and middle packets are full, the length of the message fits the opcode); an
    immediate beyond the agreed number, or for which no receive is posted. Nothing completes after
    it.
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
        self._mpr = config.capabilities.mpr
        self._edge = self._cack + config.window_packets
        self._received = 0  # bit i: cack + 1 + i has been placed
        self.delivery = Delivery(config, events, counters)
        self._answered_ev = 0
        self._rcvd_bytes = 0
        self._unsacked: list[int] = []
        self._unreported = 0
        self._early_bytes = max(config.mtu, SACK_LEAST_BYTES)
        self._bytes_until_sack = config.sack_bytes
        self._since_early = 0
        self._newest: _Trigger | None = None
        self._triggers: list[_Trigger] = []
        self._deadline_ns = NEVER
        self._sack_delay_ns = int(config.sack_delay * config.base_rtt_ns)
        self._sweep = 0
        self._sacks = 0
        self._outbox: deque[Sack | Nack | Ack] = deque()
        self._busy = NOT_BUSY
        self._is_busy = False
        self._restore_cwnd = False
        self._refusable = 0.0
        self.refused_busy = 0

    @property
    def deadline_ns(self) -> int:
        """When `transmit` has something to send: 0 for now, `NEVER` for not yet."""
        if self._outbox or self._triggers or self.delivery.ack_due:
            return 0
        return self._deadline_ns

    def set_mpr(self, mpr: int) -> None:
        """Advertise a window of `mpr` units of 128 PSNs from the next SACK on."""
        self._mpr = mpr

    def set_busy(self, busy: BusyState) -> None:
        """Treat arrivals so from now on; from the end of a penalty to the next, ask to restore."""
        if bool(busy.penalty) != bool(self._busy.penalty):
            self._restore_cwnd = not busy.penalty and self._busy.restores
        self._busy = busy
        self._is_busy = busy != NOT_BUSY

    def receive(self, packet: RequestPacket, arrival: Arrival) -> None:
        """Process a packet of the peer's requester."""
        ecn = arrival.ecn == ECN_CE
        if isinstance(packet, Write):
            self._on_write(packet, ecn=ecn, now_ns=arrival.rx_ns)
        elif isinstance(packet, ReliabilityProbe):
            self._on_probe(packet, ecn=ecn)
        else:
            last_hop = arrival.dscp == self._config.dscp.trimmed_lasthop
            self._on_trimmed(packet, last_hop=last_hop, now_ns=arrival.rx_ns)

    def _on_write(self, packet: Write, *, ecn: bool, now_ns: int) -> None:
        """Place a WRITE packet, and acknowledge it now or later."""
        counters = self._counters
        counters.data_received += 1
        self._reverse.data_arrived(now_ns)
        seq = unwrap_psn(packet.psn, self._cack + 1)
        position = seq - self._cack - 1
        if seq > self._edge or position < -_BEHIND:
            self._refuse_beyond(packet, seq, now_ns)
            return
        if position < 0 or self._received >> position & 1:
            size = 0
            counters.duplicates += 1
            if position < 0:
                self.delivery.ack_due = True
        elif self._is_busy and self._refuses_busy(packet, now_ns):
            return
        else:
            size = self._take_in(packet, seq)
            self._received |= 1 << position
            if position == 0:
                self._advance(now_ns)
        self._events.append(new(Placed, (seq, packet.ev, size, packet.retransmitted, now_ns)))
        self._unsacked.append(seq)
        self._unreported += max(size, SACK_LEAST_BYTES)
        self._answered_ev = packet.ev
        mark = EvMark.SKIP_ONCE if ecn else EvMark.NONE
        if self._is_busy and self._skips(packet.ev):
            mark = EvMark.ALWAYS_SKIP
        timestamp = packet.tx_timestamp or 0  # 0 where it has none
        trigger = new(_Trigger, (seq, packet.ev, timestamp, mark, packet.retransmitted))
        if (
            self._unreported >= self._bytes_until_sack
            or mark is not EvMark.NONE
            or packet.retransmitted
            or packet.ack_request
            or size == 0
        ):
            self._triggers.append(trigger)
            self._since_early = (self._since_early + 1) % _EARLY_PERIOD
            self._bytes_until_sack = self._config.sack_bytes
            if self._since_early == 0:
                self._bytes_until_sack -= self._early_bytes
            self._unreported = 0
            self._deadline_ns = NEVER
        else:
            self._newest = trigger
            if self._deadline_ns == NEVER:
                self._deadline_ns = now_ns + self._sack_delay_ns

    def _skips(self, ev: int) -> bool:
        """Whether the peer shall leave an EV, as this end is busy."""
        return self._busy.skips is not None and self._busy.skips(ev)

    def _refuses_busy(self, packet: Write, now_ns: int) -> bool:
        """Refuse the share of new packets that a busy responder has no room for, evenly."""
        reason = self._busy.refusal
        if reason is None:
            return False
        self._refusable += self._busy.share
        if self._refusable < 1:
            return False
        self._refusable -= 1
        self.refused_busy += 1
        self._nack(packet, reason, now_ns)
        return True

    def _take_in(self, packet: Write, seq: int) -> int:
        """Put a new packet into memory; returns the payload bytes placed, 0 if it is refused."""
        counters, delivery = self._counters, self.delivery
        size = len(packet.payload)
        self._rcvd_bytes += nominal_size(
            size,
            immediate=packet.immediate is not None,
            timestamp=packet.tx_timestamp is not None,
        )
        if packet.ack_request:
            delivery.ack_request(seq)
        if not self._lengths_fit(packet, size):
            counters.invalid_request += 1
            delivery.fail(seq, NakCode.INVALID_REQUEST)
            return 0
        try:
            self._memory.place(packet.rkey, packet.va, packet.payload)
        except AccessError as error:
            if isinstance(error, RkeyError):
                counters.unknown_rkey += 1
            else:
                counters.out_of_bounds += 1
            delivery.fail(seq, NakCode.REMOTE_ACCESS_ERROR)
            return 0
        counters.bytes_placed += size
        if packet.opcode in _LAST_OPCODES:
            delivery.end_of_message(packet, seq)
        return size

    def _lengths_fit(self, packet: Write, size: int) -> bool:
        mtu = self._config.mtu
        if packet.opcode in _ONLY_OPCODES:
            return size == packet.dma_length <= mtu
        if packet.opcode in _LAST_OPCODES:
            return 0 < size <= mtu < packet.dma_length
        return size == mtu < packet.dma_length

    def _on_trimmed(self, packet: TrimmedWrite, *, last_hop: bool, now_ns: int) -> None:
        """Ask for a packet whose payload a switch has cut off."""
        seq = unwrap_psn(packet.psn, self._cack + 1)
        position = seq - self._cack - 1
        if seq > self._edge or position < -_BEHIND:
            self._counters.out_of_window += 1
        elif not self._config.trim_nack:
            self._counters.trims_unanswered += 1
        elif position >= 0 and not self._received >> position & 1:
            reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
            self._nack(packet, reason, now_ns)

    def _refuse_beyond(self, packet: Write, seq: int, now_ns: int) -> None:
        """Refuse a packet above the window; one that is 2^23 or more PSNs behind it is invalid."""
        self._counters.out_of_window += 1
        if self._config.nack_beyond and seq > self._cack:
            self._nack(packet, NackReason.PSN_OOR_WINDOW, now_ns)

    def _on_probe(self, probe: ReliabilityProbe, *, ecn: bool) -> None:
        """Report the whole window; the SACK with `probe_reply` is last and has the probe's mark."""
        mark = EvMark.SKIP_ONCE if ecn else EvMark.NONE
        if self._is_busy and self._skips(probe.ev):
            mark = EvMark.ALWAYS_SKIP
        trigger = _Trigger(self._cack, probe.ev, probe.tx_timestamp, EvMark.NONE)
        first = self._cack + 1
        above = range(
            first + SACK_BITMAP_BITS, first + self._received.bit_length(), SACK_BITMAP_BITS
        )
        ev = trigger.ev
        self._outbox.extend(self._sack(trigger, start, ev) for start in above)
        self._outbox.append(
            self._sack(trigger._replace(mark=mark), first, ev, probe_id=probe.probe_id)
        )

    def transmit(self, now_ns: int) -> deque[Sack | Nack | Ack]:
        """Return the queue of packets to send now; the caller pops what it sends."""
        if self._deadline_ns <= now_ns and self._newest is not None:
            self._triggers.append(self._newest)
            self._unreported = 0
            self._deadline_ns = NEVER
        if self._triggers:
            self._report(now_ns)
        if self.delivery.ack_due:
            self._open_window()
            ev = self._reverse.for_nack(self._answered_ev, now_ns)
            self._outbox.append(self.delivery.take_ack(self._cack, ev))
        return self._outbox

    def _open_window(self) -> None:
        """Accept what the peer may send once it knows the cumulative ACK."""
        self._edge = max(self._edge, self._cack + self._mpr * MPR_UNIT)

    def _advance(self, now_ns: int) -> None:
        received = self._received
        run = (~received & (received + 1)).bit_length() - 1
        self._received = received >> run
        self._cack += run
        if self._cack >= self.delivery.next_seq:
            self.delivery.advance(self._cack, now_ns)

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
        return trigger._replace(mark=EvMark.NONE)

    def _sack(self, trigger: _Trigger, start: int, ev: int, probe_id: int | None = None) -> Sack:
        config = self._config
        cack = self._cack
        self._counters.sacks_sent += 1
        self._open_window()
        offset = trigger.seq - cack if probe_id is None else probe_id
        return Sack(
            source=config.local_address,
            destination=config.peer_address,
            ev=ev,
            qpn=config.peer_qpn,
            retransmitted=trigger.retransmitted,
            spdcid=config.qpn & 0xFFFF,
            cc_type=0,
            mark=trigger.mark,
            probe_reply=probe_id is not None,
            ack_psn_offset=((offset + 0x8000) & 0xFFFF) - 0x8000,
            reflected_ev=trigger.ev,
            cack_psn=wrap_psn(cack),
            mpr=self._mpr if config.dynamic_mpr else 0,
            sack_offset=start - cack,
            bitmap=self._received >> (start - cack - 1) & _BITMAP_MASK,
            tx_timestamp=trigger.tx_timestamp,
            ooo_count=min(self._received.bit_count(), _MAX_OOO_COUNT),
            restore_cwnd=self._restore_cwnd,
            rcv_cwnd_pen=self._busy.penalty,
            rcvd_bytes=-(-self._rcvd_bytes // RCVD_BYTES_UNIT) & _RCVD_BYTES_MASK,
        )

    def _nack(self, packet: Write | TrimmedWrite, reason: NackReason, now_ns: int) -> None:
        config = self._config
        self._outbox.append(
            Nack(
                source=config.local_address,
                destination=config.peer_address,
                ev=self._reverse.for_nack(packet.ev, now_ns),
                qpn=config.peer_qpn,
                spdcid=config.qpn & 0xFFFF,
                reason=reason,
                reflected_ev=packet.ev,
                nack_psn=packet.psn,
                tx_timestamp=packet.tx_timestamp or 0,
            )
        )
