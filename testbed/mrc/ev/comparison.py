"""Whether an EV loses more than the others can explain: a fault of its path, not of the fabric.

MRC condemns an EV for one lost packet (MRC paper, section 2). Where every path loses packets now
and then, this takes out one EV after the other. The comparison asks how likely as many losses as
those of this EV are, if it lost no more than the others do. The rotation gives each EV the same
number of packets, so losses can be compared as they are, and follow a Poisson distribution.

What the others lose is the larger of two estimates that one dead path among them does not spoil:
the median of their losses, and the mean that explains how many of them lost nothing. Ours.
"""

from collections import deque
from math import exp, log
from statistics import median
from typing import Final

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.ev.ev import Ev

UNLIKELY: Final = 0.01
"""An EV stands out if fewer than one in a hundred like the others would lose as much."""


class LossComparison:
    """The losses of one queue pair's EVs within the last `memory` smoothed RTTs. Times in ns."""

    def __init__(self, rtt: RttEstimator, memory: float, active: int) -> None:
        """Begin with nothing lost; `active` EVs carry data."""
        self._rtt = rtt
        self._memory = memory
        self._others = active - 1
        self._lost_ns: dict[int, deque[int]] = {}

    def record(self, ev: Ev, now_ns: int) -> None:
        """Note a loss, or a probe that was not answered."""
        self._lost_ns.setdefault(ev.value, deque()).append(now_ns)

    def retract(self, ev: Ev) -> None:
        """Forget the last loss of an EV: the packet had arrived."""
        lost = self._lost_ns.get(ev.value)
        if lost:
            lost.pop()

    def stands_out(self, ev: Ev, now_ns: int) -> bool:
        """Whether `ev` has lost more than is likely for an EV like the others."""
        since_ns = now_ns - int(self._memory * self._rtt.smoothed_ns)
        for lost in self._lost_ns.values():
            while lost and lost[0] <= since_ns:
                lost.popleft()
        own = len(self._lost_ns.get(ev.value, ()))
        others = [len(lost) for value, lost in self._lost_ns.items() if value != ev.value and lost]
        return likelihood(own, expected(others, self._others)) <= UNLIKELY


def expected(losses: list[int], evs: int) -> float:
    """The expected number of losses of an EV.

    Args:
        losses: those of the other EVs that lost something.
        evs: how many other EVs there are.
    """
    if not losses:
        return 0.0
    evs = max(evs, len(losses))
    lossless = max(evs - len(losses), 0.5)
    return max(float(median([*losses, *[0] * (evs - len(losses))])), -log(lossless / evs))


def likelihood(losses: int, mean: float) -> float:
    """The probability of at least `losses` losses in a Poisson distribution with this mean."""
    term, below = exp(-mean), 0.0
    for number in range(losses):
        below += term
        term *= mean / (number + 1)
    return max(1.0 - below, 0.0)
