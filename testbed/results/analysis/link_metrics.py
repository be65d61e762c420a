"""Metrics of links: counters, how full queues were, and what the Clustermapper accused."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from types import SimpleNamespace

import polars as pl

from testbed.model.fabric.names import directions_along, link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import target_directions
from testbed.model.summary import LinkSummary, Localisation, LocalisedFault, ProcessMemory
from testbed.model.summary.unit import NEVER
from testbed.model.units import NS_PER_S
from testbed.results.records import FINDINGS, PROBES, QUEUES
from testbed.results.run_data import RunData


def link_summaries(data: RunData) -> tuple[LinkSummary, ...]:
    """Every direction of every link, in the order of the fabric; none without link model."""
    backlogs = mean_backlogs(data.tables[QUEUES], data.run.duration_s)
    summaries = []
    for direction, record in data.run.links.items():
        mean = backlogs.get(direction, 0.0) if _is_sampled(data, direction) else None
        counted = SimpleNamespace(**asdict(record), mean_bytes=mean)
        counted.full += record.full_priority
        counted.lost += record.path_lost
        summaries.append(LinkSummary.measured(counted, data.scale, direction=direction))
    return tuple(summaries)


def _is_sampled(data: RunData, direction: str) -> bool:
    """Whether its backlog is sampled: at switches, in emulated runs."""
    if data.simulated:
        return False
    sender = data.topology.nodes[direction.split(">", maxsplit=1)[0]]
    return sender.tier is not Tier.HOST


def mean_backlogs(queues: pl.DataFrame, duration_s: float) -> Mapping[str, float]:
    """Mean backlog of each direction in bytes, over the run; a sample holds until the next."""
    during = queues.filter(pl.col("t").is_between(0, duration_s))
    lasts = pl.col("t").shift(-1).fill_null(duration_s).over("direction") - pl.col("t")
    means = (
        during.with_columns(area=pl.col("backlog_bytes") * lasts)
        .group_by("direction")
        .agg(pl.col("area").sum() / duration_s)
    )
    return dict(means.iter_rows())


# --------------------------------------------------------------------------------------------------
# Growth of the memory of a run's processes: shows leaks in long runs.


LEAST_SAMPLES = 3
"""Fewest samples of each quarter, one a second; with fewer, growth is not measured."""


def process_memory(data: RunData) -> tuple[ProcessMemory, ...]:
    """The resident memory of every process that lived from the second quarter to the end.

    In the first quarter buffers fill, and modules load on first use. Empty for runs that are too
    short, and for simulated ones, which have no processes.
    """
    quarter = data.run.duration_s / 4
    sampled: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for sample in data.health:
        t = (sample.t_ns - data.run.t0_ns) / NS_PER_S
        for process, resident in sample.resident_bytes.items():
            if quarter <= t < 2 * quarter:
                sampled[process][0].append(resident)
            elif 3 * quarter <= t <= data.run.duration_s:
                sampled[process][1].append(resident)
    return tuple(
        _compared(process, early, late)
        for process, (early, late) in sorted(sampled.items())
        if min(len(early), len(late)) >= LEAST_SAMPLES
    )


def _compared(process: str, early: Sequence[int], late: Sequence[int]) -> ProcessMemory:
    before, after = round(median(early)), round(median(late))
    return ProcessMemory(
        process=process, early_bytes=before, late_bytes=after, growth=after / before - 1
    )


GRACE_ROUNDS = 4
"""Rounds after healing in which an accusation may still come, by losses from before."""

BISECTIONS = 40
"""Steps of the search for the share of packets lost."""


@dataclass(frozen=True, slots=True)
class Accusation:
    """A suspect that the Clustermapper accused for a while.

    Attributes:
        kind: direction, link or switch.
        name: the suspect's.
        links: the links that it stands for.
        directions: the directions of these that it stands for.
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

    An accusation that only changes its name, from a link to a direction of it, goes on.
    """
    end = max([data.run.duration_s, *data.tables[FINDINGS]["t"]])
    standing: dict[str, Accusation] = {}
    lifted: list[Accusation] = []
    for row in data.tables[FINDINGS].iter_rows(named=True):
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
    return tuple(sorted((*lifted, *standing.values()), key=lambda accusation: accusation.start))


def localisation(data: RunData) -> Localisation | None:
    """How well the Clustermapper located the faults; None if none ran."""
    if data.scenario.clustermapper is None:
        return None
    raised = accusations(data)
    faults = list(_link_faults(data))
    right = [a for a in raised if any(fault.explains(a) for fault in faults)]
    localised = tuple(_localised(data, fault, faults, right) for fault in faults)
    probes = data.tables[PROBES]
    naming_s = max((f.after.s for f in localised if f.after is not None), default=None)
    metrics = SimpleNamespace(
        probes=probes.height,
        probes_lost=int(probes["lost"].sum()),
        accusations=len(raised),
        accusations_right=len(right),
        accusations_wrong=len(raised) - len(right),
        precision=len(right) / len(raised) if raised else None,
        recall=_share([fault.named is not None for fault in localised]),
        exact=_share([fault.exact for fault in localised]),
        naming=naming_s,
        naming_rounds=None if naming_s is None else naming_s / _round_s(data),
    )
    return Localisation.measured(metrics, data.scale, faults=localised)


def _share(holds: Sequence[bool]) -> float | None:
    """The share of cases in which it holds; None without cases."""
    return sum(holds) / len(holds) if holds else None


@dataclass(frozen=True, slots=True)
class _LinkFault:
    """A fault of links; times in seconds of the run, `end` with the grace for accusations."""

    record: FaultRecord
    links: frozenset[str]
    directions: frozenset[str]
    start: float
    healed: float
    end: float

    def explains(self, accusation: Accusation) -> bool:
        """Whether an accusation in time names links of this fault, and no others."""
        links = accusation.links
        return bool(links) and links <= self.links and self.start <= accusation.start <= self.end


def _link_faults(data: RunData) -> Iterator[_LinkFault]:
    grace = GRACE_ROUNDS * _round_s(data)
    for fault in data.faults:
        start, healed = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
        directions = frozenset(place for place in fault.places if ">" in place)
        if start is not None and directions:
            healed = data.run.duration_s if healed is None else healed
            links = faulty_links(fault)
            yield _LinkFault(fault, links, directions, start, healed, healed + grace)


def _round_s(data: RunData) -> float:
    """The time of a round of probes, in seconds of the run."""
    assert data.scenario.clustermapper is not None  # noqa: S101 - checked by `localisation`
    return data.scenario.clustermapper.period_ns(data.topology) / NS_PER_S


def _localised(
    data: RunData, fault: _LinkFault, faults: Sequence[_LinkFault], right: Sequence[Accusation]
) -> LocalisedFault:
    """How a fault was found, by the accusations that are right."""
    raised = [accusation for accusation in right if fault.explains(accusation)]
    last = [accusation for accusation in raised if accusation.end >= fault.healed] or raised[-1:]
    metrics = SimpleNamespace(
        after=raised[0].start - fault.start if raised else NEVER,
        whole=frozenset().union(*(a.links for a in raised)) == fault.links,
        exact=frozenset().union(*(a.directions for a in last)) == fault.directions,
        loss=_loss(data, fault, faults, raised[-1].directions) if raised else None,
    )
    return LocalisedFault.measured(
        metrics,
        data.scale,
        fault=fault.record.index,
        kind=fault.record.kind,
        target=fault.record.target,
        named=raised[-1].name if raised else None,
    )


def _loss(
    data: RunData, fault: _LinkFault, faults: Sequence[_LinkFault], accused: frozenset[str]
) -> float | None:
    """The share of packets that each accused direction lost, by the probes during the fault.

    A probe that crosses k of them arrives with probability (1 - loss)^k. The estimate is the loss
    at which as many arrivals are expected as there were, found by bisection. Probes across other
    faults are left out; None if no probe is left.
    """
    others = frozenset().union(*(other.directions for other in faults)) - fault.directions
    until = fault.healed - data.base_rtt_s  # later probes may cross after the healing
    during = data.tables[PROBES].filter(pl.col("t").is_between(fault.start, until))
    by_path = during.group_by("path").agg(pl.len(), pl.col("lost").sum())
    sent, arrived = Counter[int](), 0
    for path, probes, lost in by_path.iter_rows():
        crossed = directions_along(path)
        times = sum(direction in accused for direction in crossed)
        if times and others.isdisjoint(crossed):
            sent[times] += probes
            arrived += probes - lost
    if not sent:
        return None
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        loss = (low + high) / 2
        expected = sum(count * (1 - loss) ** times for times, count in sent.items())
        low, high = (loss, high) if expected > arrived else (low, loss)
    return high


def faulty_links(fault: FaultRecord) -> frozenset[str]:
    return frozenset(link_of(place) for place in fault.places if ">" in place)
