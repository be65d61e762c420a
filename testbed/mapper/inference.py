"""From lost probes to the fewest culprits that explain them: loss tomography by likelihood.

A path delivers a probe if nothing on its way loses it, so for a path with n probes of which l were
lost the log-likelihood is l log(1 - s) + (n - l) log s, with s the product of (1 - loss) of all
that it passes. Beginning with nothing ill, the suspect whose illness raises the likelihood most is
taken in, then the next, as long as each raises it by `EVIDENCE` or more. The first may have been
blamed for what several did together, as a T0 for a dead link and a lossy port of its: whoever then
explains that better takes its place, and one that the others make superfluous is acquitted. So a
silent T1 is one culprit, not all its link directions, and a link that loses one packet in a hundred
is told from its neighbours by the paths it is not on. Who stands accused already is not looked for
again: the search begins with those, or the little evidence of a short while might be explained by
one switch as well as by the two links that long evidence has named.

(Maximum likelihood for link loss: Caceres et al., IEEE Trans. Inf. Theory 45(7), 1999; grey links
in a data centre: NetBouncer, NSDI 2019. The stepwise search and its thresholds are ours.)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.mapper.evidence import Evidence, Floats, healthy
from testbed.mapper.paths import ProbePath
from testbed.mapper.suspects import Suspect, SuspectKind, suspects_on

EVIDENCE = 12.0
"""Least gain in log-likelihood (nats) of an accusation: odds of 160,000 to 1."""

OF_SWITCH = EVIDENCE
"""By how much (nats) a switch must explain the losses better than a link of it would: it takes as
much evidence as two links that are ill at the same time."""

AMBIGUITY = 3.0
"""By how much (nats) a culprit must explain the losses better than any other suspect would."""

STANDING = AMBIGUITY - EVIDENCE
"""Instead of `OF_SWITCH`, of a switch that stands accused: it gives way to a link only where that
explains more by as much as an accusation takes."""

MAX_CULPRITS = 64

_REFITS = 3


@dataclass(frozen=True, slots=True)
class Culprit:
    """A suspect that the evidence accuses.

    Attributes:
        suspect: who.
        loss: the estimated share of packets that it loses, 0 to 1.
        gain: the evidence, in nats of log-likelihood.
    """

    suspect: Suspect
    loss: float
    gain: float


class Incidence:
    """Which suspect is on which path, and how often."""

    def __init__(self) -> None:
        self._paths: dict[ProbePath, int] = {}
        self._suspects: dict[Suspect, int] = {}
        self._entries: list[tuple[int, int]] = []

    def number(self, path: ProbePath) -> int:
        """The number of a path, the next one if it is new."""
        known = self._paths.get(path)
        if known is not None:
            return known
        number = self._paths[path] = len(self._paths)
        for suspect in suspects_on(path):
            self._entries.append((self._suspects.setdefault(suspect, len(self._suspects)), number))
        self.__dict__.pop("counts", None)
        self.__dict__.pop("suspects", None)
        return number

    def __len__(self) -> int:
        """How many paths there are."""
        return len(self._paths)

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """The suspects, in the order of the rows of `counts`."""
        return tuple(self._suspects)

    @cached_property
    def counts(self) -> Floats:
        """Suspects x paths: how often a probe on the path passes the suspect."""
        found = np.zeros((len(self._suspects), len(self._paths)))
        np.add.at(found, tuple(np.array(self._entries, dtype=int).reshape(-1, 2).T), 1.0)
        return found

    def log_delivery(self, culprits: Iterable[tuple[Suspect, float]]) -> Floats:
        """Log of every path's delivery where each of these loses so much, and nobody else."""
        found = healthy(len(self))
        for suspect, loss in culprits:
            found = found + self.counts[self.suspects.index(suspect)] * np.log1p(-loss)
        return found


