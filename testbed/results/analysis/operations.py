"""Completion times of operations, and what is measured of each of several jobs.

An operation lasts from when the first of its hosts began it until the last of them is done. The bus
bandwidth is that of nccl-tests (doc/PERFORMANCE.md there): the algorithm's bandwidth, size over
time, times a factor that makes it comparable to the rate of a host's ports.

The run of a job alone is a run directory of its own, `alone/<job>` in the run's. It is the same
scenario with this job only, so the same faults strike it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
from pydantic import ValidationError

from testbed.model.run_files.layout import SUMMARY, alone_directory
from testbed.model.scenario import Job
from testbed.model.summary import JobFault, JobSummary, OperationSummary, Summary
from testbed.model.summary.unit import NEVER
from testbed.model.units import NS_PER_S
from testbed.model.workload import BUS_FACTORS, Collective, Graphed, Program
from testbed.results.analysis.estimates import Percentiles
from testbed.results.analysis.fault_metrics import time_in_force
from testbed.results.records import ARRIVALS, OPERATIONS
from testbed.results.run_data import RunData


def completed(table: pl.DataFrame) -> pl.DataFrame:
    """The operations that all of their hosts finished, in order of their end.

    Columns: kind, number, bytes, hosts, `start` and `end` in seconds of the run.
    """
    return (
        table.group_by("kind", "number", "bytes", "hosts")
        .agg(start=pl.col("start_t").min(), end=pl.col("t").max(), done=pl.col("host").n_unique())
        .filter(pl.col("done") == pl.col("hosts"))
        .drop("done")
        .sort("end", "number")
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a workload asked for.

    Attributes:
        kind: what its operations are called.
        hosts: how many hosts take part in each.
        bytes: the size of an operation; of messages the median.
        planned: how many it has in all; None if it repeats them until the run ends.
        begun: how many were begun.
        unfinished: how many should have finished and did not.
    """

    kind: str
    hosts: int
    bytes: int
    planned: int | None
    begun: int
    unfinished: int


def operations_of(data: RunData, job: Job) -> pl.DataFrame:
    """The operations of a job that all of their hosts finished, as `completed` gives them."""
    if isinstance(job.workload, Program):
        reported = [rows for _, rows in _reported_rows(data, job)]
        return completed(pl.concat([_rows(data), *reported]))
    if isinstance(job.workload, Graphed):
        kinds = [job.label(name) for name in job.workload.planned]
        return completed(pl.concat([_rows(data), *(_rows(data, kind) for kind in kinds)]))
    return completed(_rows(data, job.label(str(job.workload.operation))))


def summarise_operations(data: RunData) -> tuple[OperationSummary, ...]:
    """The operations of all jobs that have any: what was asked for, and what finished."""
    return tuple(each for job in data.scenario.job_list for each in summaries_of(data, job))


def summaries_of(data: RunData, job: Job) -> Iterator[OperationSummary]:
    """The operations of a job, kind by kind."""
    workload = job.workload
    if isinstance(workload, Program):
        yield from _reported(data, job)
        return
    if isinstance(workload, Graphed):
        for name, sizes in workload.planned.items():
            table = _rows(data, job.label(name))
            whole = completed(table)
            asked = _of_graph(data, job.label(name), sizes, whole)
            hosts = workload.graph.hosts_of(name)
            yield _summary(data, replace(asked, hosts=hosts), whole)
    elif isinstance(workload, Collective):
        table = _rows(data, job.label(workload.operation))
        yield _summary(data, _rounds(data, job, workload, table), completed(table))


def _rows(data: RunData, kind: str = "") -> pl.DataFrame:
    """What the hosts have recorded of a kind of operation."""
    return data.tables[OPERATIONS].filter(pl.col("kind") == kind)


def _reported_rows(data: RunData, job: Job) -> Iterator[tuple[str, pl.DataFrame]]:
    """What the programs of a job have recorded of each kind, in order of the first end.

    All hosts that report a kind take part in each of its operations.
    """
    still_open = data.run.open_operations
    kinds = dict.fromkeys([*data.tables[OPERATIONS]["kind"], *(each.kind for each in still_open)])
    for kind in kinds:
        if not job.name or kind.startswith(job.label("")):
            rows = _rows(data, kind)
            begun = (each.host for each in still_open if each.kind == kind)
            hosts = pl.lit(len({*rows["host"], *begun})).cast(pl.Int32).alias("hosts")
            yield kind, rows.with_columns(hosts, pl.col("bytes").max().over("number"))


