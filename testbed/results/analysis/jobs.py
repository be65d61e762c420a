"""What is measured of each of several jobs, and how much the others slow it down.

The run of a job alone is a run directory of its own, `alone/<job>` in the run's. It is the same
scenario with this job only, so the same faults strike it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import polars as pl
from pydantic import ValidationError

from testbed.model.run_files.layout import SUMMARY, alone_directory
from testbed.model.scenario import Job
from testbed.model.summary import JobFault, JobSummary, Summary
from testbed.model.summary.unit import NEVER
from testbed.model.units import NS_PER_S
from testbed.model.workload import Collective, Graphed, Program
from testbed.results.analysis.fault_metrics import time_in_force
from testbed.results.analysis.operations import operations_of, summaries_of
from testbed.results.records import ARRIVALS
from testbed.results.run_data import RunData

NOT_MADE = "it was not run alone: --set interference=true"


def summarise_jobs(data: RunData) -> tuple[JobSummary, ...]:
    """The jobs of a run, in order; none of a scenario with a single workload."""
    jobs = zip(data.scenario.jobs, data.flows_of_jobs, strict=False)
    return tuple(_summary(data, job, flows) for job, flows in jobs)


def _summary(data: RunData, job: Job, flows: frozenset[int] | None) -> JobSummary:
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
