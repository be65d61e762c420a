"""A run that is to be made: what it is, as plain data; what identifies it; what became of it."""

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, Protocol

from testbed.model.errors import (
    CrashError,
    ExitStatus,
    InputError,
    MachineError,
    RunFailedError,
    TestbedError,
    exit_status_of,
)
from testbed.model.flows import SIMULATED_HOPS_PER_S, packet_hops
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.summary import State, Summary
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import decode_error

Form = Literal["emulated", "simulated", "paced"]
"""How a run is made: with real packets through the kernel, in virtual time, or, where programs
send, on a simulated fabric in step with the clock."""

FORMS: tuple[Form, ...] = ("emulated", "simulated")

FIRST_SEED = 1

STATES: tuple[State, ...] = ("trusted", "degraded", "invalid")
"""Verdicts, from the best to the worst."""

SLOWED = (1.0, 1.5, 2.0)
"""How many times slower each attempt at an emulated run is than the first one: a machine that
stalls for some milliseconds now and then is late by less of a round trip that takes longer."""

SCENARIO_FILES = "scenarios"
"""The folder of the scenarios' files in a campaign's directory."""

_OVERHEAD_S = 6.0
"""What a run takes beside its duration: to build the fabric, to end and to be measured."""

_PATIENCE, _LEAST_TIMEOUT_S = 8.0, 300.0
"""A run is given up after this multiple of the expected time, but not before the least timeout."""


@dataclass(frozen=True, slots=True)
class How:
    """How a run is made, beside its scenario: none of it changes what it comes to.

    Attributes:
        drawn: whether it gets figures and a report; they take as long as the rest of its analysis.
        require_trusted: whether a degraded run is an error, too.
        force: whether it is emulated though the load is far too high for the machine.
        stop_if_late: whether it ends once the machine was so late that it cannot be trusted.
        pcap: links, or nodes for all their links, whose packets are captured; `all` is all links.
    """

    drawn: bool = True
    require_trusted: bool = False
    force: bool = False
    stop_if_late: bool = False
    pcap: tuple[str, ...] = ()


DRAWN = How()

UNDRAWN = How(drawn=False)
"""Of runs whose figures are drawn later, or never."""


