"""The Clustermapper without its sockets: probes out, arrivals in, findings out.

What is faulty at the moment is said by accusations over windows of time, raised and lifted.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np

from testbed.mapper.inference import (
    Culprit,
    Incidence,
    Suspect,
    SuspectKind,
    find_culprits,
    log_odds_healthy,
    suspect_directions,
)
from testbed.mapper.prober import ProbeOutcome, Prober
from testbed.model.fabric.names import directions_of
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import target_directions

WINDOW_ROUNDS = (4, 32, 512)
"""Lengths of the windows, in rounds: a dead link shows in the first, a grey one in the last."""

CLEARING_NATS = 9.2
"""A culprit is healthy again when the newest probes across it are 10,000 times likelier if it is
healthy than if it is as faulty as before (nats)."""

MAX_ASSUMED_LOSS = 0.9
"""A culprit is assumed to lose at most this share: so it takes four probes to clear it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An accusation, raised or lifted.

    Attributes:
        time_ns: when.
        culprit: the accused, with its loss and the evidence at that moment.
        raised: whether the accusation is raised; otherwise it is lifted.
    """

    time_ns: int
    culprit: Culprit
    raised: bool


class Diagnosis:
    """Takes in the outcomes of probes, and keeps the list of what is faulty."""

    def __init__(self, topology: Topology, period_ns: int) -> None:
        self._topology = topology
        self._windows_ns = tuple(rounds * period_ns for rounds in WINDOW_ROUNDS)
        self._incidence = Incidence()
        self._directions: list[frozenset[str]] = []
        # of every probe in the longest window; numpy takes arrays over without a copy of each item
        self._times = array("q")
        self._paths = array("q")
        self._lost = array("b")
        self._forgotten_ns: dict[int, int] = {}
        self._accused: dict[Suspect, Culprit] = {}

    @property
    def accused(self) -> tuple[Culprit, ...]:
        return tuple(self._accused.values())

    def add(self, outcomes: Iterable[ProbeOutcome]) -> None:
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
        """Weigh the evidence; returns the accusations that it lifts and raises."""
        self._forget_before(now_ns - self._windows_ns[-1])
        if True not in self._lost and not self._accused:
            return []
        culprits = self._keep_names(self._weigh(now_ns))
        covered = self._all_directions(culprits)
        for suspect, culprit in self._accused.items():
            if not self._directions_of(suspect) & covered:
                culprits[suspect] = culprit  # nothing replaces it: only clearing it lifts this
        for culprit in tuple(culprits.values()):
            if self._is_healthy(culprit.suspect, culprit.loss, culprits.values()):
                self._forget(culprit, now_ns)
                del culprits[culprit.suspect]
        lifted = [
            Finding(now_ns, culprit, raised=False)
            for suspect, culprit in self._accused.items()
            if suspect not in culprits
        ]
        raised = [
            Finding(now_ns, culprit, raised=True)
            for suspect, culprit in culprits.items()
            if suspect not in self._accused
        ]
        self._accused = culprits
        return lifted + raised

    def _keep_names(self, culprits: dict[Suspect, Culprit]) -> dict[Suspect, Culprit]:
        """Keep accusing a direction rather than its link, unless the link's evidence has grown."""
        named: dict[Suspect, Culprit] = {}
        for suspect, culprit in culprits.items():
            before = next((s for s in self._accused if s.link == suspect.link), suspect)
            best = self._accused[before].gain if before in self._accused else 0.0
            if suspect.kind is SuspectKind.LINK and culprit.gain <= best:
                named[before] = replace(self._accused[before], loss=culprit.loss)
            else:
                named[suspect] = replace(culprit, gain=max(culprit.gain, best))
        return named

    def _weigh(self, now_ns: int) -> dict[Suspect, Culprit]:
        """The culprits of every window; a longer window renames one only on stronger evidence."""
        times, paths = np.array(self._times), np.array(self._paths)
        lost = np.array(self._lost, dtype=float)
        by_link: dict[str, list[Culprit]] = {}
        for window_ns in self._windows_ns:
            recent = times > now_ns - window_ns
            count = len(self._incidence)
            culprits = find_culprits(
                self._incidence,
                np.bincount(paths[recent], minlength=count).astype(float),
                np.bincount(paths[recent], lost[recent], minlength=count).astype(float),
                self._accused,
            )
            others = list(chain.from_iterable(by_link.values()))
            explained = self._all_directions(culprit.suspect for culprit in others)
            for link, longer in _by_link(culprits).items():
                if link in by_link:
                    others = list(chain.from_iterable(by_link.values()))
                    by_link[link] = self._clearer(by_link[link], longer, others)
                elif not self._all_directions(c.suspect for c in longer) & explained:
                    by_link[link] = longer
        return {culprit.suspect: culprit for culprit in chain.from_iterable(by_link.values())}

    def _clearer(
        self, shorter: list[Culprit], longer: list[Culprit], others: Iterable[Culprit]
    ) -> list[Culprit]:
        """A link or a direction of it, whichever window has the stronger evidence for it.

        The loss is that of the shorter window: the longer one may begin before the fault. A
        direction gives way to its link only if the other direction is not healthy by now.
        """
        if len(shorter) != 1 or len(longer) != 1 or longer[0].gain <= shorter[0].gain:
            return shorter
        (before,), (after,) = shorter, longer
        kinds = before.suspect.kind, after.suspect.kind
        if kinds == (SuspectKind.DIRECTION, SuspectKind.LINK):
            (name,) = set(directions_of(before.suspect.link)) - {before.suspect.name}
            if self._is_healthy(Suspect(SuspectKind.DIRECTION, name), after.loss, others):
                return shorter
        return [replace(after, loss=before.loss)]

    def _directions_of(self, suspect: Suspect) -> frozenset[str]:
        return suspect_directions(self._topology, suspect)

    def _all_directions(self, suspects: Iterable[Suspect]) -> frozenset[str]:
        return frozenset[str]().union(*map(self._directions_of, suspects))

    def _is_healthy(self, suspect: Suspect, loss: float, accused: Iterable[Culprit]) -> bool:
        """Whether the newest probes across it are likelier if it loses nothing than that share.

        Probes that other accused suspects explain count little: a loss on their paths does not
        show that this one is faulty, nor does an arrival on other directions show that they are
        healthy.
        """
        directions = self._directions_of(suspect)
        log_delivery = self._incidence.log_delivery(
            (culprit.suspect, culprit.loss)
            for culprit in accused
            if not self._directions_of(culprit.suspect) & directions
        )
        crossings = self._incidence.crossings_of(suspect)
        arrived, lost = log_odds_healthy(crossings, min(loss, MAX_ASSUMED_LOSS), log_delivery)
        # newest first; outcomes come nearly, but not quite, in the order of sending
        order = np.argsort(np.array(self._times), kind="stable")[::-1]
        paths, are_lost = np.array(self._paths)[order], np.array(self._lost)[order]
        log_odds = np.where(are_lost, lost[paths], arrived[paths]).cumsum()
        decided = np.flatnonzero(np.abs(log_odds) >= CLEARING_NATS)
        return bool(decided.size and log_odds[decided[0]] > 0)

    def _forget(self, culprit: Culprit, now_ns: int) -> None:
        """Drop the outcomes on its link from while it was faulty: they say nothing about now."""
        directions = frozenset(target_directions(self._topology, culprit.suspect.link) or ())
        crossing = {i for i, crossed in enumerate(self._directions) if crossed & directions}
        self._forgotten_ns |= dict.fromkeys(crossing, now_ns)
        self._keep([number not in crossing for number in self._paths])

    def _forget_before(self, time_ns: int) -> None:
        if self._times and self._times[0] <= time_ns - self._windows_ns[-1] // 8:
            self._keep([time > time_ns for time in self._times])

    def _keep(self, selected: list[bool]) -> None:
        self._times = array("q", compress(self._times, selected))
        self._paths = array("q", compress(self._paths, selected))
        self._lost = array("b", compress(self._lost, selected))


