"""Loss detection: telling a lost packet from a late one while packets are sprayed over many paths.

After RACK-TLP (RFC 8985), since MRC's own rule is not public:

- *By time*: a transmission is lost when one sent after it, on any path, has been delivered and it
  is older than the RTT plus a reorder window. The window follows the lateness seen on the paths of
  this queue pair; it is at least a quarter of the base RTT and at most 1.75 base RTTs or one
  smoothed RTT.
- *By order*: packets of one EV and one traffic class (first transmissions, retransmissions) stay
  nearly in order. When a later one has been delivered, a grace period remains: an eighth of the
  base RTT, for the few packets that a kernel reorders and for a SACK that overtook the one
  reporting this packet; it is longer for a while after it proved too short.
- *By EV*: once an EV has been condemned by time, the other packets in flight on it are judged by
  time too, but with a window of at least an eighth of the base RTT.

For a while after a trim at the last hop no packet is judged by time: an incast delays every packet,
and packets of another class, not of another path, overtake those that wait there.

Losses are judged only in `lost()`, never on arrival. It runs when the I/O layer has handed over all
arrivals, so a process that was stopped for a while does not see losses that did not happen.
"""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.events import Counters, Event, Spurious
from testbed.mrc.transmission import Transmission

_REORDER_SHIFT: Final = 2
"""A quarter of the base RTT, as RFC 8985's first reorder window is of the minimum RTT."""

_GRACE_SHIFT: Final = 3
"""An eighth of the base RTT. Ours."""

_SPREAD_MARGIN_SHIFT: Final = 4
"""Added to 1.5 times the lateness seen: queues grow while the lateness is measured."""

_MEMORY_RTTS: Final = 4
"""Lateness and disorder are remembered for one to two times this many smoothed RTTs. Ours."""

_MOST_SPREAD_RTTS: Final = 1.75
"""What a full last hop adds to the round trips of one plane and not of another (1.5 BDP), and some
margin: last hops set no ECN marks, which would even the planes out."""

INCAST_RTTS: Final = 12
"""In an incast the last hop's queue of 1.5 BDP waits while retransmissions, which have priority,
fill 1.5 BDP of their own: a packet of a 7:1 incast was delayed by 10 base RTTs. Ours. The longer
wait matters only where a path dies during an incast."""


class LossReason(StrEnum):
    """Why a transmission was declared lost."""

    LATE = "late"
    OVERTAKEN = "overtaken"
    SILENT = "silent EV"
    TIMEOUT = "timeout"


class WindowedMaximum:
    """The largest value (0 or more) of the last one to two windows."""

    def __init__(self) -> None:
        self.value = 0
        self._current = 0
        self._since_ns = 0

    def update(self, value: int, now_ns: int, window_ns: int) -> None:
        """Add a value measured now; a window lasts `window_ns`."""
        if now_ns - self._since_ns > window_ns:
            self.value = self._current
            self._current = 0
            self._since_ns = now_ns
        if value > self._current:
            self._current = value
            self.value = max(self.value, value)


