"""The jobs of a scenario: workloads on one fabric, each with its hosts, start and bounds."""

from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from testbed.model.errors import Problem
from testbed.model.expect import JobExpect
from testbed.model.fabric.topology import MAX_NAME, NAME_PATTERN, Topology
from testbed.model.part import Part
from testbed.model.units import RunTime, exact_duration
from testbed.model.workload import Workload

MAX_JOBS = 1_000
"""Most jobs of a scenario. Ours."""


class Job(Part):
    """One of several workloads that run on the same fabric at once."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=MAX_NAME, description="what its results are called"
    )
    start: RunTime = Field(default=0, ge=0, description="when it begins")
    workload: Workload = Field(description="what its hosts send")
    expect: JobExpect = Field(
        default=JobExpect(), description="bounds of its figures, checked after the run"
    )

    @classmethod
    def only(cls, workload: Workload) -> "Job":
        """The job of a scenario that has a single workload: it has no name."""
        return cls.model_construct(name="", start=0, workload=workload, expect=JobExpect())

    def label(self, operation: str) -> str:
        """What an operation of this job is called in a run's records: `left/allreduce`."""
        return f"{self.name}/{operation}" if self.name else operation

    def hosts(self, topology: Topology) -> tuple[str, ...]:
        """The hosts that take part, each once."""
        ends = (host for pair in self.workload.directions(topology) for host in pair)
        return tuple(dict.fromkeys(ends))

    def problems(self, topology: Topology, where: str) -> Iterator[Problem]:
        """What makes its workload impossible; `where` is its key path, empty if it is the only."""
        for problem in self.workload.problems(topology):
            yield replace(problem, where=f"{where}.{problem.where}" if where else problem.where)


def job_problems(jobs: tuple[Job, ...], duration_ns: int) -> Iterator[Problem]:
    """Jobs of one name, and those that begin when the run is over."""
    first: dict[str, int] = {}
    for i, job in enumerate(jobs):
        if job.name in first:
            expected = f"each name once (the first is jobs[{first[job.name]}])"
            yield Problem(f"jobs[{i}].name", f"{job.name} a second time", expected)
        first.setdefault(job.name, i)
        if job.start >= duration_ns:
            expected = f"a time before the run ends at {exact_duration(duration_ns)}"
            yield Problem(f"jobs[{i}].start", exact_duration(job.start), expected)
