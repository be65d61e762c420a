"""An experiment as data: its fabric, workload, transport and faults, and what it expects."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from testbed.model.errors import Problem, RefusedValueError
from testbed.model.fabric.topology import MAX_NAME, NAME_PATTERN, Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.schedule import ScheduledFault, scheduled_faults
from testbed.model.operator.commands import TimedCommand
from testbed.model.own_code import OwnCode, recorded_code
from testbed.model.part import Part
from testbed.model.summary.scopes import SCOPES
from testbed.model.summary.unit import NEVER
from testbed.model.transport import Mrc, Transport
from testbed.model.units import RealTime, RunTime, parse_duration
from testbed.model.workload import (
    Connections,
    Graphed,
    Program,
    Training,
    Workload,
    members,
    outstanding,
)

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_UNIT = Field(default=None, description="in the unit that the metric's name ends with, such as bps")
_EXPECTED = "a number, or a mapping with at_least, at_most or both"


class Bound(Part):
    """The values that a metric may have, both ends included."""

    at_least: Number | None = _UNIT
    at_most: Number | None = _UNIT

    @model_validator(mode="after")
    def _allows_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError(_EXPECTED)
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:  # type: ignore[operator] # neither is None
            raise ValueError(f"at_least ({self.at_least:g}) up to at_most ({self.at_most:g})")
        return self

    def allows(self, value: float | None) -> bool:
        """Whether a value meets the bound; a value that does not exist, or is NEVER, does not."""
        if value is None or value == NEVER:
            return False
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def excess(self, value: float) -> float:
        """How far a value is beyond the bound; negative within it; infinite for NEVER."""
        if value == NEVER:
            return value
        below = -float("inf") if self.at_least is None else self.at_least - value
        above = -float("inf") if self.at_most is None else value - self.at_most
        return max(below, above)

    def __str__(self) -> str:
        """In words: `at most 10`."""
        if self.at_least == self.at_most:
            return f"exactly {self.at_least:g}"
        least = () if self.at_least is None else (f"at least {self.at_least:g}",)
        most = () if self.at_most is None else (f"at most {self.at_most:g}",)
        return " and ".join(least + most)


def _exactly(value: Any) -> Any:
    """A plain number is both bounds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"at_least": value, "at_most": value}
    if not isinstance(value, dict | Bound):
        raise RefusedValueError(_EXPECTED, remedy=_as_mapping(str(value)))
    return value


_COMPARISON = re.compile(r"\s*([<>])=?\s*([0-9.]+)\s*")


def _as_mapping(text: str) -> str:
    """How a comparison such as `< 3` is written as a mapping; empty if it is none."""
    match = _COMPARISON.fullmatch(text)
    return f"write {{{'at_most' if match[1] == '<' else 'at_least'}: {match[2]}}}" if match else ""


def _of(scope: str) -> Any:
    return Field(default_factory=dict, description=SCOPES[scope].description)


_NUMBER = {"type": "number"}
_MAPPING = {
    "type": "object",
    "properties": {"at_least": _NUMBER, "at_most": _NUMBER},
    "minProperties": 1,
    "additionalProperties": False,
}
_SCHEMA = WithJsonSchema({"anyOf": [_NUMBER, _MAPPING]})
_Bounds = dict[str, Annotated[Bound, BeforeValidator(_exactly), _SCHEMA]]


_HOW_MANY_FINISH = {"count", "unfinished"}
"""Metrics of `OperationSummary`."""


class Expect(Part):
    """Bounds by the names that metrics have in `summary.json`."""

    run: _Bounds = _of("run")
    messages: _Bounds = _of("messages")
    flows: _Bounds = _of("flows")
    nodes: _Bounds = _of("nodes")
    victim: _Bounds = _of("victim")
    faults: _Bounds = _of("faults")
    run_faults: _Bounds = _of("run_faults")
    operations: _Bounds = _of("operations")
    jobs: _Bounds = _of("jobs")
    processes: _Bounds = _of("processes")
    clustermapper: _Bounds = _of("clustermapper")

    @property
    def says_how_many_finish(self) -> bool:
        return not _HOW_MANY_FINISH.isdisjoint(self.operations)


class JobExpect(Part):
    """Bounds of one job of several, by the same names."""

    job: _Bounds = _of("jobs")
    flows: _Bounds = _of("flows")
    operations: _Bounds = _of("operations")

    @property
    def says_how_many_finish(self) -> bool:
        return not _HOW_MANY_FINISH.isdisjoint(self.operations)


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


MAX_SEED = (1 << 31) - 1

ALONE_AT_MOST = 8
"""Most jobs that a simulated run also makes alone if the scenario does not say so. Ours."""

DRAIN_RTTS = 60
"""Default of `drain`: base RTTs that a run waits after its end for its last WRITEs."""