class LossDetector:
    """Judges the transmissions of one queue pair. Times in ns."""

    def __init__(self, rtt: RttEstimator) -> None:
        self._rtt = rtt
        self._in_order: deque[Transmission] = deque()
        # For first transmissions and for retransmissions, by EV. Lists, since an empty deque takes
        # 760 bytes: the lanes of 256 EVs would displace other data from the CPU's cache.
        self._lanes: tuple[dict[int, list[Transmission]], ...] = ({}, {})
        self._suspects: list[tuple[int, int, Transmission]] = []
        self._newest_order = -1
        self._newest_rtt_ns = rtt.base_ns
        self._spread = WindowedMaximum()
        self._disorder = WindowedMaximum()
        self._incast_until_ns = 0

    @property
    def reorder_window_ns(self) -> int:
        """How much longer than the RTT a packet may take before it is declared lost."""
        return self._window_ns(_REORDER_SHIFT)

    def _window_ns(self, least_shift: int) -> int:
        base_ns = self._rtt.base_ns
        spread_ns = self._spread.value * 3 // 2 + (base_ns >> _SPREAD_MARGIN_SHIFT)
        most_ns = max(self._rtt.smoothed_ns, int(_MOST_SPREAD_RTTS * base_ns))
        return min(max(base_ns >> least_shift, spread_ns), most_ns)

    def _grace_ns(self) -> int:
        least_ns = self._rtt.base_ns >> _GRACE_SHIFT
        return min(max(least_ns, self._disorder.value), self.reorder_window_ns)

    def sent(self, transmission: Transmission) -> None:
        self._in_order.append(transmission)
        lanes = self._lanes[transmission.previous is not None]
        lane = lanes.get(transmission.ev.value)
        if lane is None:
            lane = lanes[transmission.ev.value] = []
        lane.append(transmission)

    def delivered(
        self, transmissions: Sequence[Transmission], answered: Transmission | None, now_ns: int
    ) -> None:
        """Process the transmissions that one SACK newly acknowledges, already marked `done`.

        Those beside the one that it answers tell of a late path only if others had overtaken them:
        the SACK that would have reported them in time may be lost, as at the end of a message.
        """
        oldest_ns = now_ns
        grace_ns = self._grace_ns()
        overtaken = self._newest_order
        for transmission in transmissions:
            sent_ns = transmission.sent_ns
            if transmission.previous is None:
                if transmission is answered or transmission.order < overtaken:
                    oldest_ns = min(oldest_ns, sent_ns)
            elif self.too_early(transmission, now_ns):
                continue
            if transmission.order > self._newest_order:
                self._newest_order = transmission.order
                self._newest_rtt_ns = now_ns - sent_ns
            lane = self._lanes[transmission.previous is not None][transmission.ev.value]
            done = 0
            while done < len(lane) and lane[done].done:
                done += 1
            del lane[:done]
            if lane and lane[0].order < transmission.order:
                self._suspect(lane, transmission.order, now_ns + grace_ns)
        self._record_lateness(now_ns - oldest_ns - self._rtt.smoothed_ns, now_ns)

    def too_early(self, transmission: Transmission, now_ns: int) -> bool:
        """Whether an answer at `now_ns` comes too early to be caused by this transmission."""
        return now_ns - transmission.sent_ns < self._rtt.minimum_ns * 3 // 4

    def probe_answered(self, order: int, sent_ns: int, now_ns: int) -> None:
        """Process the answer to a reliability probe: packets sent before it should be reported."""
        if order > self._newest_order:
            self._newest_order = order
            self._newest_rtt_ns = now_ns - sent_ns

    def report_late(self, transmission: Transmission, now_ns: int) -> None:
        """Widen the reorder window: a transmission declared lost was only late."""
        self._record_lateness(now_ns - transmission.sent_ns - self._rtt.smoothed_ns, now_ns)
        if transmission.suspected:
            self._disorder.update(2 * self._grace_ns(), now_ns, self._memory_ns())

    def report_incast(self, now_ns: int) -> None:
        """Suspend judging by time: a trim at the last hop shows that packets wait there."""
        self._incast_until_ns = now_ns + INCAST_RTTS * self._rtt.base_ns

    def report_silent_ev(self, ev_value: int) -> None:
        """Judge the packets in flight on an EV earlier: it has been condemned for silence."""
        patience_ns = self._patience_ns() + self._window_ns(_GRACE_SHIFT)
        for lanes in self._lanes:
            for transmission in lanes.get(ev_value, ()):
                if not transmission.done:
                    deadline_ns = transmission.sent_ns + patience_ns
                    heappush(self._suspects, (deadline_ns, transmission.order, transmission))

    def lost(self, now_ns: int) -> list[tuple[Transmission, LossReason]]:
        """Return the transmissions to declare lost now, each with the reason; mark them done."""
        lost: list[tuple[Transmission, LossReason]] = []
        in_order = self._in_order
        while in_order:
            head = in_order[0]
            if not head.done:
                if self._late_ns(head) > now_ns or head.order >= self._newest_order:
                    break
                head.done = True
                lost.append((head, LossReason.LATE))
            in_order.popleft()
        suspects = self._suspects
        while suspects and suspects[0][0] <= now_ns:
            _, order, suspect = heappop(suspects)
            if suspect.done:
                continue
            if order >= self._newest_order:
                heappush(suspects, (now_ns + self._grace_ns(), order, suspect))
                continue
            suspect.done = True
            reason = LossReason.OVERTAKEN if suspect.suspected else LossReason.SILENT
            lost.append((suspect, reason))
        return lost

    def lose_all(self) -> list[Transmission]:
        """Return everything in flight, marked done."""
        flight = [transmission for transmission in self._in_order if not transmission.done]
        for transmission in flight:
            transmission.done = True
        self._in_order.clear()
        return flight

    def oldest(self) -> Transmission | None:
        while self._in_order and self._in_order[0].done:
            self._in_order.popleft()
        return self._in_order[0] if self._in_order else None

    @property
    def deadline_ns(self) -> int:
        """When `lost` may find a loss, or `NEVER`."""
        deadline_ns = NEVER
        oldest = self.oldest()
        if oldest is not None and oldest.order < self._newest_order:
            deadline_ns = self._late_ns(oldest)
        suspects = self._suspects
        while suspects and suspects[0][2].done:
            heappop(suspects)
        if suspects:
            deadline_ns = min(deadline_ns, suspects[0][0])
        return deadline_ns

    def _late_ns(self, transmission: Transmission) -> int:
        patience_ns = self._patience_ns() + self.reorder_window_ns
        if transmission.sent_ns < self._incast_until_ns:
            patience_ns = max(patience_ns, INCAST_RTTS * self._rtt.base_ns)
        return transmission.sent_ns + patience_ns

    def _patience_ns(self) -> int:
        return max(self._rtt.smoothed_ns, self._newest_rtt_ns)

    def _suspect(self, lane: list[Transmission], before: int, deadline_ns: int) -> None:
        for transmission in lane:
            if transmission.order >= before:
                return
            if not transmission.done and not transmission.suspected:
                transmission.suspected = True
                heappush(self._suspects, (deadline_ns, transmission.order, transmission))

    def _record_lateness(self, lateness_ns: int, now_ns: int) -> None:
        self._spread.update(lateness_ns, now_ns, self._memory_ns())

    def _memory_ns(self) -> int:
        return _MEMORY_RTTS * self._rtt.smoothed_ns