def _by_link(culprits: Iterable[Culprit]) -> dict[str, list[Culprit]]:
    by_link: dict[str, list[Culprit]] = {}
    for culprit in culprits:
        by_link.setdefault(culprit.suspect.link, []).append(culprit)
    return by_link


TIMEOUT_RTTS = 2
"""A probe is lost if it takes longer than this many round trips. Over six links it takes less than
one; it travels in the control class, and so waits for at most one data packet at each port."""

Record = Callable[..., None]


@dataclass(frozen=True, slots=True)
class MapperPlan:
    """The settings of a Clustermapper.

    Attributes:
        topology: the fabric.
        period_ns: length of a round, in which every link is probed.
        seed: decides the order of the probes.
    """

    topology: Topology
    period_ns: int
    seed: int


class Clustermapper:
    """Probes a fabric from all its hosts and keeps a list of what is faulty.

    Attributes:
        prober: sends the probes; it takes in what has arrived.
    """

    def __init__(
        self, plan: MapperPlan, start_ns: int, record_probe: Record, record_finding: Record
    ) -> None:
        """Begin with the first round at `start_ns`.

        Args:
            plan: the settings.
            start_ns: when the first probe is due.
            record_probe: called with the columns of `records.PROBES`.
            record_finding: called with the columns of `records.FINDINGS`.
        """
        self.prober = Prober(
            plan.topology,
            period_ns=plan.period_ns,
            timeout_ns=TIMEOUT_RTTS * plan.topology.propagation_rtt_ns,
            seed=plan.seed,
            start_ns=start_ns,
        )
        self._plan = plan
        self._diagnosis = Diagnosis(plan.topology, plan.period_ns)
        self._judge_ns = start_ns
        self._record_probe = record_probe
        self._record_finding = record_finding

    def judges_at(self, now_ns: int) -> bool:
        """Whether a round is over, so that `judge` weighs and records its outcomes."""
        return now_ns >= self._judge_ns

    def judge(self, now_ns: int) -> list[Finding]:
        """Once a round, weigh the new outcomes; returns the accusations raised and lifted.

        Pass all arrivals to the prober first.
        """
        if not self.judges_at(now_ns):
            return []
        self._judge_ns = now_ns + self._plan.period_ns
        outcomes = self.prober.outcomes(now_ns)
        for outcome in outcomes:
            self._record_probe(outcome.probe.sent_ns, outcome.probe.path.name, outcome.lost)
        self._diagnosis.add(outcomes)
        findings = self._diagnosis.judge(now_ns)
        for finding in findings:
            culprit = finding.culprit
            self._record_finding(
                finding.time_ns,
                finding.raised,
                culprit.suspect.kind.value,
                culprit.suspect.name,
                round(culprit.loss * 1e6),
                round(culprit.gain * 1e3),
            )
        return findings

    @property
    def denied_directions(self) -> frozenset[str]:
        """The link directions that are accused, alone or as part of a link or switch."""
        suspects = (culprit.suspect for culprit in self._diagnosis.accused)
        return frozenset().union(*(suspect_directions(self._plan.topology, s) for s in suspects))
