"""What to do about silence: tail probes, then timeouts that grow, then giving up.

The ladder restarts with every progress. Its first rungs are reliability probes, due when a packet
of ordinary delay would have been judged (RFC 8985's tail probe; "reliability probes may replace
waiting", MRC transport). Then come timeouts, growing linearly, then doubling (MRC's structure; its
ACK timeout is a constant, ours derives from the measured RTT), and in the end the QP fails. Probes
go on between the timeouts, so that the end of an outage is noticed when it comes.
"""

from enum import Enum
from typing import Final

from testbed.mrc.rtt import RttEstimator

_TAIL_MARGIN_SHIFT: Final = 3


class Remedy(Enum):
    """What silence calls for."""

    PROBE = "send a reliability probe"
    TIMEOUT = "take everything in flight for lost"
    GIVE_UP = "fail the queue pair"


class RetryTimer:
    """The ladder of one queue pair. Times in ns."""

    def __init__(
        self, rtt: RttEstimator, *, probes: int, linear_retries: int, exponential_retries: int
    ) -> None:
        self._rtt = rtt
        self._probes = probes
        self._linear = linear_retries
        self._retries = linear_retries + exponential_retries
        self._rung = 0
        self._progress_ns = 0
        self._sent_ns = 0
        self._probed_ns = 0

    @property
    def timeouts(self) -> int:
        """Timeouts since the last progress."""
        return max(0, self._rung - self._probes)

    def sent(self, now_ns: int, *, was_idle: bool) -> None:
        """A data packet was sent; `was_idle` if nothing was outstanding before it."""
        self._sent_ns = now_ns
        if was_idle:
            self.progressed(now_ns)

    def progressed(self, now_ns: int) -> None:
        """The peer has been heard: back to the first rung."""
        self._rung = 0
        self._progress_ns = now_ns

    def deadline_ns(self, reorder_window_ns: int) -> int:
        """Return when to call `expire`, if packets are outstanding."""
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
        if self._rung <= self._probes:
            return Remedy.PROBE
        if self._rung - self._probes > self._retries:
            return Remedy.GIVE_UP
        return Remedy.TIMEOUT

    def _climb_ns(self) -> int:
        return max(self._progress_ns, self._sent_ns) + self._timeout_ns()

    def _timeout_ns(self) -> int:
        attempt = self.timeouts + 1
        if attempt <= self._linear:
            return self._rtt.timeout_ns * attempt
        return self._rtt.timeout_ns * max(1, self._linear) << (attempt - self._linear)