def accuse(
    incidence: Incidence, sent: Floats, lost: Floats, standing: Collection[Suspect] = ()
) -> tuple[Culprit, ...]:
    """The fewest culprits that explain what was lost, the strongest evidence first.

    Where two suspects explain it about equally well neither is accused yet; but a link is, before
    it is clear in which direction.

    Args:
        incidence: the paths and who is on them.
        sent: probes on each path whose fate is known.
        lost: how many of those were lost.
        standing: who was accused before. They are not accused again without evidence, but nobody
            else is of what they explain.
    """
    if not lost.any():
        return ()
    probed = np.flatnonzero(sent)
    evidence = Evidence(sent[probed], lost[probed])
    rows = _distinct(incidence.suspects, incidence.counts[:, probed], evidence.lost, standing)
    suspects = [incidence.suspects[row] for row in rows]
    search = _Search(suspects, incidence.counts[rows][:, probed], evidence, standing)
    search.run()
    return tuple(sorted(search.clear_culprits(), key=lambda one: -one.gain))


def _distinct(
    suspects: Sequence[Suspect], counts: Floats, lost: Floats, standing: Collection[Suspect]
) -> list[int]:
    """Suspects with a lost probe; of those that no path tells apart one: standing, or plainest."""
    plainness = (SuspectKind.LINK, SuspectKind.DIRECTION, SuspectKind.SWITCH)

    def rank(row: int) -> tuple[bool, int]:
        return suspects[row] not in standing, plainness.index(suspects[row].kind)

    found: dict[bytes, int] = {}
    for row in sorted(np.flatnonzero(counts @ (lost > 0)).tolist(), key=rank):
        found.setdefault((counts[row] > 0).tobytes(), row)
    return list(found.values())