# --------------------------------------------------------------------------------------------------
# Losses declared in error: transmissions that arrive after all.


_MAX_REMEMBERED: Final = 1024
"""The number of the latest losses that are remembered. Ours."""


class SpuriousLosses:
    """Remembers the latest transmissions declared lost, and retracts those that arrive after all.

    Of each sequence number the latest loss is remembered.
    """

    def __init__(
        self, detector: LossDetector, engine: EvEngine, events: list[Event], counters: Counters
    ) -> None:
        self._detector = detector
        self._engine = engine
        self._events = events
        self._counters = counters
        self._lost: dict[int, Transmission] = {}

    def add(self, transmission: Transmission) -> None:
        """Remember a transmission; the oldest is forgotten if there are too many."""
        lost = self._lost
        lost.pop(transmission.seq, None)
        lost[transmission.seq] = transmission
        if len(lost) > _MAX_REMEMBERED:
            del lost[next(iter(lost))]

    def get(self, seq: int) -> Transmission | None:
        """Return the transmission of `seq` that was last declared lost."""
        return self._lost.get(seq)

    def retract(self, transmission: Transmission, now_ns: int) -> None:
        """Count a transmission that has arrived as lost spuriously, if it is remembered.

        Its EV gets its trust back, and the reorder window may grow.
        """
        seq, ev = transmission.seq, transmission.ev
        if self._lost.get(seq) is not transmission:
            return
        del self._lost[seq]
        self._counters.spurious += 1
        self._detector.report_late(transmission, now_ns)
        self._events.append(Spurious(seq, ev.value, ev.plane, transmission.sent_ns, now_ns))
        self._engine.retract_loss(ev.value, now_ns)
