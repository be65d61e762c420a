"""From lost probes to the fewest culprits that explain them: loss tomography by likelihood.

A path delivers a probe if nothing on it loses the probe. So the log-likelihood of n probes on a
path of which l were lost is l log(1 - s) + (n - l) log s, where s is the product of (1 - loss) of
all that the path crosses. The search begins with the suspects that stand accused already: otherwise
the little evidence of a short window might be explained by one switch as well as by the two links
that long evidence has named. Then it adds the suspect that raises the likelihood most, then the
next, as long as each raises it by `ACCUSATION_NATS` or more.

The first culprit may have been blamed for what several did together, for example a T0 for a dead
link and a lossy port. So a suspect that then explains more takes its place, and a culprit that the
others make superfluous is dropped. As a result, a silent T1 is one culprit rather than all its link
directions, and the paths that do not cross a link tell a loss of 1% on it from one on its
neighbours.

(Maximum likelihood for link loss: Caceres et al., IEEE Trans. Inf. Theory 45(7), 1999; grey links
in a data centre: NetBouncer, NSDI 2019. The stepwise search and its thresholds are this project's.)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from testbed.mapper.prober import ProbePath
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import target_directions

# --------------------------------------------------------------------------------------------------
# What can be faulty, and which probes it would lose.


class SuspectKind(StrEnum):
    """What a suspect is."""

    DIRECTION = "direction"
    LINK = "link"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, order=True)
class Suspect:
    """Something that may lose packets: `p0_t0_0>p0_t1_1`, `p0_t0_0--p0_t1_1` or `p0_t1_1`."""

    kind: SuspectKind
    name: str

    @property
    def link(self) -> str:
        """The name of the link, also of a direction; of a switch its own name."""
        return link_of(self.name) if self.kind is SuspectKind.DIRECTION else self.name

    def ends_at(self, switch: "Suspect") -> bool:
        """Whether it is a link, or a direction of one, of this switch."""
        return self.kind is not SuspectKind.SWITCH and switch.name in self.link.split("--")


def suspects_on(path: ProbePath) -> Iterator[Suspect]:
    """Everything that could lose a probe on its path; what the path crosses twice comes twice."""
    for direction, node in zip(path.directions, path.nodes[1:], strict=True):
        yield Suspect(SuspectKind.DIRECTION, direction)
        yield Suspect(SuspectKind.LINK, link_of(direction))
        if node.tier is not Tier.HOST:
            yield Suspect(SuspectKind.SWITCH, node.name)


def suspect_directions(topology: Topology, suspect: Suspect) -> frozenset[str]:
    """The link directions on which a suspect loses packets if it is faulty."""
    return frozenset(target_directions(topology, suspect.name) or ())


# --------------------------------------------------------------------------------------------------
# How many probes were lost on each path, and how likely that is for given loss rates.


Floats = NDArray[np.float64]

BACKGROUND = 1e-4
"""Assumed loss of a healthy path: the fabric loses nothing, but a busy machine may."""

LOSSES = np.concatenate([np.geomspace(2e-3, 0.5, 28), 1 - np.geomspace(0.45, 1e-6, 12)])
"""The loss rates that are tried for a suspect."""


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Counts of probes by path.

    Attributes:
        sent: probes whose outcome is known.
        lost: how many of them were lost.
    """

    sent: Floats
    lost: Floats

    def log_likelihood(self, log_delivery: Floats) -> float:
        """The log-likelihood (nats) of the counts, given the log of every path's delivery rate."""
        arrived = self.sent - self.lost
        return float(self.lost @ _log_loss(log_delivery) + arrived @ log_delivery)

    def best_losses(self, crossings: Floats, log_delivery: Floats) -> tuple[Floats, Floats]:
        """The likeliest loss rate of each suspect, and its gain in log-likelihood over no loss.

        The term of the probes that arrived is linear in the log of a suspect's delivery rate. The
        term of the lost ones depends on how often their path crosses it: once or twice.

        Args:
            crossings: suspects x paths: how often each path crosses each suspect.
            log_delivery: log of every path's delivery rate without these suspects.
        """
        log_deliveries = np.log1p(-LOSSES)
        gains = np.outer(crossings @ (self.sent - self.lost), log_deliveries)
        lossy = np.flatnonzero(self.lost)
        on_lossy, others = crossings[:, lossy], log_delivery[lossy, np.newaxis]
        for times in np.unique(on_lossy[on_lossy > 0]):
            more = _log_loss(others + times * log_deliveries) - _log_loss(others)
            gains += (on_lossy == times) @ (self.lost[lossy, np.newaxis] * more)
        best = gains.argmax(axis=1)
        return LOSSES[best], gains[np.arange(len(crossings)), best]