class Clustermapper(Part):
    """Probes from the hosts over every link, which locate faulty links (MRC paper, section 3)."""

    period: RealTime = Field(
        default=parse_duration("25 us"),
        gt=0,
        description="time in which every link is probed once",
    )
    denylist: bool = Field(
        default=True, strict=True, description="whether endpoints avoid EVs through accused links"
    )

    def period_ns(self, topology: Topology) -> int:
        """The length of a round of probes in emulated ns."""
        return round(self.period * topology.dilation)


class Scenario(Part):
    """One experiment, complete: the fabric is part of it."""

    name: str = Field(
        pattern=NAME_PATTERN,
        max_length=MAX_NAME,
        description="its name, and the name of its results",
    )
    description: str = Field(default="", description="what to expect, shown in lists")
    topology: Topology = Field(description="name or file of a topology, or its keys")
    seed: int = Field(
        default=1, ge=0, le=MAX_SEED, strict=True, description="seed of all random choices"
    )
    duration: RunTime = Field(default=parse_duration("10 s"), gt=0, description="its length")
    drain: RunTime | None = Field(
        default=None,
        gt=0,
        description="longest wait for the last WRITEs at the end; null: 60 base RTTs",
    )
    jobs: tuple[Job, ...] = Field(
        default=(),
        max_length=MAX_JOBS,
        description="several workloads at once, in place of `workload`",
    )
    workload: Workload | None = Field(
        default=None,
        validate_default=True,
        description="what the hosts send; required unless there are jobs",
    )
    interference: bool | None = Field(
        default=None,
        strict=True,
        description="whether each job is also run alone, to see how much the others slow it down; "
        f"default: in simulated runs of at most {ALONE_AT_MOST} jobs, and where it is bounded",
    )
    transport: Transport = Field(default=Mrc(), description="how they send it")
    timeline: tuple[Fault, ...] = Field(default=(), description="the faults, in any order")
    operator: tuple[TimedCommand, ...] = Field(
        default=(), description="what an operator does with EVs and ports (docs/operator.md)"
    )
    expect: Expect = Field(
        default=Expect(), description="bounds of the run's figures, checked after the run"
    )
    clustermapper: Clustermapper | None = Field(
        default=None, description="probes every link; off by default"
    )

    @field_validator("workload")
    @classmethod
    def _this_or_jobs(cls, value: Workload | None, info: ValidationInfo) -> Workload | None:
        if value is None and info.data.get("jobs", True) == ():
            raise RefusedValueError("a value, which is required", remedy="or jobs, at least one")
        if value is not None and info.data.get("jobs"):
            raise RefusedValueError("no workload beside jobs", remedy="make it one of the jobs")
        return value

    @classmethod
    def recorded(cls, data: Any) -> Self:
        """The scenario of a run's record, which has the source of its own code."""
        if isinstance(data, Mapping) and "transport" in data:
            data = {**data, "transport": recorded_code(data["transport"])}
        return cls.model_validate(data)

    @property
    def own_code(self) -> dict[str, OwnCode]:
        """The classes of the user's own that it executes, by the keys that name them."""
        transport = self.transport
        values = {key: getattr(transport, key) for key in type(transport).model_fields}
        return {
            f"transport.{key}": code for key, code in values.items() if isinstance(code, OwnCode)
        }

    @property
    def executes(self) -> dict[str, str]:
        """The code of others that it executes, by the keys that name it: classes, and commands.

        A variable such as PATH, further arguments, and the directory decide what a command is.
        """
        code = {key: ", ".join((str(own), *own.files)) for key, own in self.own_code.items()}
        for key, program in self.programs.items():
            parts = {
                "command": shlex.join(program.command),
                "check": shlex.join(program.check),
                "env": ", ".join(program.env),
                "directory": program.directory,
            }
            code |= {f"{key}.{part}": named for part, named in parts.items() if named}
        return code

    @property
    def job_list(self) -> tuple[Job, ...]:
        """Its jobs; a single workload is a job without a name."""
        return self.jobs or (() if self.workload is None else (Job.only(self.workload),))

    @property
    def workloads(self) -> dict[str, Workload]:
        """What its jobs send, by the key paths where that stands."""
        if self.workload is not None:
            return {"workload": self.workload}
        return {f"jobs[{i}].workload": job.workload for i, job in enumerate(self.jobs)}

    @property
    def programs(self) -> dict[str, Program]:
        """Those of them that are programs of the user's own."""
        return {key: each for key, each in self.workloads.items() if isinstance(each, Program)}

    @property
    def hosts_of_programs(self) -> frozenset[str]:
        each = (members(program.hosts, self.topology) for program in self.programs.values())
        return frozenset(chain.from_iterable(each))

    @property
    def planned(self) -> Self:
        """The same without its programs: its flows are known, and have the first numbers of all."""
        if not self.programs:
            return self
        jobs = tuple(job for job in self.jobs if not isinstance(job.workload, Program))
        return self.model_copy(update={"workload": None, "jobs": jobs})

    def run_alone(self, *, simulated: bool) -> tuple[Job, ...]:
        """The jobs that a run of it also makes alone."""
        bounded = [self.expect.jobs, *(job.expect.job for job in self.jobs)]
        usual = (simulated and len(self.jobs) <= ALONE_AT_MOST) or any(
            "interference" in bounds for bounds in bounded
        )
        wanted = usual if self.interference is None else self.interference
        return self.jobs if wanted and len(self.jobs) > 1 else ()

    def alone(self, job: Job) -> Self:
        """The same with one of its jobs only, and nothing expected of it."""
        alone = job.model_copy(update={"expect": JobExpect()})
        return self.model_copy(update={"jobs": (alone,), "expect": Expect()})

    @property
    def flows_of_jobs(self) -> tuple[tuple[tuple[str, str, int], ...], ...]:
        """The flows of each job, as (source, destination, lane): one for each QP and direction.

        Each job has queue pairs of its own. Where two jobs have the same two hosts, the lanes of
        the second follow those of the first.
        """
        lanes = range(self.transport.qps)
        jobs = self.job_list
        taken: dict[tuple[str, str], int] = {}
        flows = []
        for job in jobs:
            directions = job.workload.directions(self.topology)
            first = {pair: taken.get(_pair(pair), 0) for pair in directions} if taken else {}
            flows.append(
                tuple(
                    (src, dst, first.get((src, dst), 0) + lane)
                    for src, dst in directions
                    for lane in lanes
                )
            )
            if jobs[1:]:
                taken |= {_pair(pair): first.get(pair, 0) + len(lanes) for pair in directions}
        return tuple(flows)

    @property
    def flows(self) -> tuple[tuple[str, str, int], ...]:
        """Those of all jobs, in order.

        Of programs those that may be; the records of a run have those that were.
        """
        return tuple(chain.from_iterable(self.flows_of_jobs))

    @property
    def flow_count(self) -> int:
        """The number of flows, at most, without listing them."""
        directions = (job.workload.direction_count(self.topology) for job in self.job_list)
        return sum(directions) * self.transport.qps

    @property
    def signals(self) -> frozenset[int]:
        """The numbers of the flows that carry signals only, such as a barrier's, and no data."""
        first, signals = 0, set[int]()
        for job, flows in zip(self.job_list, self.flows_of_jobs, strict=True):
            if isinstance(job.workload, Training | Graphed):
                pairs = job.workload.signals(self.topology)
                signals |= {first + i for i, (*ends, _) in enumerate(flows) if (*ends,) in pairs}
            first += len(flows)
        return frozenset(signals)

    @property
    def scheduled_faults(self) -> tuple[ScheduledFault, ...]:
        """Every fault of the timeline, repetitions included, with its places and times."""
        return scheduled_faults(self.topology, self.timeline, self.duration, self.seed)

    @property
    def longest_bytes(self) -> int:
        """Size of the longest message of any flow, in bytes."""
        workloads, lanes = self.workloads.values(), self.transport.qps
        return max(workload.longest_bytes(self.topology, lanes) for workload in workloads)

    @property
    def depth(self) -> int:
        """The most messages that any flow has outstanding."""
        return max(outstanding(workload, self.topology) for workload in self.workloads.values())

    @property
    def remap_delay_ns(self) -> int:
        """How long hosts go on using a port that has failed, in ns as they run."""
        transport = self.transport
        real_ns = transport.remap_delay if isinstance(transport, Mrc) else 0
        return round(real_ns * self.topology.dilation)

    def drain_ns(self, base_rtt_ns: int) -> int:
        """Longest wait for the last WRITEs after the end of the run, in ns."""
        return DRAIN_RTTS * base_rtt_ns if self.drain is None else self.drain

    def longer(self, factor: float) -> Self:
        """The same experiment with its length and all times of its faults and operator multiplied.

        So are the starts and sizes of a connection matrix. What hosts send otherwise, how they
        compute, timers and `drain` stay as they are.
        """
        changes = {
            "workload": _longer(self.workload, factor),
            "jobs": tuple(
                job.model_copy(
                    update={
                        "start": round(job.start * factor),
                        "workload": _longer(job.workload, factor),
                    }
                )
                for job in self.jobs
            ),
            "duration": round(self.duration * factor),
            "timeline": tuple(fault.stretched(factor) for fault in self.timeline),
            "operator": tuple(command.stretched(factor) for command in self.operator),
        }
        return self.model_copy(update=changes)

    def at_dilation(self, dilation: float) -> Self:
        """The same experiment at another dilation: all its times are as many round trips long.

        The limits of the topology are not checked again.
        """
        slower = self.stretched(dilation / self.topology.dilation)
        topology = self.topology.model_copy(update={"dilation": float(dilation)})
        return slower.model_copy(update={"topology": topology})


def _pair(hosts: tuple[str, str]) -> tuple[str, str]:
    """Two hosts, whichever sends."""
    return min(hosts), max(hosts)


def _longer(workload: Workload | None, factor: float) -> Workload | None:
    """The same load for longer, if it says how much it is."""
    return workload.longer(factor) if isinstance(workload, Connections) else workload