def identity(form: Form, scenario: Any, code: str | None) -> str:
    """A digest of all that decides what a run comes to.

    Args:
        form: how it is made.
        scenario: its resolved scenario with its seed, as its manifest has it.
        code: which code makes it (`code_version()`); None of a run that does not say.
    """
    content = json.dumps([form, scenario, code], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def identity_of(manifest: Manifest) -> str:
    form: Form = "simulated" if manifest.simulated else "emulated"
    if manifest.paced:
        form = "paced"
    return identity(form, manifest.scenario, manifest.code)


class JobKey(NamedTuple):
    """What tells a job from the others of its campaign, however much it is slowed down.

    Attributes:
        folder: where its run directory is made.
        seed: that of its scenario.
    """

    folder: str
    seed: int


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made. It is plain data: an executor may send it to another machine.

    Attributes:
        name: what it is called in progress and errors.
        form: how it is made.
        scenario: the resolved scenario with its seed, as plain data.
        folder: where its run directory is made, relative to the campaign's directory.
        timeout_s: a run that takes longer is given up.
        how: how it is made, beside its scenario.
    """

    name: str
    form: Form
    scenario: Mapping[str, Any]
    folder: str
    timeout_s: float
    how: How = UNDRAWN

    @property
    def seed(self) -> int:
        return int(self.scenario["seed"])

    @property
    def key(self) -> JobKey:
        return JobKey(self.folder, self.seed)

    @property
    def file(self) -> PurePosixPath:
        """The file of its scenario, for people to run it again, relative to the campaign's."""
        folder = PurePosixPath(self.folder)
        return folder.parent / SCENARIO_FILES / f"{folder.name}-seed-{self.seed}.yaml"

    @property
    def log(self) -> PurePosixPath:
        """What its process prints: warnings, and that it waits for its turn."""
        return self.file.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What became of a job.

    Attributes:
        status: the exit status of its process.
        seconds: how long it took.
        run: its run directory, relative to the campaign's directory; None if it was not finished.
        message: why it was not finished.
        error: the same with its parts, as `encode_error` writes it; None if its process could not
            say: it was killed, say.
    """

    status: int
    seconds: float
    run: str | None = None
    message: str = ""
    error: Mapping[str, Any] | None = None

    @property
    def failure(self) -> str:
        """Why it was not finished; empty if it was."""
        if self.run is not None:
            return ""
        killed = f"killed by signal {-self.status}"
        how = killed if self.status < 0 else f"exit status {self.status}"
        return f"{how}: {self.message}" if self.message else how

    @property
    def crashed(self) -> bool:
        """Whether it was not finished because of a mistake in the program."""
        return self.run is None and exit_status_of(self.status) is ExitStatus.CRASHED

    @property
    def must_not_repeat(self) -> bool:
        """Whether another attempt would fail in the same way, or must not hide this one."""
        lasting = ExitStatus.WRONG_INPUT, ExitStatus.MACHINE_CANNOT, ExitStatus.CRASHED
        return exit_status_of(self.status) in lasting


def error_of(record: JobRecord | None, log: Path) -> TestbedError:
    """The error of a run that was not finished.

    Args:
        record: what became of it; None if it was not begun.
        log: what its process printed.
    """
    if record is None:
        return RunFailedError(f"the run did not finish; see {log}")
    if record.error is not None:
        error = decode_error(dict(record.error))
        if isinstance(error, InputError | MachineError):
            return error
    if record.status == ExitStatus.MACHINE_CANNOT:
        usual = "testbed doctor says what is missing; emulation needs root"
        return MachineError(record.message, usual)
    failure = CrashError if record.crashed else RunFailedError
    return failure(f"{record.failure}; see {log}")


class Executor(Protocol):
    """Makes runs, on this machine or on others."""

    def slots(self, form: Form) -> int:
        """How many jobs of a form it makes at a time."""
        ...

    def submit(self, job: Job) -> Future[JobRecord]: ...

    def stop(self) -> None:
        """End all jobs that are under way, and wait until they have ended."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a campaign: its job, how long it will take, and when it can be trusted.

    Attributes:
        job: what an executor is given.
        scenario: the scenario of the job.
        may_stall: whether a run that finishes no operation, or whose payload is still under way
            at its end, is a result, and the run can still be trusted.
        packet_hops: an upper bound of its packets times the links that they cross.
        load: the share of the machine's CPUs that it will take; None if it is simulated, or if
            that is not known.
    """

    job: Job
    scenario: Scenario
    may_stall: bool
    packet_hops: float
    load: float | None = None

    def expected_s(self, factor: float = 1.0) -> float:
        """How long it will take, slowed down by a factor."""
        if self.job.form == "simulated":
            hops = self.packet_hops * (2 if self.scenario.run_alone(simulated=True) else 1)
            return hops / SIMULATED_HOPS_PER_S + _OVERHEAD_S / 2
        runs = 1 + len(self.scenario.run_alone(simulated=False))
        base_rtt_ns = self.scenario.topology.propagation_rtt_ns
        drain_ns = self.scenario.drain_ns(base_rtt_ns) if self.may_stall else 0
        return runs * (factor * (self.scenario.duration + drain_ns) / NS_PER_S + _OVERHEAD_S)

    def slowed(self, factor: float) -> "PlannedRun":
        """The same run with its dilation multiplied by a factor."""
        if factor == 1:
            return self
        scenario = slowed(self.scenario, factor)
        load = None if self.load is None else self.load / factor
        job = replace(self.job, scenario=as_recorded(scenario))
        return replace(self, job=job, scenario=scenario, load=load)

    def verdict(self, summary: Summary) -> State:
        from testbed.results.analysis.verdict import FINDINGS  # it loads Polars

        stalled = self.may_stall and FINDINGS.issuperset(summary.reasons)
        return "trusted" if stalled else summary.verdict


def planned_run(
    scenario: Scenario,
    form: Form,
    folder: str,
    *,
    may_stall: bool = False,
    carries: float = 1.0,
    load: float | None = None,
    name: str = "",
    how: How = UNDRAWN,
) -> PlannedRun:
    """Plan a run of a scenario (see `PlannedRun` and `Job`).

    `carries` is the share that its flows are expected to send of the packets that they may send.
    The run is called after its folder and its seed if no name is given.
    """
    if not name:
        stem = folder.rpartition("/")[2]
        name = stem if scenario.seed == FIRST_SEED else f"{stem}, seed {scenario.seed}"
    job = Job(name, form, as_recorded(scenario), folder, 0.0, how)
    planned = PlannedRun(job, scenario, may_stall, carries * packet_hops(scenario), load)
    slowest_s = planned.expected_s(SLOWED[-1])
    timeout_s = max(_PATIENCE * slowest_s, _LEAST_TIMEOUT_S)
    return replace(planned, job=replace(job, timeout_s=timeout_s))


def slowed(scenario: Scenario, factor: float) -> Scenario:
    return scenario if factor == 1 else scenario.at_dilation(factor * scenario.topology.dilation)


def as_recorded(scenario: Scenario) -> Any:
    """A scenario as a run's manifest has it."""
    return json.loads(scenario.model_dump_json(by_alias=True))