def log_delivery_rates(paths: int, culprits: Iterable[tuple[Floats, float]] = ()) -> Floats:
    """The log of every path's delivery rate.

    Args:
        paths: how many paths there are.
        culprits: of each, how often every path crosses it, and its loss rate.
    """
    log_delivery = np.full(paths, np.log1p(-BACKGROUND))
    for crossings, loss in culprits:
        log_delivery = log_delivery + crossings * np.log1p(-loss)
    return log_delivery


def log_odds_healthy(crossings: Floats, loss: float, log_delivery: Floats) -> tuple[Floats, Floats]:
    """By how much one probe on each path speaks for a suspect being healthy, in nats.

    Args:
        crossings: how often each path crosses the suspect.
        loss: its loss rate if it is faulty.
        log_delivery: log of every path's delivery rate without the suspect.

    Returns:
        For a probe that arrived, and for a probe that was lost (negative).
    """
    faulty = log_delivery + crossings * np.log1p(-loss)
    return log_delivery - faulty, _log_loss(log_delivery) - _log_loss(faulty)


def _log_loss(log_delivery: Floats) -> Floats:
    log_loss: Floats = np.log(-np.expm1(np.minimum(log_delivery, -1e-12)))
    return log_loss


ACCUSATION_NATS = 12.0
"""Least gain in log-likelihood (nats) of an accusation: odds of 160,000 to 1."""

SWITCH_PENALTY = ACCUSATION_NATS
"""By how much (nats) a switch must explain the losses better than one of its links would: as much
evidence as a second faulty link takes."""

AMBIGUITY_NATS = 3.0
"""By how much (nats) a culprit must explain the losses better than any other suspect would."""

ACCUSED_SWITCH_PENALTY = AMBIGUITY_NATS - ACCUSATION_NATS
"""The penalty of a switch that stands accused: it gives way to a link only if the link explains
more by as much as an accusation takes."""

MAX_CULPRITS = 64

_REFITS = 3


@dataclass(frozen=True, slots=True)
class Culprit:
    """A suspect that the evidence accuses.

    Attributes:
        suspect: the accused.
        loss: the estimated share of packets that it loses, 0 to 1.
        gain: the evidence, in nats of log-likelihood.
    """

    suspect: Suspect
    loss: float
    gain: float


class Incidence:
    """Which path crosses which suspect, and how often."""

    def __init__(self) -> None:
        self._paths: dict[ProbePath, int] = {}
        self._suspects: dict[Suspect, int] = {}
        self._entries: list[tuple[int, int]] = []

    def number(self, path: ProbePath) -> int:
        """The number of a path; a new path gets the next one."""
        if path not in self._paths:
            number = self._paths[path] = len(self._paths)
            for suspect in suspects_on(path):
                row = self._suspects.setdefault(suspect, len(self._suspects))
                self._entries.append((row, number))
            self.__dict__.pop("counts", None)
            self.__dict__.pop("suspects", None)
        return self._paths[path]

    def __len__(self) -> int:
        return len(self._paths)

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """The suspects, in the order of the rows of `counts`."""
        return tuple(self._suspects)

    @cached_property
    def counts(self) -> Floats:
        """Suspects x paths: how often a probe on the path crosses the suspect."""
        counts = np.zeros((len(self._suspects), len(self._paths)))
        np.add.at(counts, tuple(np.array(self._entries, dtype=int).reshape(-1, 2).T), 1.0)
        return counts

    def crossings_of(self, suspect: Suspect) -> Floats:
        """How often each path crosses a suspect."""
        crossings: Floats = self.counts[self._suspects[suspect]]
        return crossings

    def log_delivery(self, losses: Iterable[tuple[Suspect, float]]) -> Floats:
        """The log of every path's delivery rate if only these suspects lose these shares."""
        culprits = ((self.crossings_of(suspect), loss) for suspect, loss in losses)
        return log_delivery_rates(len(self), culprits)


