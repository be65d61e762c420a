"""The requester half of a queue pair: sprays data packets over EVs and repairs losses.

There are two layers (OCP MRC 1.0, four sources). SACKs and NACKs are about packets: they free them,
clock the window and judge paths. Transport ACKs are about messages: they complete them, in order;
a NAK fails one, and the queue pair with it.

A call of `on_time` does what time demands, in this order: it acts on ports that changed, declares
packets lost, acts on silence of the peer (`recovery/retry.py`), and queues probes. Then `transmit`
sends: what was declared lost, oldest first, then new packets. Each packet needs room in three
windows: the peer's window of PSNs, the congestion window, and, for new packets, a posted message;
and it needs an EV from the engine, which may have none ("stuck", until something changes).

A packet is known by its sequence number, each time it is sent by a `Transmission`. The scoreboard
keeps the latest one of each packet; an earlier one that a SACK answers after all was no loss, and
its EV is given back what that loss took from it ("spurious").

Its requests to the peer are probes of EVs and of the tail, and port status updates.
"""

from collections import deque
from functools import partial
from typing import Final

from testbed.mrc.config import QpConfig, RecoveryProbe
from testbed.mrc.congestion.control import TRIMS, Flight, RttEstimator, Window
from testbed.mrc.constants import MPR_UNIT, NEVER, REQUEST_ID_MASK, EndpointOp, EvMark, NackReason
from testbed.mrc.endpoint import Answered, Endpoint
from testbed.mrc.entropy import Ev
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.probing import ProbeBatch, ProbeRoom
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Counters, Event, Lost
from testbed.mrc.message import STATUS_OF_NAK, CompletionStatus, Message, PayloadError
from testbed.mrc.recovery.loss import LossDetector, LossReason, SpuriousLosses
from testbed.mrc.recovery.retry import AckWait, RetryAction, RetryTimer
from testbed.mrc.recovery.scoreboard import Scoreboard
from testbed.mrc.recovery.send_queue import SendQueue
from testbed.mrc.transmission import Packer, Transmission
from testbed.mrc.wire.control import (
    Ack,
    EndpointRequest,
    Nack,
    ReliabilityProbe,
    ResponsePacket,
    Sack,
)
from testbed.mrc.wire.datagram import Datagram
from testbed.mrc.wire.kinds import unwrap_psn

_MAX_PROBES: Final = 1024
"""The number of EVs' reliability probes remembered; answers to older ones are useless. Ours."""


