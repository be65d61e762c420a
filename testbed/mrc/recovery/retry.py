"""What to do about silence: tail probes, then timeouts that grow, then giving up.

The ladder restarts with every progress: bytes newly acknowledged, or a trim, since the packet may
not meet another. Its first rungs are reliability probes, due when a packet of ordinary delay would
have been judged (RFC 8985's tail probe; "reliability probes may replace waiting", MRC transport).
Then come timeouts, growing linearly, then doubling (MRC's structure; its ACK timeout is a constant,
ours derives from the measured RTT), and in the end the QP fails. Probes go on between the timeouts,
so that the end of an outage is noticed when it comes.

An answer without progress does not restart it: where all data dies and control packets pass, such
as on a link that full packets do not fit, retries are spent as well. But a rung that ends while the
peer answers takes nothing for lost, since loss detection then knows more than the clock.

It is climbed, too, where data waits and no EV may carry any: all are condemned and the peer is
dead, or every port is down, or all EVs are denied. What is posted ends, one way or the other. A
first packet that can be sent after all starts it anew.
"""

from enum import Enum
from typing import Final

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import MAX_EXPONENTIAL_RETRIES

_MAX_DOUBLINGS: Final = 24
"""As the API's ACK timeout is a power of two with an exponent of at most 24."""

_TAIL_MARGIN_SHIFT: Final = 3
"""A probe waits an eighth of the base RTT longer than loss detection would have. Ours."""


class Remedy(Enum):
    """What silence calls for."""

    PROBE = "send a reliability probe"
    TIMEOUT = "take everything in flight for lost"
    GIVE_UP = "fail the queue pair"


class RetryTimer:
    """The ladder of one queue pair. Times in ns.

    Attributes:
        starving: whether it runs because nothing can be sent, rather than for what is outstanding.
    """

    def __init__(
        self, rtt: RttEstimator, *, probes: int, linear_retries: int, exponential_retries: int
    ) -> None:
        self._rtt = rtt
        self._probes = probes
        self._linear = linear_retries
        self._for_ever = exponential_retries == MAX_EXPONENTIAL_RETRIES
        self._retries = linear_retries + exponential_retries
        self._rung = 0
        self._progress_ns = 0
        self._sent_ns = 0
        self._probed_ns = 0
        self._answered = False
        self.starving = False

    @property
    def timeouts(self) -> int:
        """Retries spent since the last progress."""
        return max(0, self._rung - self._probes)

    def sent(self, now_ns: int, *, was_idle: bool) -> None:
        """A data packet was sent; `was_idle` if nothing was outstanding before it."""
        if was_idle:
            self.restart(now_ns)
        if not self._answered or self._rung < self._probes:
            self._sent_ns = now_ns

    def starve(self, now_ns: int) -> None:
        """Data waits, nothing is outstanding and no EV may carry it: climb until one may."""
        if not self.starving:
            self.restart(now_ns)
            self._sent_ns = now_ns
            self.starving = True

    def restart(self, now_ns: int) -> None:
        """The peer has had something new: back to the first rung."""
        self._rung = 0
        self._progress_ns = now_ns
        self._answered = False
        self.starving = False

    def answered(self, now_ns: int) -> None:
        """The peer has answered, and has had nothing new: stay on the rung, put a probe off."""
        if self._rung < self._probes:
            self._progress_ns = now_ns
        self._answered = True

    def deadline_ns(self, reorder_window_ns: int) -> int:
        """Return when to call `expire`, if packets are outstanding or data is starving."""
        patience_ns = (
            self._rtt.smoothed_ns + reorder_window_ns + (self._rtt.base_ns >> _TAIL_MARGIN_SHIFT)
        )
        if self._rung < self._probes:
            return min(self._progress_ns, self._sent_ns) + patience_ns
        return min(self._climb_ns(), self._probed_ns + patience_ns)

    def expire(self, now_ns: int) -> Remedy:
        """The deadline has passed: return the remedy, and climb a rung if its time is up."""
        self._probed_ns = now_ns
        if self._rung >= self._probes and now_ns < self._climb_ns():
            return Remedy.PROBE
        self._progress_ns = self._sent_ns = now_ns
        self._rung += 1
        answered, self._answered = self._answered, False
        if self.timeouts > self._retries and not self._for_ever:
            return Remedy.GIVE_UP
        return Remedy.PROBE if answered or not self.timeouts else Remedy.TIMEOUT

    def _climb_ns(self) -> int:
        return max(self._progress_ns, self._sent_ns) + self._timeout_ns()

    def _timeout_ns(self) -> int:
        attempt = self.timeouts + 1
        if attempt <= self._linear:
            return self._rtt.timeout_ns * attempt
        doublings = min(attempt - self._linear, _MAX_DOUBLINGS)
        return self._rtt.timeout_ns * max(1, self._linear) << doublings