def _reported(data: RunData, job: Job) -> Iterator[OperationSummary]:
    for kind, rows in _reported_rows(data, job):
        begun = [each for each in data.run.open_operations if each.kind == kind]
        whole = completed(rows)
        starts: dict[int, float] = {}
        of_hosts = rows.select("number", "start_t").iter_rows()
        for number, start in chain(of_hosts, ((each.number, each.start_s) for each in begun)):
            starts[number] = min(starts.get(number, start), start)
        unfinished = _overdue(data, starts, whole)
        if not whole.height and not unfinished:
            continue  # the first one began when the run had ended
        asked = _Asked(
            kind=kind,
            hosts=len({*rows["host"], *(each.host for each in begun)}),
            bytes=int(np.median(rows["bytes"])) if rows.height else 0,
            planned=None,
            begun=len(starts),
            unfinished=unfinished,
        )
        yield _summary(data, asked, whole)


def _of_graph(data: RunData, kind: str, sizes: list[int], table: pl.DataFrame) -> _Asked:
    """The operations of one kind, whose sizes are known."""
    done = set(table["number"])
    begun = sum(host.begun.get(kind, 0) for host in data.run.hosts.values())
    return _Asked(
        kind=kind,
        hosts=1,
        bytes=int(np.median(sizes)),
        planned=len(sizes),
        begun=max(len(done), begun),
        unfinished=len(sizes) - len(done),
    )


def _rounds(data: RunData, job: Job, workload: Collective, table: pl.DataFrame) -> _Asked:
    """A host begins a round when it has finished the one before, the first when the job starts."""
    hosts = tuple(chain.from_iterable(workload.rails(data.topology)))
    whole = completed(table)
    running = dict.fromkeys(hosts, (0, job.start / NS_PER_S))  # by host: its round, and its begin
    for host, number, end in table.select("host", "number", "t").iter_rows():
        running[host] = max(running[host], (number + 1, end))
    begun = 1 + max(number for number, _ in running.values())
    starts: dict[int, float] = dict(
        table.group_by("number").agg(pl.col("start_t").min()).iter_rows()
    )
    for number, start in running.values():
        starts[number] = min(starts.get(number, start), start)
    return _Asked(
        kind=job.label(workload.operation),
        hosts=len(hosts),
        bytes=workload.sent_bytes(data.topology, data.scenario.transport.qps),
        planned=None,
        begun=begun,
        unfinished=_overdue(data, starts, whole),
    )


def _overdue(data: RunData, starts: Mapping[int, float], whole: pl.DataFrame) -> int:
    """How many operations should have finished: they lasted longer than any that did.

    Args:
        data: the run.
        starts: when each began, by its number.
        whole: those that finished.
    """
    longest = max(whole["end"] - whole["start"], default=0.0)
    finished = set(whole["number"])
    return sum(
        number not in finished and data.run.duration_s - start > longest
        for number, start in starts.items()
    )


_LEAST_S = 1e-9


def _summary(data: RunData, asked: _Asked, operations: pl.DataFrame) -> OperationSummary:
    """The metrics of operations: what was asked for, and these that were completed."""
    never = np.full(asked.unfinished, NEVER)
    finished_s = (operations["end"] - operations["start"]).clip(_LEAST_S).to_numpy()
    seconds = np.concatenate([finished_s, never])
    bits = np.concatenate([operations["bytes"].to_numpy() * 8.0, np.zeros(asked.unfinished)])
    algorithm_bps = float(np.median(bits / seconds))
    factor = BUS_FACTORS.get(asked.kind.rpartition("/")[2])
    metrics = SimpleNamespace(
        **{**vars(Percentiles(seconds)), "count": operations.height},
        hosts=asked.hosts,
        bytes=asked.bytes,
        planned=asked.planned,
        begun=asked.begun,
        unfinished=asked.unfinished,
        algbw_bps=algorithm_bps,
        busbw_bps=algorithm_bps * factor(asked.hosts) if factor is not None else None,
    )
    return OperationSummary.measured(metrics, data.scale, kind=asked.kind)


NOT_MADE = "it was not run alone: --set interference=true"


def summarise_jobs(data: RunData) -> tuple[JobSummary, ...]:
    """The jobs of a run, in order; none of a scenario with a single workload."""
    jobs = zip(data.scenario.jobs, data.flows_of_jobs, strict=False)
    return tuple(_job_summary(data, job, flows) for job, flows in jobs)


