"""From lost probes to the fewest culprits that explain them: loss tomography by likelihood.

A path delivers a probe if nothing on its way loses it, so for a path with n probes of which l were
lost the log-likelihood is l log(1 - s) + (n - l) log s, with s the product of (1 - loss) of all
that it passes. Beginning with nothing ill, the suspect whose illness raises the likelihood most is
accused, then the next, as long as each raises it by `EVIDENCE` or more; one that the others make
superfluous is acquitted again. So a silent T1 is one culprit, not all its link directions, and a
link that loses one packet in a hundred is told from its neighbours by the paths it is not on.

(Maximum likelihood for link loss: Caceres et al., IEEE Trans. Inf. Theory 45(7), 1999; grey links
in a data centre: NetBouncer, NSDI 2019. The stepwise search and its thresholds are ours.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from testbed.mapper.paths import ProbePath
from testbed.mapper.suspects import Suspect, SuspectKind, suspects_on

BACKGROUND = 1e-4
"""Loss of a path on which nothing is ill: none in this fabric; a margin for the machine."""

EVIDENCE = 12.0
"""Least gain in log-likelihood (nats) of an accusation: odds of 160,000 to 1."""

AMBIGUITY = 3.0
"""By how much (nats) a culprit must explain the losses better than any other suspect would."""

MAX_CULPRITS = 64

_LOSSES = np.concatenate([np.geomspace(2e-3, 0.5, 28), 1 - np.geomspace(0.45, 1e-6, 12)])
_REFITS = 3

Floats = NDArray[np.float64]


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


def accuse(incidence: Incidence, sent: Floats, lost: Floats) -> tuple[Culprit, ...]:
    """The fewest culprits that explain what was lost, the strongest evidence first.

    Where two suspects explain it about equally well neither is accused yet; but a link is, before
    it is clear in which direction.

    Args:
        incidence: the paths and who is on them.
        sent: probes on each path whose fate is known.
        lost: how many of those were lost.
    """
    if not lost.any():
        return ()
    probed = np.flatnonzero(sent)
    evidence = _Evidence(sent[probed], lost[probed])
    counts = incidence.counts[:, probed]
    candidates = _distinct(incidence.suspects, counts, evidence.lost)
    chosen: dict[int, float] = {}
    while len(chosen) < MAX_CULPRITS:
        found = _next_culprit(incidence.suspects, evidence, counts, candidates, chosen)
        if found is None:
            break
        chosen[found] = 0.0
        _refit(evidence, counts, chosen)
        _acquit(evidence, counts, chosen)
        if found not in chosen:
            break  # the others explain it without the newest: there is no more to be found
    return _described(incidence.suspects, evidence, counts, chosen)


@dataclass(frozen=True, slots=True)
class _Evidence:
    sent: Floats
    lost: Floats

    def base(self) -> Floats:
        """Log of every path's delivery when nothing is ill."""
        return np.full(len(self.sent), np.log1p(-BACKGROUND))

    def likelihood(self, log_delivery: Floats) -> Floats:
        """The log-likelihood of deliveries, over the last axis (paths)."""
        lossy = np.log(-np.expm1(np.minimum(log_delivery, -1e-12)))
        found: Floats = (self.lost * lossy + (self.sent - self.lost) * log_delivery).sum(axis=-1)
        return found


def _distinct(suspects: Sequence[Suspect], counts: Floats, lost: Floats) -> list[int]:
    """Suspects with a lost probe; of those that no path tells apart only the plainest one."""
    plainness = (SuspectKind.LINK, SuspectKind.DIRECTION, SuspectKind.SWITCH)
    found: dict[bytes, int] = {}
    on_lost = np.flatnonzero(counts @ (lost > 0))
    for row in sorted(on_lost.tolist(), key=lambda row: plainness.index(suspects[row].kind)):
        found.setdefault((counts[row] > 0).tobytes(), row)
    return list(found.values())


def _next_culprit(
    suspects: Sequence[Suspect],
    evidence: _Evidence,
    counts: Floats,
    candidates: list[int],
    chosen: dict[int, float],
) -> int | None:
    """The suspect that explains most of what is still unexplained, if it is clear enough."""
    base = _delivery(evidence, counts, chosen)
    before = float(evidence.likelihood(base))
    free = [row for row in candidates if row not in chosen]
    if not free:
        return None
    gains = np.array([_best_loss(evidence, counts[row], base)[1] - before for row in free])
    best = float(gains.max())
    if best < EVIDENCE:
        return None
    likely = [row for row, gain in zip(free, gains, strict=True) if best - gain < AMBIGUITY]
    return _one_of(suspects, likely)


def _one_of(suspects: Sequence[Suspect], rows: list[int]) -> int | None:
    """The only one, or the link of which all of them are directions; else nobody."""
    if len(rows) == 1:
        return rows[0]
    links = {suspects[row].link for row in rows}
    if len(links) > 1:
        return None
    return next((row for row in rows if suspects[row].kind is SuspectKind.LINK), None)


def _delivery(
    evidence: _Evidence, counts: Floats, chosen: dict[int, float], without: int | None = None
) -> Floats:
    found = evidence.base()
    for row, loss in chosen.items():
        if row != without:
            found = found + counts[row] * np.log1p(-loss)
    return found


def _best_loss(evidence: _Evidence, on: Floats, base: Floats) -> tuple[float, float]:
    """The loss of one suspect that makes the evidence likeliest, and that likelihood."""
    touched = np.flatnonzero(on)
    part = _Evidence(evidence.sent[touched], evidence.lost[touched])
    rest = float(evidence.likelihood(base)) - float(part.likelihood(base[touched]))
    grid = base[touched] + np.outer(np.log1p(-_LOSSES), on[touched])
    likelihoods = part.likelihood(grid)
    best = int(np.argmax(likelihoods))
    return float(_LOSSES[best]), rest + float(likelihoods[best])


def _refit(evidence: _Evidence, counts: Floats, chosen: dict[int, float]) -> None:
    for _ in range(_REFITS if len(chosen) > 1 else 1):
        for row in chosen:
            base = _delivery(evidence, counts, chosen, without=row)
            chosen[row] = _best_loss(evidence, counts[row], base)[0]


def _acquit(evidence: _Evidence, counts: Floats, chosen: dict[int, float]) -> None:
    """Drop those without whom the evidence is about as likely."""
    for row in tuple(chosen):
        if _gain(evidence, counts, chosen, row) < EVIDENCE:
            del chosen[row]
            _refit(evidence, counts, chosen)


def _gain(evidence: _Evidence, counts: Floats, chosen: dict[int, float], row: int) -> float:
    others = {one: loss for one, loss in chosen.items() if one != row}
    if others:
        _refit(evidence, counts, others)
    with_it = float(evidence.likelihood(_delivery(evidence, counts, chosen)))
    return with_it - float(evidence.likelihood(_delivery(evidence, counts, others)))


def _described(
    suspects: Sequence[Suspect], evidence: _Evidence, counts: Floats, chosen: dict[int, float]
) -> tuple[Culprit, ...]:
    found = [
        Culprit(suspects[row], loss, _gain(evidence, counts, chosen, row))
        for row, loss in chosen.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.gain))
