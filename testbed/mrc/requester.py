"""The requester half of a queue pair: sprays the packets of its send queue, repairs losses."""

from collections import deque
from typing import Final

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.congestion.window import CongestionControl
from testbed.mrc.constants import (
    MPR_UNIT,
    NEVER,
    TIMESTAMP_RTT_BITS,
    TIMESTAMP_SHIFT,
    EndpointOp,
    EvMark,
    NackReason,
)
from testbed.mrc.counters import Counters
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.ev import Ev
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Event, Lost, Spurious
from testbed.mrc.message import Completion, CompletionStatus, Message
from testbed.mrc.ports import PortStatus
from testbed.mrc.recovery.loss import LossDetector, LossReason
from testbed.mrc.recovery.retry import Remedy, RetryTimer
from testbed.mrc.recovery.scoreboard import Scoreboard
from testbed.mrc.recovery.send_queue import SendQueue
from testbed.mrc.recovery.transmission import Transmission
from testbed.mrc.wire.datagram import Datagram
from testbed.mrc.wire.packets import (
    Ack,
    EndpointRequest,
    EndpointResponse,
    Nack,
    ReliabilityProbe,
    Sack,
)
from testbed.mrc.wire.packing import pack
from testbed.mrc.wire.psn import unwrap_psn, wrap_psn

_REMEMBER_LOSSES: Final = 1024
"""So many transmissions taken for lost are kept, to be known again if they were late. Ours."""

_PROBE_ID_MASK: Final = 0xFFFF
"""A SACK returns it in 16 bits."""


def timestamp_shift(base_rtt_ns: int) -> int:
    """Return the power of two of ns that is the unit of timestamps at this base RTT."""
    return max(TIMESTAMP_SHIFT, (base_rtt_ns - 1).bit_length() - TIMESTAMP_RTT_BITS)