def _job_summary(data: RunData, job: Job, flows: frozenset[int] | None) -> JobSummary:
    start_s = job.start / NS_PER_S
    faults = tuple(_faults(data, job))
    metrics = SimpleNamespace(
        hosts=len(job.hosts(data.topology)),
        goodput_bps=None if flows is None else _goodput_bps(data, flows, start_s),
        time=_time_s(data, job),
        slowdown=max(filter(None, map(_slowdown, faults)), default=None),
        interference=None,
    )
    summary = JobSummary.measured(
        metrics, data.scale, job=job.name, kind=job.workload.kind, start_s=start_s, faults=faults
    )
    alone = _alone(data, job)
    changes = {
        "alone": alone.directory,
        "interference": None if alone.summary is None else _interference(summary, alone.summary),
        "interference_unknown": alone.why_not,
    }
    if not alone.why_not and changes["interference"] is None:
        changes["interference_unknown"] = "it has no time to compare"
    return summary.model_copy(update=changes)


def _goodput_bps(data: RunData, flows: frozenset[int], start_s: float) -> float:
    within = pl.col("t").is_between(start_s, data.run.duration_s) & pl.col("flow").is_in([*flows])
    placed = data.tables[ARRIVALS].filter(within)["bytes"].sum()
    return float(placed) * 8 / (data.run.duration_s - start_s)


def _time_s(data: RunData, job: Job) -> float | None:
    """What the job takes, in seconds: see `JobSummary.time`."""
    workload, start_s = job.workload, job.start / NS_PER_S
    if isinstance(workload, Collective):
        (operation,) = summaries_of(data, job)
        return operation.median.ms / 1e3
    if isinstance(workload, Graphed):
        if not workload.planned:
            return None
        done = operations_of(data, job).rename({"end": "t"})
        all_done = done.height == sum(map(len, workload.planned.values()))
        return float(done["t"].max()) - start_s if all_done else NEVER  # type: ignore[arg-type]
    if isinstance(workload, Program) and not workload.endless:
        programs = [each for each in data.run.programs if each.job == job.name]
        ends = [each.ended_s if each.status == 0 else None for each in programs]
        return max((NEVER if end is None else end for end in ends), default=NEVER) - start_s
    return None


# --- before, during and after faults ------------------------------------------------------------


def _faults(data: RunData, job: Job) -> Iterator[JobFault]:
    """Each fault that took effect, for each kind of operation of the job."""
    table = operations_of(data, job)
    for fault in data.faults:
        during = time_in_force(data, fault)
        if during is None:
            continue
        for kind in table["kind"].unique(maintain_order=True):
            rows = table.filter(pl.col("kind") == kind)
            struck = rows.filter((pl.col("end") > during.start) & (pl.col("start") < during.end))
            healed = during.healed
            after = rows.filter(pl.col("start") >= (NEVER if healed is None else healed))
            metrics = SimpleNamespace(
                before=_median_s(rows.filter(pl.col("end") <= during.start)),
                during=_median_s(struck),
                during_max=max((struck["end"] - struck["start"]).to_list(), default=None),
                after=_median_s(after),
            )
            yield JobFault.measured(
                metrics,
                data.scale,
                index=fault.index,
                kind=fault.kind,
                target=fault.target,
                operation=kind.removeprefix(job.label("")),
            )


def _median_s(operations: pl.DataFrame) -> float | None:
    median = (operations["end"] - operations["start"]).median()
    return median if isinstance(median, float) else None


def _slowdown(fault: JobFault) -> float | None:
    if fault.before is None or fault.during_max is None:
        return None
    return fault.during_max.ms / fault.before.ms


# --- interference -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Alone:
    """The run of a job alone: its directory and summary, or why it cannot be compared."""

    directory: str = ""
    summary: JobSummary | None = None
    why_not: str = ""


def _alone(data: RunData, job: Job) -> _Alone:
    if len(data.scenario.jobs) == 1:
        return _Alone(why_not="it is the only job")
    directory = alone_directory(job.name)
    try:
        text = Path(data.directory, directory, SUMMARY).read_text(encoding="utf-8")
    except FileNotFoundError:
        return _Alone(why_not=NOT_MADE)
    except OSError as error:
        return _Alone(why_not=f"its run alone cannot be read: {error.strerror}")
    try:
        alone = Summary.model_validate_json(text)
    except ValidationError:
        return _Alone(directory, why_not="its run alone is of another version")
    if alone.verdict == "invalid":
        return _Alone(directory, why_not=f"its run alone is invalid: {alone.reasons[0]}")
    return _Alone(directory, alone.jobs[0])


def _interference(together: JobSummary, alone: JobSummary) -> float | None:
    """How many times as long a job takes beside others as alone: see `JobSummary`."""
    if together.time is not None and alone.time is not None:
        return None if alone.time.ms == NEVER else together.time.ms / alone.time.ms
    if together.time is None and together.goodput_bps is not None and alone.goodput_bps:
        return alone.goodput_bps / together.goodput_bps if together.goodput_bps else NEVER
    return None