class RequestQueue:
    """The requests of a requester to its peer, until they are sent. Times in ns.

    Attributes:
        room: how many EVs may be probed.
        packets: the queue; the caller of `transmit` pops what it sends.
    """

    def __init__(
        self,
        config: QpConfig,
        engine: EvEngine,
        rtt: RttEstimator,
        reverse: ReversePaths,
        counters: Counters,
        endpoint: Endpoint,
    ) -> None:
        self._config = config
        self._engine = engine
        self._rtt = rtt
        self._reverse = reverse
        self._counters = counters
        self._shift = config.timestamp_shift
        self._own_unit = config.own_unit
        self._tail_probes: dict[int, tuple[int, int]] = {}
        self._ev_probes: dict[int, int] = {}
        self.room: Final = ProbeRoom(rtt, config.mtu)
        self.packets: deque[ReliabilityProbe | EndpointRequest] = deque()
        self.join(endpoint)

    def join(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.room.share(endpoint.probes)
        self._ports = endpoint.ports(self._config.peer_address, self._config.base_rtt_ns)
        self._ports_version = 0

    # Ports

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Note a change of the own port of `plane`, and queue a port status update to the peer.

        Raises:
            ValueError: there is no such port.
        """
        self._ports.set_local(plane, down=not up, now_ns=now_ns)

    def port_disabled(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Note the operator's order about the own port of `plane`, and queue a port status update.

        Raises:
            ValueError: there is no such port.
        """
        self._ports.set_disabled(plane, disabled=disabled, now_ns=now_ns)

    def probe(self, batch: ProbeBatch, now_ns: int) -> None:
        """Send an EV probe on every EV of a batch."""
        for ev in batch.evs:
            self._counters.ev_probes += 1
            self._ask(ev, EndpointOp.EV_PROBE, 0, now_ns, partial(batch.answered, ev))

    def apply_port_changes(self, now_ns: int) -> list[int]:
        """Have the engine act on changed ports, own or peer's; return the EVs that lost theirs."""
        if self._ports_version == self._ports.version:
            return []
        self._ports_version = self._ports.version
        return self._engine.set_down(self._ports.down, now_ns)

    @property
    def down_planes(self) -> frozenset[int]:
        """The planes whose port is without carrier or disabled, here or at the peer."""
        return self._ports.down

    def _update_ports(self, now_ns: int) -> None:
        """Send the peer the state of the own ports, for all queue pairs with it."""
        ports = self._ports
        due = ports.due_update(now_ns, self._rtt.timeout_ns)
        if due is None:
            return
        number, repeated = due
        ev = self._engine.pick_any() if repeated else self._engine.pick_for_probe(now_ns)
        if ev is not None:
            self._ask(
                ev.value,
                EndpointOp.PORT_STATUS_UPDATE,
                ports.mask,
                now_ns,
                lambda _: ports.answered(number),
            )

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `on_time` has something to do, or `NEVER`; 0 if something waits to be sent."""
        if self.packets or self._ports_version != self._ports.version:
            return 0
        return min(self._engine.deadline_ns, self._reverse.deadline_ns, self._ports.deadline_ns)

    def count_sent(self, payload: int) -> None:
        """Count payload bytes that are sent: the NIC may probe in proportion to them."""
        self._endpoint.probes.count_sent(payload)

    def on_time(self, now_ns: int, window: int, *, outbound: bool) -> None:
        """Queue the probes and updates that are due.

        Args:
            now_ns: the time.
            window: the congestion window in bytes.
            outbound: whether data is in flight.
        """
        self.room.idle = not outbound
        for ev_value, probe_id in self._engine.due_probes(now_ns, self.room, window):
            self._counters.ev_probes += 1
            if self._config.recovery_probe is RecoveryProbe.RELIABILITY:
                self._ev_probes[probe_id] = ev_value
                if len(self._ev_probes) > _MAX_PROBES:
                    del self._ev_probes[next(iter(self._ev_probes))]
                self._probe(ev_value, probe_id, now_ns)
            else:
                answered = partial(self._ev_answered, ev_value, probe_id)
                self._ask(ev_value, EndpointOp.EV_PROBE, 0, now_ns, answered)
        reverse = self._reverse.due_probe(now_ns, outbound=outbound)
        budget, base_ns = self._endpoint.probes, self._config.base_rtt_ns
        if reverse is not None and budget.room(now_ns, base_ns):
            budget.take(1, now_ns, base_ns)
            self._counters.ev_probes += 1
            answered = partial(self._reverse.probe_answered, *reverse)
            self._ask(reverse[0], EndpointOp.EV_PROBE, 0, now_ns, answered)
        if now_ns >= self._ports.deadline_ns:
            self._update_ports(now_ns)

    # Reliability probes

    def probe_tail(self, order: int, avoid: Ev | None, now_ns: int) -> bool:
        """Send a reliability probe, the `order`-th packet of the queue pair.

        Returns whether it is sent: some EV may carry it, where one of another path than `avoid` is
        preferred, and the NIC has room for it.
        """
        if not self._endpoint.probes.take_for_tail(now_ns, self._config.base_rtt_ns):
            return False
        ev = self._engine.pick_for_probe(now_ns, avoid)
        if ev is None:
            return False
        probe_id = self._engine.take_probe_id()
        if len(self._tail_probes) > self._config.tail_probes:
            self._tail_probes.clear()
        self._tail_probes[probe_id] = order, now_ns
        self._counters.tail_probes += 1
        self._probe(ev.value, probe_id, now_ns)
        return True

    def probe_answered(self, probe_id: int, mark: EvMark, now_ns: int) -> tuple[int, int] | None:
        """Process the answer to a reliability probe, which may mark its EV.

        Returns the order of a probe of the tail, and when it was sent; None for others.
        """
        probe_id &= REQUEST_ID_MASK
        ev_value = self._ev_probes.pop(probe_id, None)
        if ev_value is not None:
            unwanted = mark is EvMark.ALWAYS_SKIP
            self._ev_answered(ev_value, probe_id, now_ns, unwanted=unwanted)
            return None
        return self._tail_probes.pop(probe_id, None)

    def _ev_answered(
        self, ev_value: int, probe_id: int, now_ns: int, *, unwanted: bool = False
    ) -> None:
        self.room.answered()
        self._engine.probe_answered(ev_value, probe_id, now_ns, unwanted=unwanted)

    def _probe(self, ev_value: int, probe_id: int, now_ns: int) -> None:
        config = self._config
        self.packets.append(
            ReliabilityProbe(
                config.local_address,
                config.peer_address,
                ev_value,
                config.peer_qpn,
                config.qpn & 0xFFFF,
                probe_id,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def _ask(
        self, ev_value: int, op: EndpointOp, mask: int, now_ns: int, answered: Answered
    ) -> None:
        config = self._config
        self.packets.append(
            EndpointRequest(
                config.local_address,
                config.peer_address,
                ev_value,
                op,
                self._endpoint.ask(config.peer_address, op, answered),
                mask,
                self._timestamp(now_ns),
                self._own_unit,
            )
        )

    def _timestamp(self, now_ns: int) -> int:
        return now_ns >> self._shift & 0xFFFF


class Requester:
    """Sends what is posted, until each message is acknowledged completely, in order.

    `queue` has the messages that are posted, `requests` the control packets to send, `flight` what
    is in flight; `stuck` says that no EV could be chosen for the next packet.
    """

    def __init__(
        self,
        config: QpConfig,
        engine: EvEngine,
        rtt: RttEstimator,
        congestion: Window,
        events: list[Event],
        counters: Counters,
        reverse: ReversePaths,
        endpoint: Endpoint,
    ) -> None:
        self._config = config
        self._engine = engine
        self._rtt = rtt
        self._events = events
        self._counters = counters
        self._reverse = reverse
        self._detector = LossDetector(rtt)
        self._retry = RetryTimer.of(config, rtt)
        self._packer = Packer(config)
        self._scoreboard = Scoreboard(config.first_psn)
        self._window = config.peer_capabilities.mpr * MPR_UNIT
        self._losses = SpuriousLosses(self._detector, engine, events, counters)
        self.queue = SendQueue(config.mtu, config.peer_capabilities.immediates)
        self._ack_wait = AckWait(config, rtt, self.queue, self._scoreboard, engine)
        self._order = 0
        self.flight = Flight(congestion, config)
        self.requests = RequestQueue(config, engine, rtt, reverse, counters, endpoint)
        self._ask_when_full = config.ask_when_full
        self.stuck = False
        self._probing = False

    @property
    def failed(self) -> bool:
        """Whether the QP is in ERROR."""
        return self.queue.failed

    def begin(self, config: QpConfig) -> None:
        """Take the first PSN, the peer's limits and the retries of a configuration.

        Nothing has been posted yet.
        """
        self._window = config.peer_capabilities.mpr * MPR_UNIT
        self.queue = SendQueue(config.mtu, config.peer_capabilities.immediates)
        self._scoreboard.next_seq = self._scoreboard.oldest_seq = config.first_psn
        self._retry = RetryTimer.of(config, self._rtt)
        self._ack_wait = AckWait(config, self._rtt, self.queue, self._scoreboard, self._engine)

    def fail(self, status: CompletionStatus, culprit: Message | None = None) -> None:
        """Put the QP into ERROR; `culprit`, else the oldest message, completes with the status."""
        self._detector.lose_all()
        self._scoreboard.clear()
        self.requests.packets.clear()
        self.flight.close()
        self.queue.fail(status, culprit)

    # Receiving

    def receive(self, packet: ResponsePacket, now_ns: int) -> None:
        """Process a packet of the peer's responder."""
        if isinstance(packet, Sack):
            self._on_sack(packet, now_ns)
        elif isinstance(packet, Ack):
            self._on_ack(packet, now_ns)
        else:
            self._on_nack(packet, now_ns)

    def _on_sack(self, sack: Sack, now_ns: int) -> None:
        """Process a SACK: the packets that arrived, the mark on an EV, window and penalty.

        The bitmap of a SACK that a newer one has overtaken is used, its window and penalty are not.
        A SACK that acknowledges what was never sent is counted and ignored. No SACK completes a
        message: a transport ACK does, unless the configuration says otherwise.
        """
        self._counters.sacks_received += 1
        if sack.mpr and not self._config.dynamic_mpr:
            self._counters.unagreed += 1
        scoreboard = self._scoreboard
        oldest = scoreboard.oldest_seq
        cack = unwrap_psn(sack.cack_psn, oldest - 1)
        start = cack + sack.sack_offset
        if max(cack, start + sack.bitmap.bit_length() - 1) >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        newest = cack >= oldest - 1
        if newest and sack.mpr and self._config.dynamic_mpr:
            self._window = sack.mpr * MPR_UNIT
        acked = scoreboard.acknowledged(cack, start, sack.bitmap)
        if sack.probe_reply:
            probe = self.requests.probe_answered(sack.ack_psn_offset, sack.mark, now_ns)
            if probe is not None:
                self._detector.probe_answered(*probe, now_ns)
                self._retry.answered(now_ns)
        else:
            lost = self._losses.get(cack + sack.ack_psn_offset)
            if lost is not None and self._packer.answers(sack, lost):
                self._losses.retract(lost, now_ns)
        self._on_mark(sack, now_ns)
        self._on_acked(acked, cack, sack, now_ns, newest=newest)

    def _on_mark(self, sack: Sack, now_ns: int) -> None:
        if sack.mark is EvMark.SKIP_ONCE and self._config.ecn_skip:
            self._engine.skip(sack.reflected_ev, "ECN", now_ns)
        elif sack.mark is EvMark.ALWAYS_SKIP:
            self._engine.report_loss(sack.reflected_ev, "peer asks to skip it", now_ns)

    def _on_ack(self, ack: Ack, now_ns: int) -> None:
        """Process a transport ACK: it completes the messages that end at its PSN or before.

        Its packets have arrived, whether SACKs say so or not. It names no EV, so it measures no
        path. A NAK completes the messages before the one of its PSN, and fails that one.
        """
        scoreboard = self._scoreboard
        seq = unwrap_psn(ack.psn, scoreboard.oldest_seq - 1)
        if seq >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        if ack.error is not None:
            self._on_nak(seq, STATUS_OF_NAK[ack.error])
            return
        acked = scoreboard.acknowledged(seq, seq + 1, 0)
        if acked:
            self._on_acked(acked, seq, None, now_ns, newest=False)
        self._ack_wait.acknowledged(seq, now_ns)

    def _on_nak(self, seq: int, status: CompletionStatus) -> None:
        message = self.queue.containing(seq)
        if message is None:
            self._counters.nak_of_completed += 1
            return
        self.queue.acknowledged(message.first_seq)
        self.fail(status, message)

    def _on_acked(
        self, acked: list[Transmission], cack: int, sack: Sack | None, now_ns: int, *, newest: bool
    ) -> None:
        """Process the transmissions that a SACK, or an ACK, has newly acknowledged."""
        flight = self.flight
        if not acked:
            flight.report(sack, 0, None, now_ns, newest=newest)
            return
        trigger = cack + sack.ack_psn_offset if sack is not None and not sack.probe_reply else None
        rtt_ns: int | None = None
        measured: Transmission | None = None
        acked_bytes, delivered_bytes, delivered = 0, 0, list[Transmission]()
        for transmission in acked:
            acked_bytes += transmission.length
            if transmission.done:  # declared lost and not yet sent again: it was only late
                self._losses.retract(transmission, now_ns)
                continue
            transmission.done = True
            delivered_bytes += transmission.length
            delivered.append(transmission)
            previous = transmission.previous
            if (
                sack is not None
                and transmission.seq == trigger
                and self._packer.answers(sack, transmission)
            ):
                # The SACK answers this very transmission: its EV and timestamp say so. Of a packet
                # that was repeated it could still be the earlier one (Karn): no RTT sample.
                measured = transmission
                if previous is None:
                    rtt_ns = now_ns - transmission.sent_ns
            # Acknowledged sooner than a round trip after its repetition: the earlier one arrived.
            elif previous is not None and self._detector.too_early(transmission, now_ns):
                self._losses.retract(previous, now_ns)
        flight.delivered(delivered_bytes)
        # The RTT first: whether others are late is judged by it. The window last: it counts on what
        # the engine has learnt of the EVs, and may then send at once.
        if rtt_ns is not None and sack is not None and measured is not None:
            self._events.append(measured.round_trip(now_ns))
            self._rtt.sample(rtt_ns, now_ns)
            self._reverse.record_proof(sack.reflected_ev, rtt_ns, now_ns)
        self._detector.delivered(delivered, measured, now_ns)
        self._retry.restart(now_ns)
        ecn = sack is not None and sack.mark is EvMark.SKIP_ONCE
        marked = sack.reflected_ev if sack is not None and ecn else None
        self._engine.report_arrivals(delivered, trigger, rtt_ns, marked, now_ns)
        flight.report(sack, acked_bytes, measured, now_ns, newest=newest)
        self._pause(now_ns)
        self._ack_wait.update(now_ns)

    def _on_nack(self, nack: Nack, now_ns: int) -> None:
        """Process a NACK: repeat the packet at once, or fail on an unexpected event at the peer.

        EV and timestamp identify the transmission that it answers (without timestamps: the time); a
        NACK of another one is ignored.
        A trim is congestion: the EV is skipped once, except for a trim at the last hop, which all
        EVs share (MRC paper, section 2). A lack of resources says nothing about the path.
        """
        if nack.reason in TRIMS and not self._config.trim_nack:
            self._counters.unagreed += 1
        scoreboard = self._scoreboard
        seq = unwrap_psn(nack.nack_psn, scoreboard.oldest_seq)
        if seq >= scoreboard.next_seq:
            self._counters.implausible += 1
            return
        transmission = scoreboard.unacked.get(seq)
        if (
            transmission is None
            or transmission.done
            or not self._packer.refuses(
                nack, transmission, too_early=self._detector.too_early(transmission, now_ns)
            )
        ):
            return
        if nack.reason is NackReason.UNEXP_EVENT:
            self.fail(CompletionStatus.REMOTE_OPERATION_ERROR, transmission.message)
            return
        if nack.reason in TRIMS:
            self._counters.trimmed_nacks += 1
            self._retry.restart(now_ns)
        elif not self._retry.refused(now_ns):
            self.fail(CompletionStatus.RETRY_EXCEEDED)
            return
        transmission.done = True
        self.flight.nacked(transmission, nack.reason, now_ns)
        self._repeat(transmission)
        if nack.reason is NackReason.TRIMMED:
            self._engine.skip(transmission.ev.value, "trimmed", now_ns)
        elif nack.reason is NackReason.TRIMMED_LASTHOP:
            self._detector.report_incast(now_ns)
            self._retry.report_incast(now_ns)
            self.requests.room.report_incast(now_ns)
        self._pause(now_ns)
        self._engine.selector.on_nack(transmission.ev.value, nack.reason.name, now_ns)

    def _pause(self, now_ns: int) -> None:
        """Do not take it for silence of the peer if the next packet waits for its time."""
        if self.flight.paced_ns > now_ns and self.flight.payload == 0:
            self._retry.pause(self.flight.paced_ns)

    def apply_port_changes(self, now_ns: int) -> None:
        """Act on changed ports: packets in flight on a lost plane are judged early."""
        for ev_value in self.requests.apply_port_changes(now_ns):
            self._detector.report_silent_ev(ev_value)

    # Time

    @property
    def timer_ns(self) -> int:
        """When `on_time` has something to do: 0 for now, `NEVER` if it waits for an arrival."""
        if self.failed:
            return NEVER
        deadline_ns = min(self.requests.deadline_ns, self._ack_wait.deadline_ns)
        if self._scoreboard.unacked or self._retry.without_path:
            detector = self._detector
            deadline_ns = min(
                deadline_ns,
                detector.deadline_ns,
                self._retry.deadline_ns(detector.reorder_window_ns),
            )
        return deadline_ns

    @property
    def data_ns(self) -> int:
        """When a data packet may be sent: 0 for now, `NEVER` if it waits for an arrival."""
        if self._ack_wait.due:
            return 0
        if self.stuck or not self._has_room(self._scoreboard.to_repeat()):
            return NEVER
        return self.flight.paced_ns

    def _has_room(self, previous: Transmission | None) -> bool:
        """Whether `previous` may be sent again now, or (None) the next new packet be sent."""
        if previous is not None:
            length: int | None = previous.length
        else:
            scoreboard = self._scoreboard
            if scoreboard.next_seq - scoreboard.oldest_seq >= self._window:
                return False
            length = self.queue.next_length()
        return length is not None and self.flight.has_room(
            length, probing=bool(self._retry.timeouts)
        )

    def on_time(self, now_ns: int) -> None:
        """Do what is due: declare packets lost, act on silence, send probes."""
        if self.failed:
            return
        self.apply_port_changes(now_ns)
        detector = self._detector
        if self._scoreboard.unacked or self._retry.without_path:
            for transmission, reason in detector.lost(now_ns):
                self._lose(transmission, reason, now_ns)
            if now_ns >= self._retry.deadline_ns(detector.reorder_window_ns):
                self._act_on_silence(now_ns)
        if self.queue.has_more and not self._probing:
            self._probing = True
            self._engine.start(now_ns)
        if now_ns >= self._ack_wait.deadline_ns and not self._ack_wait.expire(now_ns):
            self.fail(CompletionStatus.RETRY_EXCEEDED)
            return
        outbound = bool(self._scoreboard.unacked)
        self.requests.on_time(now_ns, self.flight.window, outbound=outbound)
        self.stuck = False

    def _act_on_silence(self, now_ns: int) -> None:
        remedy = self._retry.expire(now_ns)
        if remedy is RetryAction.GIVE_UP:
            self.fail(CompletionStatus.RETRY_EXCEEDED)
        elif remedy is RetryAction.TIMEOUT:
            self._counters.timeouts += 1
            for transmission in self._detector.lose_all():
                self._lose(transmission, LossReason.TIMEOUT, now_ns)
        else:
            oldest = self._detector.oldest()
            avoid = oldest.ev if oldest is not None else None
            self._order += self.requests.probe_tail(self._order, avoid, now_ns)

    def _lose(self, transmission: Transmission, reason: LossReason, now_ns: int) -> None:
        """Declare a transmission, marked done, lost."""
        ev = transmission.ev
        self._counters.lost += 1
        self._events.append(
            Lost(transmission.seq, ev.value, ev.plane, transmission.sent_ns, reason.value, now_ns)
        )
        self._losses.add(transmission)
        self.flight.lost(transmission, reason.value, now_ns)
        self._repeat(transmission)
        self._pause(now_ns)
        delivers = reason is LossReason.OVERTAKEN
        excused = self.requests.room.crowded(now_ns, self.flight.window)
        condemned = self._engine.report_loss(
            ev.value, reason.value, now_ns, delivers=delivers, excused=excused
        )
        if condemned and reason is LossReason.LATE:
            self._detector.report_silent_ev(ev.value)

    def _repeat(self, transmission: Transmission) -> None:
        self._scoreboard.repeat(transmission)
        if self._config.go_back:
            for behind in self._scoreboard.go_back(transmission.seq):
                self.flight.withdrawn(behind)

    # Sending

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return at most `limit` data packets: retransmissions, oldest first, then new ones."""
        scoreboard = self._scoreboard
        flight = self.flight
        small = flight.window < self._config.sack_bytes
        datagrams: list[Datagram] = []
        if self._ack_wait.due and limit:
            again = self._ack_wait.repetition(self._order, now_ns)
            if again is not None:
                self._order += 1
                self._counters.acks_missed += 1
                self._pack(again, datagrams, ack_request=True)
        sent = 0
        while (
            len(datagrams) < limit
            and not self.stuck
            and not self.failed
            and flight.paced_ns <= now_ns
        ):
            previous = scoreboard.to_repeat()
            if not self._has_room(previous):
                break
            avoid = previous.ev if previous is not None else None
            ev = self._engine.pick(now_ns, avoid, flight.payload)
            if ev is None:
                self.stuck = True
                if not scoreboard.unacked:
                    self._retry.wait_without_path(now_ns)
                break
            transmission = self._send(ev, previous, now_ns)
            is_last = not self.queue.has_more and transmission.seq == scoreboard.next_seq - 1
            full = self._ask_when_full and not flight.has_room(self._config.mtu, probing=False)
            self._pack(transmission, datagrams, ack_request=is_last or small or full)
            sent += transmission.length
        if sent:
            self.requests.count_sent(sent)
        return datagrams

    def _pack(
        self, transmission: Transmission, datagrams: list[Datagram], *, ack_request: bool
    ) -> None:
        """Append the packet of a transmission; if its bytes cannot be read, the QP fails."""
        try:
            datagrams.append(self._packer.pack(transmission, ack_request=ack_request))
        except PayloadError:
            self.fail(CompletionStatus.LOCAL_PROTECTION_ERROR, transmission.message)

    def _send(self, ev: Ev, previous: Transmission | None, now_ns: int) -> Transmission:
        """Send `previous` again, or else the next new packet."""
        scoreboard, counters = self._scoreboard, self._counters
        if previous is None:
            seq = scoreboard.next_seq
            scoreboard.next_seq = seq + 1
            message, offset, length = self.queue.cut(seq)
        else:
            seq, message = previous.seq, previous.message
            offset, length = previous.offset, previous.length
            counters.retransmitted += 1
            previous.previous = None
        transmission = Transmission(seq, message, offset, length, ev, self._order, now_ns, previous)
        self._order += 1
        counters.data_sent += 1
        crowded = self.requests.room.crowded(now_ns, self.flight.window)
        self._retry.sent(now_ns, was_idle=not scoreboard.unacked, crowded=crowded)
        scoreboard.unacked[seq] = transmission
        self.flight.sent(transmission)
        self._detector.sent(transmission)
        return transmission
