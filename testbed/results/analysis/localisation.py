"""What the Clustermapper found, held against the faults that there were."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import polars as pl

from testbed.model.fabric.names import link_of
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.targets import target_directions
from testbed.model.summary import Localisation, LocalisedFault
from testbed.results.run_data import RunData

GRACE_ROUNDS = 4
"""How many rounds after healing an accusation may still come: what was lost before is weighed."""

HALVINGS = 40
"""Steps of the search for a share of packets lost."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """One suspect, accused for a while.

    Attributes:
        kind: direction, link or switch.
        name: the suspect's.
        links: the links that it takes with it.
        directions: the directions of these that it takes with it.
        start: when the accusation was raised, in seconds from the start.
        end: when it was lifted, or the end of the run.
        loss: the estimated share of packets lost, when it was raised.
    """

    kind: str
    name: str
    links: frozenset[str]
    directions: frozenset[str]
    start: float
    end: float
    loss: float


def accusations(data: RunData) -> tuple[Accusation, ...]:
    """Every accusation of the run, in the order in which they were raised.

    One that only changes its name, from a link to a direction of it, goes on.
    """
    end = max([data.run.duration_s, *data.tables["findings"]["t"]])
    standing: dict[str, Accusation] = {}
    lifted: list[Accusation] = []
    for row in data.tables["findings"].iter_rows(named=True):
        t, name = row["t"], row["suspect"]
        if row["raised"]:
            directions = frozenset(target_directions(data.topology, name) or ())
            links = frozenset(map(link_of, directions))
            start = t
            if lifted and (lifted[-1].end, lifted[-1].links) == (t, links):
                start = lifted.pop().start
            loss = row["loss_ppm"] / 1e6
            standing[name] = Accusation(row["kind"], name, links, directions, start, end, loss)
        elif name in standing:
            lifted.append(replace(standing.pop(name), end=t))
    return tuple(sorted((*lifted, *standing.values()), key=lambda one: one.start))


def localisation(data: RunData) -> Localisation | None:
    """How well the Clustermapper did; None where there was none."""
    if data.scenario.clustermapper is None:
        return None
    found = accusations(data)
    truths = list(_truths(data))
    right = [one for one in found if any(truth.explains(one) for truth in truths)]
    named = tuple(_localised(data, truth, truths, right) for truth in truths)
    probes = data.tables["probes"]
    naming_s = _longest([fault.after_s for fault in named])
    metrics = SimpleNamespace(
        probes=probes.height,
        probes_lost=int(probes["lost"].sum()),
        accusations=len(found),
        accusations_right=len(right),
        accusations_wrong=len(found) - len(right),
        precision=_share([accusation in right for accusation in found]),
        recall=_share([fault.named is not None for fault in named]),
        exact=_share([fault.exact for fault in named]),
        naming=naming_s,
        naming_rounds=None if naming_s is None else naming_s / _round_s(data),
    )
    return Localisation.measured(metrics, data.scale, faults=named)


def _share(holds: Sequence[bool]) -> float | None:
    """The share of cases where it holds; None if there are no cases."""
    return sum(holds) / len(holds) if holds else None


@dataclass(frozen=True, slots=True)
class _Truth:
    """A fault of links, as it was."""

    record: FaultRecord
    links: frozenset[str]
    directions: frozenset[str]
    start: float
    healed: float
    end: float

    def explains(self, one: Accusation) -> bool:
        """Whether an accusation names links of this fault, and no others, while it is due."""
        return bool(one.links) and one.links <= self.links and self.start <= one.start <= self.end


def _truths(data: RunData) -> Iterator[_Truth]:
    """The faults of links; those of endpoints are no business of the Clustermapper."""
    grace = GRACE_ROUNDS * _round_s(data)
    for fault in data.faults:
        start, healed = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
        links, directions = struck(fault), frozenset(one for one in fault.places if ">" in one)
        if start is not None and links:
            healed = data.run.duration_s if healed is None else healed
            yield _Truth(fault, links, directions, start, healed, healed + grace)


def _round_s(data: RunData) -> float:
    """The time of a round of probes, in seconds of the run."""
    assert data.scenario.clustermapper is not None  # noqa: S101 - asked for by `localisation`
    return data.scenario.clustermapper.period * data.topology.dilation / 1e9


def _longest(times: Sequence[float | None]) -> float | None:
    """The longest of the times; None where one is, or where there are none."""
    return max((t for t in times if t is not None), default=None) if None not in times else None


def _localised(
    data: RunData, truth: _Truth, truths: Sequence[_Truth], right: Sequence[Accusation]
) -> LocalisedFault:
    mine = [one for one in right if truth.explains(one)]
    last = [one for one in mine if one.end >= truth.healed] or mine[-1:]
    return LocalisedFault(
        fault=truth.record.index,
        kind=truth.record.kind,
        target=truth.record.target,
        named=mine[-1].name if mine else None,
        after_s=mine[0].start - truth.start if mine else None,
        whole=frozenset().union(*(one.links for one in mine)) == truth.links,
        exact=frozenset().union(*(one.directions for one in last)) == truth.directions,
        loss=_loss(data, truth, truths, mine[-1].directions) if mine else None,
    )


def _loss(
    data: RunData, truth: _Truth, truths: Sequence[_Truth], accused: frozenset[str]
) -> float | None:
    """The share that each accused direction lost, by the probes across it while the fault lasted.

    A probe that crosses k of them arrives with the chance (1 - loss)^k: the loss is the one with
    which as many are to be expected as arrived. Probes that met another fault are left out; None
    where no other is left.
    """
    others = frozenset().union(*(one.directions for one in truths)) - truth.directions
    until = truth.healed - data.base_rtt_s  # what is under way then may cross when it is healed
    during = data.tables["probes"].filter(pl.col("t").is_between(truth.start, until))
    by_path = during.group_by("path").agg(pl.len(), pl.col("lost").sum())
    sent, arrived = Counter[int](), 0
    for path, probes, lost in by_path.iter_rows():
        way = path.partition(":")[2].split(">")
        crossed = [f"{near}>{far}" for near, far in pairwise(way)]
        times = sum(one in accused for one in crossed)
        if times and others.isdisjoint(crossed):
            sent[times] += probes
            arrived += probes - lost
    if not sent:
        return None
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        loss = (low + high) / 2
        expected = sum(count * (1 - loss) ** times for times, count in sent.items())
        low, high = (loss, high) if expected > arrived else (low, loss)
    return high


def struck(fault: FaultRecord) -> frozenset[str]:
    """The links that a fault strikes."""
    return frozenset(link_of(place) for place in fault.places if ">" in place)
