"""What a loss says about an EV, and how many probes it must answer before it carries data again.

How many are enough is not public. Here it depends on what the path was condemned for. One that was
silent, its first probe too, was dead: a few answers tell that it is back. One that delivered a
packet behind the lost one, or answered its first probe, is *grey*: it answers most probes while it
loses, so that a few answers tell nothing, and it needs many. But grey is a path only beside others:
where packets were lost in other planes too (on other paths, if there is one plane), before it was
condemned or within an RTT after, where the last `ev_min_active` EVs lose, or fewer of them carry
data, a path must not stand by for what all do, and a few answers are enough. A path that answers a
few probes by luck and is condemned again soon after needs twice as many the next time, up to a
bound; each `forgiveness` that it then works takes one doubling back.
"""

from collections import deque
from collections.abc import Hashable

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.ev.path import Path
from testbed.mrc.ev.profile import EvProfile


class EvTrust:
    """Judges the paths of one queue pair. Times in ns; `active` is how many EVs carry data."""

    def __init__(self, profile: EvProfile, rtt: RttEstimator, *, planes: int, slots: int) -> None:
        """Begin with nothing lost, in so many planes, with so many slots in all."""
        self._profile = profile
        self._rtt = rtt
        self._planes = planes
        self._max_condemned = max(1, int(slots * profile.max_condemned_share))
        self._condemned: deque[tuple[int, Path]] = deque()
        self._lost_ns: dict[Hashable, int] = {}

    def lost(self, path: Path, now_ns: int) -> bool:
        """Note a loss on `path`: what other planes have just lost is not for being grey, either.

        Returns whether they have lost anything of late.
        """
        key = self._shared(path)
        self._lost_ns[key] = now_ns
        for condemned_ns, other in self._condemned:
            if condemned_ns > now_ns - self._rtt.smoothed_ns and self._shared(other) != key:
                other.grey = False
        since_ns = now_ns - int(self._profile.forgiveness * self._rtt.smoothed_ns)
        return any(lost_ns > since_ns for other, lost_ns in self._lost_ns.items() if other != key)

    def _shared(self, path: Path) -> Hashable:
        """Return what the losses of a fault are expected to share: the plane, or else the path."""
        return path.plane if self._planes > 1 else path.path_key

    def may_condemn(self, path: Path, now_ns: int) -> bool:
        """Whether the brake on condemnations within an RTT allows another, which it then counts."""
        recent = self._condemned
        while recent and recent[0][0] <= now_ns - self._rtt.smoothed_ns:
            recent.popleft()
        if len(recent) >= self._max_condemned:
            return False
        recent.append((now_ns, path))
        return True

    def enough(self, path: Path, active: int) -> int:
        """Return how many answers in a row bring `path` back."""
        least = self._profile.probe_successes
        enough = min(least << path.relapses, max(least, self._profile.max_probe_successes))
        if path.grey and active >= max(self._profile.ev_min_active, 1):
            return max(enough, self._profile.grey_probe_successes)
        return enough

    def count_anew(self, path: Path, active: int) -> None:
        """Count answers from none on; of one that only its port took away the first will do."""
        path.successes = self.enough(path, active) - 1 if path.unplugged else 0

    def relapse(self, path: Path, now_ns: int, active: int) -> None:
        """Count a condemnation that comes soon after the return, forget old ones."""
        path.relapsed = False
        if path.returned_ns is None:
            return
        patience_ns = int(self._profile.forgiveness * self._rtt.smoothed_ns)
        worked = (now_ns - path.returned_ns) // patience_ns
        path.relapses = max(0, path.relapses - worked)
        if worked == 0 and self.enough(path, active) < self._profile.max_probe_successes:
            path.relapses += 1
            path.relapsed = True