def find_culprits(
    incidence: Incidence, sent: Floats, lost: Floats, accused: Collection[Suspect] = ()
) -> tuple[Culprit, ...]:
    """The fewest culprits that explain the lost probes, the strongest evidence first.

    If two suspects explain the losses about equally well, neither is a culprit yet; but a link is,
    before it is clear which direction of it loses.

    Args:
        incidence: the paths, and the suspects on them.
        sent: probes on each path whose outcome is known.
        lost: how many of them were lost.
        accused: the suspects that stand accused. They are not named without evidence, but no other
            suspect is named for what they explain.
    """
    if not lost.any():
        return ()
    probed = np.flatnonzero(sent)
    evidence = ProbeCounts(sent[probed], lost[probed])
    rows = _distinct(incidence.suspects, incidence.counts[:, probed], evidence.lost, accused)
    suspects = [incidence.suspects[row] for row in rows]
    search = _Search(suspects, incidence.counts[rows][:, probed], evidence, accused)
    search.run()
    return tuple(sorted(search.clear_culprits(), key=lambda culprit: -culprit.gain))


def _distinct(
    suspects: Sequence[Suspect], counts: Floats, lost: Floats, accused: Collection[Suspect]
) -> list[int]:
    """The rows of suspects with a lost probe, one of each set that no path tells apart.

    Of such a set it is the one that stands accused; otherwise a link before a direction before a
    switch.
    """
    preference = (SuspectKind.LINK, SuspectKind.DIRECTION, SuspectKind.SWITCH)

    def rank(row: int) -> tuple[bool, int]:
        return suspects[row] not in accused, preference.index(suspects[row].kind)

    rows: dict[bytes, int] = {}
    for row in sorted(np.flatnonzero(counts @ (lost > 0)).tolist(), key=rank):
        rows.setdefault((counts[row] > 0).tobytes(), row)
    return list(rows.values())