class _Search:
    """Looks for the suspects that together explain the evidence; each goes by its number."""

    def __init__(
        self,
        suspects: Sequence[Suspect],
        counts: Floats,
        evidence: Evidence,
        standing: Collection[Suspect],
    ) -> None:
        """Begin with who stands accused.

        `counts` says how often each path (column) passes each suspect.
        """
        self._suspects = suspects
        self._counts = counts
        self._evidence = evidence
        stand = np.array([one in standing for one in suspects], dtype=bool)
        self._standing = frozenset(np.flatnonzero(stand).tolist())
        self._losses = self._fitted(dict.fromkeys(self._standing, 0.0))
        self._are_switches = np.array([one.kind is SuspectKind.SWITCH for one in suspects])
        self._prices = np.where(self._are_switches, np.where(stand, STANDING, OF_SWITCH), 0.0)

    def run(self) -> None:
        """Add whoever explains most of what is left, then see whether others do better."""
        for _ in range(MAX_CULPRITS):
            before = frozenset(self._losses)
            self._add()
            self._exchange()
            self._split()
            self._join()
            self._acquit()
            if before == self._losses.keys():
                return

    def clear_culprits(self) -> Iterator[Culprit]:
        """Those in whose place nobody else would explain the evidence about as well."""
        for number in self._losses:
            others = self._without(number)
            losses, gains = self._weigh(others)
            clear = self._one_of(self._likely(gains))
            if clear is not None:
                gain = float(gains[clear] + self._prices[clear])
                yield Culprit(self._suspects[clear], float(losses[clear]), gain)

    def _add(self, *, switches: bool = True) -> None:
        while len(self._losses) < MAX_CULPRITS:
            _, gains = self._weigh(self._losses)
            if not switches:
                gains[self._are_switches] = -np.inf
            likely = self._likely(gains)
            if not likely:
                return
            self._put(likely)

    def _exchange(self) -> None:
        """Put whoever explains it clearly better in the place of each."""
        for number in tuple(self._losses):
            others = self._without(number)
            _, gains = self._weigh(others)
            likely = self._likely(gains)
            if likely and number not in likely:
                self._losses = others
                self._put(likely)

    def _split(self) -> None:
        """Put links in the place of a switch that was blamed for what several of them did.

        One that stands accused gives way to what would be an accusation by itself.
        """
        for number in [one for one in self._losses if self._are_switches[one]]:
            whole = self._losses
            self._losses = self._without(number)
            self._add(switches=False)
            more = self._likelihood(self._losses) - self._likelihood(whole)
            if more < (EVIDENCE if number in self._standing else AMBIGUITY):
                self._losses = whole

    def _join(self) -> None:
        """Put a switch in the place of links of it, the way back from `_split`.

        Where they take every path over the switch with them it has to explain what they do about as
        well; otherwise it has to explain more, by what an accusation takes.
        """
        for number in np.flatnonzero(self._are_switches).tolist():
            switch = self._suspects[number]
            links = [one for one in self._losses if self._suspects[one].ends_at(switch)]
            if number in self._losses or len(links) <= 1:  # one: that is _exchange's
                continue
            covered = np.all(self._counts[links].any(axis=0) >= (self._counts[number] > 0))
            rest = {one: loss for one, loss in self._losses.items() if one not in links}
            joined = self._fitted({**rest, number: 0.0})
            more = self._likelihood(joined) - self._likelihood(self._losses)
            if more > (-AMBIGUITY if covered else EVIDENCE):
                self._losses = joined

    def _acquit(self) -> None:
        """Let go of those without whom the evidence is about as likely.

        Of those that stood accused before only who shares directions with another.
        """
        for number in tuple(self._losses):
            if number in self._standing and not self._is_part(number):
                continue
            others = self._fitted(self._without(number))
            more = self._likelihood(self._losses) - self._likelihood(others)
            if more < EVIDENCE + self._prices[number]:
                self._losses = others

    def _is_part(self, number: int) -> bool:
        """Whether another culprit has directions of it: its switch, its link, a direction of it."""
        own = self._suspects[number]
        others = (self._suspects[one] for one in self._losses if one != number)
        return any(
            own.link == other.link or own.ends_at(other) or other.ends_at(own) for other in others
        )

    def _likely(self, gains: Floats) -> list[int]:
        """Those that raise the likelihood about as much as the best, which comes first."""
        best = int(gains.argmax())
        if gains[best] < EVIDENCE:
            return []
        likely = np.flatnonzero(gains[best] - gains < AMBIGUITY)
        return sorted(likely.tolist(), key=lambda number: -float(gains[number]))

    def _put(self, likely: Sequence[int]) -> None:
        """Take in the likeliest: of directions of one link the link."""
        one = self._one_of(likely)
        self._losses = self._fitted({**self._losses, likely[0] if one is None else one: 0.0})

    def _one_of(self, numbers: Sequence[int]) -> int | None:
        """The only one, or the link of which all of them are directions; else nobody."""
        if len(numbers) == 1:
            return numbers[0]
        if len({self._suspects[number].link for number in numbers}) != 1:
            return None
        links = (one for one in numbers if self._suspects[one].kind is SuspectKind.LINK)
        return next(links, None)

    def _without(self, number: int) -> dict[int, float]:
        return {one: loss for one, loss in self._losses.items() if one != number}

    def _fitted(self, losses: Mapping[int, float]) -> dict[int, float]:
        """The same culprits with the losses that make the evidence likeliest."""
        found = dict(losses)
        for _ in range(_REFITS if len(found) > 1 else 1):
            for number in found:
                base = self._delivery({**found, number: 0.0})
                (found[number],), _ = self._evidence.best_losses(self._counts[[number]], base)
        return found

    def _weigh(self, losses: Mapping[int, float]) -> tuple[Floats, Floats]:
        """What every suspect likeliest loses beside these, and how much likelier, at a price."""
        found, gains = self._evidence.best_losses(self._counts, self._delivery(losses))
        gains -= self._prices
        gains[list(losses)] = -np.inf
        return found, gains

    def _likelihood(self, losses: Mapping[int, float]) -> float:
        return self._evidence.likelihood(self._delivery(losses))

    def _delivery(self, losses: Mapping[int, float]) -> Floats:
        found = self._evidence.healthy()
        for number, loss in losses.items():
            found = found + self._counts[number] * np.log1p(-loss)
        return found
