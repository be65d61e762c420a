"""Who is ill at the moment: accusations over windows of time, raised and lifted."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from testbed.mapper.evidence import Floats, in_favour
from testbed.mapper.inference import Culprit, Incidence, accuse
from testbed.mapper.prober import Outcome
from testbed.mapper.suspects import Suspect, SuspectKind, directions_of
from testbed.model.fabric.names import directions_of as directions_of_link
from testbed.model.fabric.topology import Topology
from testbed.model.faults.targets import target_directions

WINDOW_ROUNDS = (4, 32, 512)
"""Lengths of the windows, in rounds: a dead link shows in the first, a grey one in the last."""

RELIEF = 9.2
"""A culprit is well again when what became of the newest probes across it is 10,000 times likelier
if it is well than if it is still as ill (nats)."""

MOST_LOST = 0.9
"""A culprit counts as losing so much at the most: it takes four probes to show that it is well."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An accusation, raised or lifted.

    Attributes:
        time_ns: when.
        culprit: who, with the loss and the evidence at that moment.
        raised: whether it is raised; otherwise it is lifted.
    """

    time_ns: int
    culprit: Culprit
    raised: bool


class Diagnosis:
    """Takes outcomes in, says who is ill."""

    def __init__(self, topology: Topology, period_ns: int) -> None:
        self._topology = topology
        self._windows_ns = tuple(rounds * period_ns for rounds in WINDOW_ROUNDS)
        self._incidence = Incidence()
        self._directions: list[frozenset[str]] = []
        # of every probe in the longest window; arrays, as numpy takes these over at once
        self._times = array("q")
        self._paths = array("q")
        self._lost = array("b")
        self._forgotten_ns: dict[int, int] = {}
        self._standing: dict[Suspect, Culprit] = {}

    @property
    def standing(self) -> tuple[Culprit, ...]:
        """Who is accused now."""
        return tuple(self._standing.values())

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take in what became of some probes."""
        for outcome in outcomes:
            probe = outcome.probe
            number = self._incidence.number(probe.path)
            if number == len(self._directions):
                self._directions.append(frozenset(probe.path.directions))
            if probe.sent_ns > self._forgotten_ns.get(number, -1):
                self._times.append(probe.sent_ns)
                self._paths.append(number)
                self._lost.append(outcome.lost)

    def judge(self, now_ns: int) -> list[Finding]:
        """Weigh the evidence; returns the accusations raised and lifted by it."""
        self._forget_before(now_ns - self._windows_ns[-1])
        if True not in self._lost and not self._standing:
            return []
        found = self._named_as_before(self._weigh(now_ns))
        named = self._all_directions(found)
        for suspect, culprit in self._standing.items():
            if not directions_of(self._topology, suspect) & named:
                found[suspect] = culprit  # nobody takes its place: only relief lifts an accusation
        for culprit in tuple(found.values()):
            if self._is_well(culprit.suspect, culprit.loss, found.values()):
                self._forget(culprit, now_ns)
                del found[culprit.suspect]
        lifted = [
            Finding(now_ns, culprit, raised=False)
            for suspect, culprit in self._standing.items()
            if suspect not in found
        ]
        raised = [
            Finding(now_ns, culprit, raised=True)
            for suspect, culprit in found.items()
            if suspect not in self._standing
        ]
        self._standing = found
        return lifted + raised

    def _named_as_before(self, found: dict[Suspect, Culprit]) -> dict[Suspect, Culprit]:
        """Keep to a direction once it was told from its link, unless the link is clearer now."""
        named: dict[Suspect, Culprit] = {}
        for suspect, culprit in found.items():
            before = next((one for one in self._standing if one.link == suspect.link), suspect)
            ever = self._standing[before].gain if before in self._standing else 0.0
            if suspect.kind is SuspectKind.LINK and culprit.gain <= ever:
                named[before] = replace(self._standing[before], loss=culprit.loss)
            else:
                named[suspect] = replace(culprit, gain=max(culprit.gain, ever))
        return named

    def _weigh(self, now_ns: int) -> dict[Suspect, Culprit]:
        """The culprits of every window; a longer one renames what it tells more clearly only."""
        times, paths = np.array(self._times), np.array(self._paths)
        lost = np.array(self._lost, dtype=float)
        found: dict[str, list[Culprit]] = {}
        for window_ns in self._windows_ns:
            recent = times > now_ns - window_ns
            culprits = accuse(
                self._incidence,
                self._counted(paths[recent]),
                self._counted(paths[recent], lost[recent]),
                self._standing,
            )
            explained = self._all_directions(one.suspect for each in found.values() for one in each)
            for link, own in _by_link(culprits).items():
                if link in found:
                    others = [one for each in found.values() for one in each]
                    found[link] = self._clearer(found[link], own, others)
                elif not self._all_directions(one.suspect for one in own) & explained:
                    found[link] = own
        return {one.suspect: one for each in found.values() for one in each}

    def _clearer(
        self, before: list[Culprit], longer: list[Culprit], others: Iterable[Culprit]
    ) -> list[Culprit]:
        """A link or a direction of it, whichever has the stronger evidence.

        How much is lost is what the shorter window says: the longer one may begin before the fault.
        A direction gives way to its link only where the other direction is not well by now.
        """
        if len(before) != 1 or len(longer) != 1 or longer[0].gain <= before[0].gain:
            return before
        (shorter,), (clearer,) = before, longer
        widened = (shorter.suspect.kind, clearer.suspect.kind) == (
            SuspectKind.DIRECTION,
            SuspectKind.LINK,
        )
        if widened:
            (name,) = set(directions_of_link(shorter.suspect.link)) - {shorter.suspect.name}
            other = Suspect(SuspectKind.DIRECTION, name)
            if self._is_well(other, clearer.loss, others):
                return before
        return [replace(clearer, loss=shorter.loss)]

    def _all_directions(self, suspects: Iterable[Suspect]) -> frozenset[str]:
        return frozenset().union(*(directions_of(self._topology, one) for one in suspects))

    def _counted(self, paths: NDArray[np.int64], weights: Floats | None = None) -> Floats:
        return np.bincount(paths, weights, minlength=len(self._incidence)).astype(float)

    def _crossing(self, place: str) -> frozenset[int]:
        """The numbers of the paths that cross a direction, a link or a switch."""
        directions = frozenset(target_directions(self._topology, place) or ())
        return frozenset(
            number for number, crossed in enumerate(self._directions) if crossed & directions
        )

    def _is_well(self, suspect: Suspect, loss: float, accused: Iterable[Culprit]) -> bool:
        """Whether the newest probes across it are likelier if it loses nothing than if that share.

        What others that are accused explain says little: neither a loss on their paths, that it is
        ill, nor an arrival where it shares no direction with them, that they are not.
        """
        own = directions_of(self._topology, suspect)
        others = self._incidence.log_delivery(
            (one.suspect, one.loss)
            for one in accused
            if not directions_of(self._topology, one.suspect) & own
        )
        passed = self._incidence.counts[self._incidence.suspects.index(suspect)]
        arrived, lost = in_favour(passed, min(loss, MOST_LOST), others)
        # newest first; outcomes come nearly, not quite, in the order of sending
        order = np.argsort(np.array(self._times), kind="stable")[::-1]
        paths, are_lost = np.array(self._paths)[order], np.array(self._lost)[order]
        says = np.where(are_lost, lost[paths], arrived[paths]).cumsum()
        decided = np.flatnonzero(np.abs(says) >= RELIEF)
        return bool(decided.size and says[decided[0]] > 0)

    def _forget(self, culprit: Culprit, now_ns: int) -> None:
        """What was lost on its link while it was ill says nothing about now."""
        crossing = self._crossing(culprit.suspect.link)
        for number in crossing:
            self._forgotten_ns[number] = now_ns
        self._keep([number not in crossing for number in self._paths])

    def _forget_before(self, time_ns: int) -> None:
        if self._times and self._times[0] <= time_ns - self._windows_ns[-1] // 8:
            self._keep([time > time_ns for time in self._times])

    def _keep(self, which: list[bool]) -> None:
        self._times = array("q", compress(self._times, which))
        self._paths = array("q", compress(self._paths, which))
        self._lost = array("b", compress(self._lost, which))


def _by_link(culprits: Iterable[Culprit]) -> dict[str, list[Culprit]]:
    """Culprits by their link, or switch."""
    found: dict[str, list[Culprit]] = {}
    for one in culprits:
        found.setdefault(one.suspect.link, []).append(one)
    return found