class _Search:
    """Looks for the suspects that together explain the evidence; suspects go by their numbers.

    `_losses` holds the present culprits and their loss rates.
    """

    def __init__(
        self,
        suspects: Sequence[Suspect],
        counts: Floats,
        evidence: ProbeCounts,
        accused: Collection[Suspect],
    ) -> None:
        """Begin with the suspects that stand accused.

        `counts` says how often each path (column) crosses each suspect (row).
        """
        self._suspects = suspects
        self._counts = counts
        self._evidence = evidence
        are_accused = np.array([suspect in accused for suspect in suspects], dtype=bool)
        self._accused = frozenset(np.flatnonzero(are_accused).tolist())
        self._losses = self._fit(dict.fromkeys(self._accused, 0.0))
        self._are_switches = np.array([s.kind is SuspectKind.SWITCH for s in suspects])
        switch_penalties = np.where(are_accused, ACCUSED_SWITCH_PENALTY, SWITCH_PENALTY)
        self._penalties = np.where(self._are_switches, switch_penalties, 0.0)

    def run(self) -> None:
        """Add what explains most of the rest, then see whether others explain it better."""
        for _ in range(MAX_CULPRITS):
            before = frozenset(self._losses)
            self._add()
            self._exchange()
            self._split_switches()
            self._join_links()
            self._drop_superfluous()
            if before == self._losses.keys():
                return

    def clear_culprits(self) -> Iterator[Culprit]:
        """The culprits in whose place no other suspect explains the evidence about as well."""
        for number in self._losses:
            losses, gains = self._weigh(self._without(number))
            clear = self._unambiguous(self._likely(gains))
            if clear is not None:
                gain = float(gains[clear] + self._penalties[clear])
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
        """Replace each culprit by a suspect that explains its losses clearly better."""
        for number in tuple(self._losses):
            others = self._without(number)
            _, gains = self._weigh(others)
            likely = self._likely(gains)
            if likely and number not in likely:
                self._losses = others
                self._put(likely)

    def _split_switches(self) -> None:
        """Replace a switch by links of it if it was blamed for what several of them did.

        A switch that stands accused gives way only to what would be an accusation by itself.
        """
        for number in [n for n in self._losses if self._are_switches[n]]:
            before = self._losses
            self._losses = self._without(number)
            self._add(switches=False)
            gain = self._log_likelihood(self._losses) - self._log_likelihood(before)
            if gain < (ACCUSATION_NATS if number in self._accused else AMBIGUITY_NATS):
                self._losses = before

    def _join_links(self) -> None:
        """Replace links of a switch by the switch: the reverse of `_split_switches`.

        If the links cover every path over the switch, it has to explain about as much as they do.
        Otherwise it has to explain more, by what an accusation takes.
        """
        for number in np.flatnonzero(self._are_switches).tolist():
            switch = self._suspects[number]
            links = [n for n in self._losses if self._suspects[n].ends_at(switch)]
            if number in self._losses or len(links) <= 1:  # `_exchange` replaces a single link
                continue
            covered = np.all(self._counts[links].any(axis=0) >= (self._counts[number] > 0))
            others = {n: loss for n, loss in self._losses.items() if n not in links}
            joined = self._fit({**others, number: 0.0})
            gain = self._log_likelihood(joined) - self._log_likelihood(self._losses)
            if gain > (-AMBIGUITY_NATS if covered else ACCUSATION_NATS):
                self._losses = joined

    def _drop_superfluous(self) -> None:
        """Drop the culprits without which the evidence is about as likely.

        One that stood accused before is dropped only if it shares directions with another.
        """
        for number in tuple(self._losses):
            if number in self._accused and not self._overlaps(number):
                continue
            others = self._fit(self._without(number))
            gain = self._log_likelihood(self._losses) - self._log_likelihood(others)
            if gain < ACCUSATION_NATS + self._penalties[number]:
                self._losses = others

    def _overlaps(self, number: int) -> bool:
        """Whether another culprit shares directions with it: its switch, link or direction."""
        suspect = self._suspects[number]
        others = (self._suspects[n] for n in self._losses if n != number)
        return any(
            suspect.link == other.link or suspect.ends_at(other) or other.ends_at(suspect)
            for other in others
        )

    def _likely(self, gains: Floats) -> list[int]:
        """The suspects that raise the likelihood about as much as the best, the best first."""
        best = int(gains.argmax())
        if gains[best] < ACCUSATION_NATS:
            return []
        likely = np.flatnonzero(gains[best] - gains < AMBIGUITY_NATS)
        return sorted(likely.tolist(), key=lambda number: -float(gains[number]))

    def _put(self, likely: Sequence[int]) -> None:
        """Add the likeliest suspect, or the link if all of them are directions of it."""
        clear = self._unambiguous(likely)
        self._losses = self._fit({**self._losses, likely[0] if clear is None else clear: 0.0})

    def _unambiguous(self, numbers: Sequence[int]) -> int | None:
        """The only suspect, or the link if all of them are its directions; otherwise None."""
        if len(numbers) == 1:
            return numbers[0]
        if len({self._suspects[number].link for number in numbers}) != 1:
            return None
        links = (n for n in numbers if self._suspects[n].kind is SuspectKind.LINK)
        return next(links, None)

    def _without(self, number: int) -> dict[int, float]:
        return {n: loss for n, loss in self._losses.items() if n != number}

    def _fit(self, losses: Mapping[int, float]) -> dict[int, float]:
        """The same culprits with the loss rates that make the evidence likeliest."""
        fitted = dict(losses)
        for _ in range(_REFITS if len(fitted) > 1 else 1):
            for number in fitted:
                others = self._log_delivery({**fitted, number: 0.0})
                (fitted[number],), _ = self._evidence.best_losses(self._counts[[number]], others)
        return fitted

    def _weigh(self, losses: Mapping[int, float]) -> tuple[Floats, Floats]:
        """The likeliest loss of every suspect beside these culprits, and its gain less penalty."""
        best, gains = self._evidence.best_losses(self._counts, self._log_delivery(losses))
        gains -= self._penalties
        gains[list(losses)] = -np.inf
        return best, gains

    def _log_likelihood(self, losses: Mapping[int, float]) -> float:
        return self._evidence.log_likelihood(self._log_delivery(losses))

    def _log_delivery(self, losses: Mapping[int, float]) -> Floats:
        culprits = ((self._counts[number], loss) for number, loss in losses.items())
        return log_delivery_rates(len(self._evidence.sent), culprits)
