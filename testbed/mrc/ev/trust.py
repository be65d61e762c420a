"""What a loss says about an EV, and how many probes it must answer before it carries data again.

MRC's number of answers is not public. Here it depends on why the EV was condemned:

- A path that was silent, the first probe after the condemnation included, was dead. A few answers
  show that it is back.
- A path that delivered a packet sent after the lost one, or that answered its first probe, is
  *grey*: it answers most probes while it loses packets. A few answers prove nothing, so many are
  needed.
- A path is grey only in comparison with others. A few answers are enough where packets were lost in
  other planes too (on other paths, if there is one plane), before the condemnation or within an RTT
  after it; where the last `ev_min_active` EVs lose packets; or where fewer of them carry data.
- An EV that is condemned again soon after its return needs twice as many answers the next time, up
  to a bound. Each `forgiveness` that it then works takes one doubling back.
"""

from collections import deque
from collections.abc import Hashable
from math import exp, log
from statistics import median
from typing import Final

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.entropy import Ev, EvProfile, Greyness

# --------------------------------------------------------------------------------------------------
# Whether an EV loses more than the others can explain: a fault of its path, not of the fabric.
#
# MRC condemns an EV for one lost packet (MRC paper, section 2). Where every path loses packets now
# and then, this takes out one EV after the other. The comparison asks how likely as many losses as
# those of this EV are, if it lost no more than the others do. The rotation gives each EV the same
# number of packets, so losses can be compared as they are, and follow a Poisson distribution.
#
# What the others lose is the larger of two estimates that one dead path among them does not spoil:
# the median of their losses, and the mean that explains how many of them lost nothing. Ours.


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


class EvTrust:
    """Judges the EVs of one queue pair. Times in ns; `active` is how many EVs carry data."""

    def __init__(self, profile: EvProfile, rtt: RttEstimator, *, planes: int, slots: int) -> None:
        """Begin with nothing lost.

        Args:
            profile: the parameters.
            rtt: the queue pair's round trip.
            planes: how many planes the EVs have.
            slots: how many EVs are active at the start, in all planes.
        """
        self._profile = profile
        self._rtt = rtt
        self._planes = planes
        self._max_condemned = max(1, int(slots * profile.max_condemned_share))
        self._condemned: deque[tuple[int, Ev]] = deque()
        self._lost_ns: dict[Hashable, int] = {}
        self._comparison: LossComparison | None = None
        if profile.compared:
            self._comparison = LossComparison(rtt, profile.forgiveness, slots)

    @property
    def compares(self) -> bool:
        """Whether the losses of an EV are compared with those of the others."""
        return self._comparison is not None

    def retract_loss(self, ev: Ev) -> None:
        if self._comparison is not None:
            self._comparison.retract(ev)

    def record_loss(self, ev: Ev, now_ns: int) -> bool:
        """Note a loss on `ev`; EVs just condemned in other planes are then not grey.

        Returns:
            Whether other planes have lost packets lately; where losses are compared, whether others
            lose as much.
        """
        key = self._fault_domain(ev)
        self._lost_ns[key] = now_ns
        for condemned_ns, other in self._condemned:
            if condemned_ns > now_ns - self._rtt.smoothed_ns and self._fault_domain(other) != key:
                other.greyness = Greyness.NOT_GREY
        if self._comparison is not None:
            self._comparison.record(ev, now_ns)
            return not self._comparison.stands_out(ev, now_ns)
        since_ns = now_ns - int(self._profile.forgiveness * self._rtt.smoothed_ns)
        return any(lost_ns > since_ns for other, lost_ns in self._lost_ns.items() if other != key)

    def _fault_domain(self, ev: Ev) -> Hashable:
        """Return what the losses of one fault have in common: the plane; the path in one plane."""
        return ev.plane if self._planes > 1 else ev.path_key

    def may_condemn(self, ev: Ev, now_ns: int) -> bool:
        """Whether the limit on condemnations within an RTT allows this one; if so, count it.

        Where losses are compared, an EV that loses no more than others may not be condemned.
        """
        if self._comparison is not None and not self._comparison.stands_out(ev, now_ns):
            return False
        recent = self._condemned
        while recent and recent[0][0] <= now_ns - self._rtt.smoothed_ns:
            recent.popleft()
        if len(recent) >= self._max_condemned:
            return False
        recent.append((now_ns, ev))
        return True

    def answers_needed(self, ev: Ev, active: int) -> int:
        """Return how many answers in a row bring `ev` back."""
        least = self._profile.probe_successes
        needed = min(least << ev.recondemnations, max(least, self._profile.max_probe_successes))
        if ev.greyness is Greyness.GREY and active >= max(self._profile.ev_min_active, 1):
            return max(needed, self._profile.grey_probe_successes)
        return needed

    def restart_count(self, ev: Ev, active: int) -> None:
        """Count answers from zero; one answer is enough for an EV that only its port took away."""
        ev.answers = self.answers_needed(ev, active) - 1 if ev.lost_port else 0

    def condemned(self, ev: Ev, now_ns: int, active: int) -> None:
        """Count a condemnation that comes soon after the return, and forget old ones."""
        ev.counted = False
        if ev.returned_ns is None:
            return
        forgiveness_ns = int(self._profile.forgiveness * self._rtt.smoothed_ns)
        forgiven = (now_ns - ev.returned_ns) // forgiveness_ns
        ev.recondemnations = max(0, ev.recondemnations - forgiven)
        if forgiven == 0 and self.answers_needed(ev, active) < self._profile.max_probe_successes:
            ev.recondemnations += 1
            ev.counted = True
