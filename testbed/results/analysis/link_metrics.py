"""Metrics of link directions: their counters, and how full the switches' queues were."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from types import SimpleNamespace

import polars as pl

from testbed.model.fabric.nodes import Tier
from testbed.model.summary import LinkSummary, ProcessMemory
from testbed.model.units import NS_PER_S
from testbed.results.records import QUEUES
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