class Requester:
    """Sends what is posted, until each message is acknowledged whole, in order."""

    def __init__(
        self,
        config: QpConfig,
        engine: EvEngine,
        rtt: RttEstimator,
        congestion: CongestionControl,
        events: list[Event],
        counters: Counters,
        reverse: ReversePaths,
        ports: PortStatus,
    ) -> None:
        self._config = config
        self._engine = engine
        self._rtt = rtt
        self._congestion = congestion
        self._events = events
        self._counters = counters
        self._reverse = reverse
        self._ports = ports
        self._detector = LossDetector(rtt)
        self._retry = RetryTimer(
            rtt,
            probes=config.tail_probes,
            linear_retries=config.linear_retries,
            exponential_retries=config.exponential_retries,
        )
        self._timestamp_shift = timestamp_shift(config.base_rtt_ns)
        self._scoreboard = Scoreboard(config.first_psn)
        self._window = config.mpr * MPR_UNIT
        self._remembered: dict[int, Transmission] = {}
        self._queue = SendQueue(config.mtu, config.max_immediates)
        self._order = 0
        self._flight = 0
        self._probes: dict[int, tuple[int, int]] = {}
        self._control: deque[ReliabilityProbe | EndpointRequest] = deque()
        self._stuck = False
        self._probing = False

    @property
    def flight(self) -> int:
        """Payload bytes in flight."""
        return self._flight

    # Posting and completing

    def post_write(
        self, wr_id: int, payload: memoryview, va: int, rkey: int, immediate: int | None = None
    ) -> None:
        """Queue a WRITE, with 32 bits of immediate data or without."""
        self._queue.post(wr_id, payload, va, rkey, immediate)

    def take_completions(self) -> list[Completion]:
        """Return the completions since the last call, in the order of posting."""
        return self._queue.take_completions()

    @property
    def failed(self) -> bool:
        """Whether the QP is in ERROR."""
        return self._queue.failed

    def fail(self, status: CompletionStatus, culprit: Message | None = None) -> None:
        """Put the QP into ERROR: `culprit`, or else the oldest message, bears the status."""
        self._detector.lose_all()
        self._scoreboard.clear()
        self._control.clear()
        self._flight = 0
        self._queue.fail(status, culprit)

    # Receiving

    def on_sack(self, sack: Sack, now_ns: int) -> None:
        """Take in a SACK: what has arrived, what it says of the EV, window and penalty.

        Its bitmap is heeded even if a newer SACK has overtaken it; what it says of the present is
        not. One that acknowledges what was never sent is counted and ignored.
        """
        self._counters.sacks_received += 1
        if self.failed:
            return
        scoreboard = self._scoreboard
        oldest = scoreboard.oldest_seq
        cack = unwrap_psn(sack.cack_psn, oldest - 1)
        if cack >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        if cack >= oldest - 1:  # not one that newer ones have overtaken
            if sack.mpr:
                self._window = sack.mpr * MPR_UNIT
            self._congestion.on_penalty(sack.rcv_cwnd_pen, restore=sack.restore_cwnd)
        acked = scoreboard.acknowledged(cack, cack + sack.sack_offset, sack.bitmap)
        if sack.probe_reply:
            self._on_probe_reply(sack, now_ns)
        else:
            self._check_spurious(cack + sack.ack_psn_offset, sack, now_ns)
        if sack.mark is EvMark.SKIP_ONCE and self._config.ecn_skip:
            self._engine.skip(sack.reflected_ev, "ECN", now_ns)
        elif sack.mark is EvMark.ALWAYS_SKIP:
            self._engine.report_loss(sack.reflected_ev, "peer asks to skip it", now_ns)
        if acked:
            self._take_in(acked, cack, sack, now_ns)

    def on_ack(self, ack: Ack, now_ns: int) -> None:
        """Take in a transport ACK: all up to its PSN has arrived, on what EVs it does not say.

        So it completes messages and clocks the window, and teaches nothing about paths: a delay
        without its EV would be held against the wrong one. No source says what MRC's responder
        sends it for; ours sends SACKs, which say more.
        """
        scoreboard = self._scoreboard
        cack = unwrap_psn(ack.psn, scoreboard.oldest_seq - 1)
        if cack >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        acked = scoreboard.acknowledged(cack, cack + 1, 0)
        if acked and not self.failed:
            self._take_in(acked, cack, None, now_ns)

    def _timestamp(self, sent_ns: int) -> int:
        return sent_ns >> self._timestamp_shift & 0xFFFF

    def _take_in(
        self, acked: list[Transmission], cack: int, sack: Sack | None, now_ns: int
    ) -> None:
        """Take in what a SACK, or an ACK, has newly acknowledged."""
        trigger = None
        if sack is not None and not sack.probe_reply:
            trigger = cack + sack.ack_psn_offset
        rtt_ns: int | None = None
        fabric_ns: int | None = None
        acked_bytes = 0
        delivered: list[Transmission] = []
        for transmission in acked:
            acked_bytes += transmission.length
            if transmission.done:
                self._was_spurious(transmission, now_ns)
                continue
            transmission.done = True
            self._flight -= transmission.length
            delivered.append(transmission)
            previous = transmission.previous
            if (
                sack is not None
                and transmission.seq == trigger
                and self._timestamp(transmission.sent_ns) == sack.tx_timestamp
            ):
                if previous is None:
                    rtt_ns = now_ns - transmission.sent_ns
                    fabric_ns = rtt_ns - transmission.port_wait_ns
            elif previous is not None and self._detector.too_early(transmission, now_ns):
                self._was_spurious(previous, now_ns)
        if rtt_ns is not None and sack is not None:
            self._rtt.sample(rtt_ns, now_ns)
            self._reverse.proved(sack.reflected_ev, rtt_ns, now_ns)
        self._detector.delivered(delivered, now_ns)
        self._retry.progressed(now_ns)
        ecn = sack is not None and sack.mark is EvMark.SKIP_ONCE
        self._congestion.on_sack(acked_bytes, fabric_ns, ecn=ecn, now_ns=now_ns)
        self._queue.acknowledged(self._scoreboard.oldest_seq)

    def _on_probe_reply(self, sack: Sack, now_ns: int) -> None:
        probe = self._probes.pop(sack.ack_psn_offset & _PROBE_ID_MASK, None)
        if probe is not None:
            order, sent_ns = probe
            self._detector.probe_answered(order, sent_ns, now_ns)
            self._retry.heard(now_ns)

    def _check_spurious(self, seq: int, sack: Sack, now_ns: int) -> None:
        """See whether the packet that triggered this SACK is one that was taken for lost."""
        lost = self._remembered.get(seq)
        if (
            lost is not None
            and lost.ev.value == sack.reflected_ev
            and self._timestamp(lost.sent_ns) == sack.tx_timestamp
        ):
            self._was_spurious(lost, now_ns)

    def _was_spurious(self, lost: Transmission, now_ns: int) -> None:
        if self._remembered.get(lost.seq) is not lost:
            return
        del self._remembered[lost.seq]
        self._counters.spurious += 1
        self._detector.came_late(lost, now_ns)
        ev = lost.ev
        self._events.append(Spurious(lost.seq, ev.value, ev.plane, lost.sent_ns, now_ns))
        self._engine.retract_loss(ev.value, now_ns)

    def on_nack(self, nack: Nack, now_ns: int) -> None:
        """Take in a NACK: repeat the packet at once, or fail where the peer's memory refused it.

        It counts only for the transmission that it answers, which the timestamp tells. A trim is
        congestion: the EV is skipped once, but not for a full last hop, which all EVs share (MRC
        paper, section 2). A refusal for want of resources says nothing of the path either.
        """
        scoreboard = self._scoreboard
        seq = unwrap_psn(nack.nack_psn, scoreboard.oldest_seq)
        if seq >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        transmission = scoreboard.unacked.get(seq)
        if (
            self.failed
            or transmission is None
            or transmission.done
            or self._timestamp(transmission.sent_ns) != nack.tx_timestamp
        ):
            return
        if nack.reason is NackReason.UNEXP_EVENT:
            self.fail(CompletionStatus.REMOTE_ACCESS_ERROR, transmission.message)
            return
        trimmed = nack.reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
        if trimmed:
            self._counters.trimmed_nacks += 1
            self._retry.progressed(now_ns)
        else:
            self._retry.heard(now_ns)
        transmission.done = True
        self._repeat(transmission)
        if nack.reason is NackReason.TRIMMED:
            self._engine.skip(transmission.ev.value, "trimmed", now_ns)
        elif nack.reason is NackReason.TRIMMED_LASTHOP:
            self._detector.met_incast(now_ns)
        self._congestion.on_loss(transmission.length, trimmed=trimmed, now_ns=now_ns)

    def on_response(self, response: EndpointResponse, now_ns: int) -> None:
        """Take in the answer to an EV probe or to a port status update."""
        if response.op is EndpointOp.EV_PROBE:
            self._reverse.probe_answered(response.reflected_ev, response.request_id, now_ns)
            self._engine.probe_answered(response.reflected_ev, response.request_id, now_ns)
        else:
            self._ports.answered(response.request_id)

    def ports_changed(self, now_ns: int) -> None:
        """Act on a changed port, own or peer's: what is in flight there is judged soon."""
        for ev_value in self._engine.set_down(self._ports.down, now_ns):
            self._detector.fell_silent(ev_value)

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `transmit` has something to do: 0 for now, `NEVER` if nothing but arrivals can."""
        deadline_ns = min(
            self._engine.deadline_ns, self._reverse.deadline_ns, self._ports.deadline_ns
        )
        if self.failed:
            return NEVER
        if self._control or self._may_send():
            return 0
        if self._scoreboard.unacked or self._retry.starving:
            detector = self._detector
            deadline_ns = min(
                deadline_ns,
                detector.deadline_ns,
                self._retry.deadline_ns(detector.reorder_window_ns),
            )
        return deadline_ns

    def _may_send(self) -> bool:
        if self._stuck:
            return False
        length = self._next_length()
        if length is None:
            return False
        if self._flight == 0:
            return True
        return not self._retry.timeouts and self._flight + length <= self._congestion.window

    def _next_length(self) -> int | None:
        scoreboard = self._scoreboard
        again = scoreboard.to_repeat()
        if again is not None:
            return again.length
        if scoreboard.next_seq - scoreboard.oldest_seq >= self._window - 1:
            return None
        return self._queue.next_length()

    def on_time(self, now_ns: int) -> None:
        """Judge what is due: losses, silence, EV probes."""
        if self.failed:
            return
        detector = self._detector
        if self._scoreboard.unacked or self._retry.starving:
            for transmission, reason in detector.lost(now_ns):
                self._lose(transmission, reason, now_ns)
            if now_ns >= self._retry.deadline_ns(detector.reorder_window_ns):
                self._break_silence(now_ns)
        if self._queue.has_more and not self._probing:
            self._probing = True
            self._engine.start(now_ns)
        for ev_value, probe_id in self._engine.due_probes(now_ns):
            self._probe_ev(ev_value, probe_id)
        reverse = self._reverse.due_probe(now_ns, outbound=bool(self._scoreboard.unacked))
        if reverse is not None:
            self._probe_ev(*reverse)
        update_id = self._ports.due_update(now_ns)
        if update_id is not None:
            ev = self._engine.pick_for_probe(now_ns)
            if ev is not None:
                self._ask(ev.value, EndpointOp.PORT_STATUS_UPDATE, update_id)
        self._stuck = False

    def _probe_ev(self, ev_value: int, probe_id: int) -> None:
        self._counters.ev_probes += 1
        self._ask(ev_value, EndpointOp.EV_PROBE, probe_id)

    def _ask(self, ev_value: int, op: EndpointOp, request_id: int) -> None:
        config = self._config
        mask = self._ports.mask if op is EndpointOp.PORT_STATUS_UPDATE else 0
        self._control.append(
            EndpointRequest(
                config.local_address,
                config.peer_address,
                ev_value,
                op,
                request_id,
                config.qpn,
                mask,
            )
        )

    def _break_silence(self, now_ns: int) -> None:
        remedy = self._retry.expire(now_ns)
        if remedy is Remedy.GIVE_UP:
            self.fail(CompletionStatus.RETRY_EXCEEDED)
        elif remedy is Remedy.TIMEOUT:
            self._counters.timeouts += 1
            for transmission in self._detector.lose_all():
                self._lose(transmission, LossReason.TIMEOUT, now_ns)
        else:
            self._probe_tail(now_ns)

    def _probe_tail(self, now_ns: int) -> None:
        oldest = self._detector.oldest()
        ev = self._engine.pick_for_probe(now_ns, oldest.ev if oldest is not None else None)
        if ev is None:
            return
        order = self._order
        self._order += 1
        probe_id = order & _PROBE_ID_MASK
        if len(self._probes) > self._config.tail_probes:
            self._probes.clear()
        self._probes[probe_id] = order, now_ns
        self._counters.tail_probes += 1
        self._control.append(
            ReliabilityProbe(
                self._config.local_address,
                self._config.peer_address,
                ev.value,
                self._config.peer_qpn,
                wrap_psn(self._scoreboard.next_seq),
                probe_id,
                self._timestamp(now_ns),
            )
        )

    def _lose(self, transmission: Transmission, reason: LossReason, now_ns: int) -> None:
        """Take a transmission, marked done, for lost without a trace."""
        ev = transmission.ev
        self._counters.lost += 1
        self._events.append(
            Lost(transmission.seq, ev.value, ev.plane, transmission.sent_ns, reason.value, now_ns)
        )
        remembered = self._remembered
        remembered.pop(transmission.seq, None)
        remembered[transmission.seq] = transmission
        if len(remembered) > _REMEMBER_LOSSES:
            del remembered[next(iter(remembered))]
        self._repeat(transmission)
        self._congestion.on_loss(transmission.length, trimmed=False, now_ns=now_ns)
        delivers = reason is LossReason.OVERTAKEN
        condemned = self._engine.report_loss(ev.value, reason.value, now_ns, delivers=delivers)
        if condemned and reason is LossReason.LATE:
            self._detector.fell_silent(ev.value)

    def _repeat(self, transmission: Transmission) -> None:
        self._flight -= transmission.length
        scoreboard = self._scoreboard
        scoreboard.repeat(transmission)
        if self._config.go_back:
            for behind in scoreboard.unacked.values():
                if behind.seq > transmission.seq and not behind.done:
                    behind.done = True
                    self._flight -= behind.length
                    scoreboard.repeat(behind)

    # Sending

    def control(self) -> deque[ReliabilityProbe | EndpointRequest]:
        """Return the queue of control packets; the caller pops what it sends."""
        return self._control

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return at most `limit` data packets: retransmissions, oldest first, then new ones."""
        config, scoreboard = self._config, self._scoreboard
        datagrams: list[Datagram] = []
        while len(datagrams) < limit and self._may_send():
            previous = scoreboard.to_repeat()
            ev = self._engine.pick(now_ns, previous.ev if previous is not None else None)
            if ev is None:
                self._stuck = True
                if not scoreboard.unacked:
                    self._retry.starve(now_ns)
                break
            if previous is not None:
                transmission = self._send_again(previous, ev, now_ns)
            else:
                transmission = self._send_new(ev, now_ns)
            is_last = not self._queue.has_more and transmission.seq == scoreboard.next_seq - 1
            datagrams.append(pack(config, transmission, self._timestamp(now_ns), is_last))
        return datagrams

    def _send_new(self, ev: Ev, now_ns: int) -> Transmission:
        scoreboard = self._scoreboard
        seq = scoreboard.next_seq
        scoreboard.next_seq = seq + 1
        message, offset, length = self._queue.cut(seq)
        return self._send(Transmission(seq, message, offset, length, ev, self._order, now_ns, None))

    def _send_again(self, previous: Transmission, ev: Ev, now_ns: int) -> Transmission:
        self._counters.retransmitted += 1
        previous.previous = None
        return self._send(
            Transmission(
                previous.seq,
                previous.message,
                previous.offset,
                previous.length,
                ev,
                self._order,
                now_ns,
                previous,
            )
        )

    def _send(self, transmission: Transmission) -> Transmission:
        unacked = self._scoreboard.unacked
        self._order += 1
        self._counters.data_sent += 1
        self._retry.sent(transmission.sent_ns, was_idle=not unacked)
        unacked[transmission.seq] = transmission
        self._flight += transmission.length
        self._detector.sent(transmission)
        return transmission
