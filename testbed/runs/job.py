"""A run that is to be made, as plain data; what identifies it; what became of it."""

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, Protocol

from testbed.model.errors import (
    CrashError,
    ExitStatus,
    MachineError,
    RunFailedError,
    exit_status_of,
)
from testbed.model.run_files.manifest import Manifest

Form = Literal["emulated", "simulated"]
"""How a run is made: with real packets through the kernel, or in virtual time."""

FORMS: tuple[Form, ...] = ("emulated", "simulated")

FIRST_SEED = 1

SCENARIO_FILES = "scenarios"
"""The folder of the scenarios' files in a campaign's directory."""


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
    """The identity of a run that was made, from its manifest."""
    form: Form = "simulated" if manifest.simulated else "emulated"
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
        options: further options of `testbed run` or `testbed simulate`.
    """

    name: str
    form: Form
    scenario: Mapping[str, Any]
    folder: str
    timeout_s: float
    options: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """The seed of its scenario."""
        return int(self.scenario["seed"])

    @property
    def key(self) -> JobKey:
        """What tells it from the other jobs of its campaign."""
        return JobKey(self.folder, self.seed)

    @property
    def file(self) -> PurePosixPath:
        """The file of its scenario, in JSON, relative to the campaign's directory."""
        folder = PurePosixPath(self.folder)
        return folder.parent / SCENARIO_FILES / f"{folder.name}-seed-{self.seed}.yaml"

    @property
    def log(self) -> PurePosixPath:
        """What its command prints beside its result."""
        return self.file.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What became of a job.

    Attributes:
        status: the exit status of its command.
        seconds: how long it took.
        run: its run directory, relative to the campaign's directory; None if it was not finished.
        message: the end of what its command printed, where it was not finished.
        lost: how many workers were lost while they made it, on a cluster.
        lost_s: how long it took until the last of them was lost, in seconds.
        worker: which worker of a cluster made it, or could not.
    """

    status: int
    seconds: float
    run: str | None = None
    message: str = ""
    lost: int = 0
    lost_s: float = 0.0
    worker: str = ""

    @property
    def failure(self) -> str:
        """Why it was not finished; empty if it was."""
        return "" if self.run is not None else f"exit status {self.status}: {self.message}"

    @property
    def crashed(self) -> bool:
        """Whether it was not finished because of a mistake in the program."""
        return self.run is None and exit_status_of(self.status) is ExitStatus.CRASHED

    @property
    def must_not_repeat(self) -> bool:
        """Whether another attempt would fail in the same way, or must not hide this one."""
        lasting = ExitStatus.WRONG_INPUT, ExitStatus.MACHINE_CANNOT, ExitStatus.CRASHED
        return exit_status_of(self.status) in lasting


def error_of(record: JobRecord | None, log: Path) -> MachineError | RunFailedError:
    """The error of a run that was not finished.

    Args:
        record: what became of it; None if it was not begun.
        log: what its command printed.
    """
    if record is not None and record.status == ExitStatus.MACHINE_CANNOT:
        reason, _, remedy = record.message.removeprefix("error: ").partition("\n  remedy: ")
        usual = "testbed doctor says what is missing; emulation needs root"
        return MachineError(reason, remedy or usual)
    reason = "" if record is None else record.failure
    failure = CrashError if record is not None and record.crashed else RunFailedError
    return failure(f"{reason or 'the run did not finish'}; see {log}")


class Executor(Protocol):
    """Makes runs, on this machine or on others."""

    def slots(self, form: Form) -> int:
        """How many jobs of a form it makes at a time."""
        ...

    def submit(self, job: Job) -> Future[JobRecord]:
        """Start a job."""
        ...

    def stop(self) -> None:
        """End all jobs that are under way, and wait until they have ended."""
        ...
