"""When the EVs outside the rotation are probed, and which answer belongs to which probe.

An answer that comes after its probe timed out does not count as a success, but it may be the only
sample of the round trip: where every path that answers is slower than anything measured before,
each probe would time out for ever. So if nothing has been measured since that probe was sent, its
answer is a sample of the RTT (each probe has an id of its own, so Karn's ambiguity does not arise).

Few probes are sent as soon as they are due. Many wait for room: a queue pair with a window of n
packets uses at most n EVs in an RTT, so it probes no more of them in that time. Each RTT in which
no probe is answered halves that, up to three times (RFC 8985 doubles its timeout after a probe in
the same way). It is up to six times with a window of a few packets, whose last hop may be full, and
while nothing is in flight, which needs no EV. All queue pairs of a NIC share a `ProbeBudget`. EVs
that have begun to answer go first, then those that have waited longest.

If the last hop trims what a window of about one packet sends, it is full of the packets of others.
A probe would be lost there, whatever its EV, and no other EV is needed: none is sent. Nor does the
loss of a packet condemn its EV: the last hop drops even headers.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER, REQUEST_ID_MASK
from testbed.mrc.endpoint import ProbeBudget, Spacing
from testbed.mrc.entropy import Ev, EvProfile, EvState
from testbed.mrc.ev.selection import Rotation

_MAX_TIMED_OUT: Final = 1024
"""The number of timed-out probes remembered: a late answer may be the only RTT sample. Ours."""

_MOST_DOUBLINGS: Final = 3
"""The least room is 1/8 of the window: the EVs of one dead path need no more. Ours."""

_SMALL_WINDOW: Final = 8
_MOST_DOUBLINGS_OF_SMALL: Final = 6
"""With less than 8 packets, or none in flight, the least room is 1/64 of the window. Ours."""

_CROWDED_RTTS: Final = 64
"""A trim at the last hop is remembered for so many base RTTs: a window of 1/16 of a packet, the
least of NSCC, sends about four packets in that time. Ours."""


class ProbeRoom:
    """How many EVs one queue pair may probe now. Times in ns, sizes in bytes.

    Attributes:
        idle: whether nothing is in flight.
    """

    def __init__(self, rtt: RttEstimator, mtu: int) -> None:
        """Begin with a budget of its own."""
        self._rtt = rtt
        self._mtu = mtu
        self._budget = ProbeBudget()
        self._own = Spacing()
        self._turn_ns = NEVER
        self._doublings = 0
        self._silent_since_ns = NEVER
        self._crowded_until_ns = 0
        self.idle = False

    def share(self, budget: ProbeBudget) -> None:
        self._budget = budget

    def report_incast(self, now_ns: int) -> None:
        """Note a trim at the last hop."""
        self._crowded_until_ns = now_ns + _CROWDED_RTTS * self._rtt.base_ns

    def crowded(self, now_ns: int, window: int) -> bool:
        """Whether the last hop is full although the window is hardly a packet."""
        return now_ns < self._crowded_until_ns and window < 2 * self._mtu

    def answered(self) -> None:
        self._doublings = 0
        self._silent_since_ns = NEVER

    def room(self, now_ns: int, window: int) -> int:
        """How many may be probed now, with this congestion window."""
        if self.crowded(now_ns, window):
            return 0
        own = self._own.room(now_ns, self._interval(window), self._rtt.smoothed_ns)
        if self._turn_ns <= now_ns:
            return min(own, 1)
        return min(own, self._budget.room(now_ns, self._rtt.base_ns))

    def take(self, count: int, now_ns: int, window: int) -> None:
        """Count so many probes, for which there was room."""
        if self._silent_since_ns == NEVER:
            self._silent_since_ns = now_ns
        elif now_ns - self._silent_since_ns > 2 * self._rtt.smoothed_ns:
            self._doublings = min(self._doublings + 1, _MOST_DOUBLINGS_OF_SMALL)
            self._silent_since_ns = now_ns - self._rtt.smoothed_ns
        self._own.take(count, now_ns, self._interval(window), self._rtt.smoothed_ns)
        if self._turn_ns <= now_ns:
            self._turn_ns = NEVER
        else:
            self._budget.take(count, now_ns, self._rtt.base_ns)

    def next_ns(self, now_ns: int, window: int) -> int:
        """When there is room for the next probe; the queue pair's turn in the budget is kept."""
        if self.crowded(now_ns, window):
            return self._crowded_until_ns
        if self._turn_ns == NEVER:
            self._turn_ns = self._budget.take(1, now_ns, self._rtt.base_ns)
        return max(self._turn_ns, self._own.due_ns, now_ns + 1)

    def _interval(self, window: int) -> int:
        small = self.idle or window < _SMALL_WINDOW * self._mtu
        most = _MOST_DOUBLINGS_OF_SMALL if small else _MOST_DOUBLINGS
        round_ns = self._rtt.smoothed_ns << min(self._doublings, most)
        return max(round_ns * self._mtu // max(window, 1), 1)


class ProbeSchedule:
    """The probes of one queue pair's EVs. Times in ns.

    Attributes:
        deadline_ns: when a probe is due, or `NEVER`.
    """

    def __init__(
        self, profile: EvProfile, rtt: RttEstimator, rng: Random, rotation: Rotation
    ) -> None:
        self._profile = profile
        self._rtt = rtt
        self._rotation = rotation
        self._probe_id = rng.randrange(REQUEST_ID_MASK + 1)
        self._timed_out: dict[int, int] = {}
        self.deadline_ns = NEVER

    def schedule(self, ev: Ev, at_ns: int) -> None:
        """Send the next probe of `ev` then; none while its port is down or in blind spraying."""
        if self._rotation.planes[ev.plane].down or not self._profile.adaptive:
            ev.deadline_ns = NEVER
            return
        ev.deadline_ns = at_ns
        self.deadline_ns = min(self.deadline_ns, at_ns)

    def schedule_backup(self, ev: Ev, now_ns: int) -> None:
        """Send the next probe of a backup an interval from now."""
        self.schedule(ev, now_ns + self._rtts(self._profile.backup_probe_interval))

    def schedule_next(self, ev: Ev, now_ns: int) -> None:
        """Send the next probe of `ev` an interval after the last, or now.

        The interval of a condemned EV is in minimum RTTs: the smoothed RTT has in it the queues of
        the paths that carry data, which would keep an EV out the longer the more it is needed.
        """
        if ev.state is EvState.ASSUMED_BAD:
            interval_ns = int(self._profile.probe_interval * self._rtt.minimum_ns)
        else:
            interval_ns = self._rtts(self._profile.backup_probe_interval)
        self.schedule(ev, max(now_ns, ev.probe_sent_ns + interval_ns))

    def send(self, ev: Ev, now_ns: int) -> int:
        """Note that a probe is sent on `ev` now; returns its id.

        The answer has more time where the RTT varies: a probe is of the data class, so it waits in
        the queues that delay the data.
        """
        patience_ns = self._rtt.smoothed_ns + 2 * self._rtt.variation_ns
        ev.probe_id = self.take_id()
        ev.probe_sent_ns = now_ns
        ev.deadline_ns = now_ns + max(self._rtts(self._profile.probe_timeout), patience_ns)
        return ev.probe_id

    def refresh(self) -> None:
        """Compute the deadline anew, once the probes that were due are sent."""
        self.deadline_ns = min(ev.deadline_ns for ev in self._rotation.evs.values())

    def wait(self, until_ns: int) -> None:
        """Send no probe before that time: there is no room for those that are due."""
        self.deadline_ns = until_ns

    def take_id(self) -> int:
        """Return a probe id that no other recent probe has."""
        self._probe_id = (self._probe_id + 1) & REQUEST_ID_MASK
        return self._probe_id

    def time_out(self, probe_id: int, sent_ns: int) -> None:
        """Remember a probe that has not been answered in time."""
        timed_out = self._timed_out
        timed_out[probe_id] = sent_ns
        if len(timed_out) > _MAX_TIMED_OUT:
            del timed_out[next(iter(timed_out))]

    def answered_late(self, probe_id: int, now_ns: int) -> None:
        """Process the answer to a probe that timed out: an RTT sample if there is no newer one."""
        sent_ns = self._timed_out.pop(probe_id, None)
        if sent_ns is not None and self._rtt.sampled_ns < sent_ns:
            self._rtt.sample(now_ns - sent_ns, now_ns)

    def _rtts(self, count: float) -> int:
        return int(count * self._rtt.smoothed_ns)


# --------------------------------------------------------------------------------------------------
# A batch of EV probes with one deadline, as an operator asks for it (`mrc_ctl.h`, OCP MRC API).


class ProbeBatch:
    """EV probes that were sent at the same time, and when each was answered. Times in ns.

    The responder answers at once; no service time is subtracted from a round trip.

    Attributes:
        evs: the EVs, in the order of the probes.
        rtts_ns: the round trip of each EV whose probe has been answered in time.
    """

    def __init__(self, evs: Sequence[int], now_ns: int, deadline_ns: int) -> None:
        """Begin a batch that is sent now and over at the deadline."""
        self.evs: Final = tuple(evs)
        self.rtts_ns: Final = dict[int, int]()
        self.deadline_ns: Final = deadline_ns
        self._sent_ns = now_ns

    def answered(self, ev: int, now_ns: int) -> None:
        """Record an answer; one after the deadline does not count."""
        if now_ns <= self.deadline_ns:
            self.rtts_ns[ev] = now_ns - self._sent_ns

    def is_over(self, now_ns: int) -> bool:
        """Whether every probe has been answered, or the deadline has passed."""
        return len(self.rtts_ns) == len(self.evs) or now_ns >= self.deadline_ns
