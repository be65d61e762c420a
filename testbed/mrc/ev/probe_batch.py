"""A batch of EV probes with one deadline, as an operator asks for it (`mrc_ctl.h`, OCP MRC API)."""

from collections.abc import Sequence
from typing import Final


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
