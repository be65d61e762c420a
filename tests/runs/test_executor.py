"""What a cluster's executor does with what became of its jobs; nothing is run."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.runs.cluster.calls import Worker, WorkerCalls
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.cluster.worker import make
from testbed.runs.job import Form, Job, JobRecord
from tests.waiting import WATCHDOG_S

JOB = Job("a", "simulated", {"seed": 1}, "runs/a", 1.0)


class Calls(WorkerCalls):
    """Two workers, whose calls end as the test says."""

    def __init__(self) -> None:
        self.name = "campaign"
        offers: dict[Form, int] = {"emulated": 0, "simulated": 1}
        self.workers = {name: Worker(name, offers) for name in ("one", "two")}
        self.made: list[Future[Any]] = []
        self.known: list[list[str]] = []
        self.avoided: list[set[str]] = []
        self.broken = False

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any]:
        assert function is make
        if self.broken:
            raise ValueError("no call")
        self.made.append(Future())
        self.known.append(arguments[-1])
        self.avoided.append(options["avoided"])
        return self.made[-1]

    def end(self, number: int, host: str, record: JobRecord) -> None:
        reply = {"record": asdict(record), "host": host, "packed": None}
        self.made[number].set_result(reply)


CANNOT = JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message="no space")


def _finished(directory: Path, name: str) -> str:
    """A run that has ended."""
    place = directory / JOB.folder / name
    place.mkdir(parents=True)
    (place / SUMMARY).touch()
    return f"{JOB.folder}/{name}"


def test_the_command_knows_what_was_there_and_what_it_has_made(tmp_path: Path) -> None:
    """Not what was finished in between, by a worker that a killed command has left."""
    calls = Calls()
    executor = ClusterExecutor(calls, tmp_path)
    first = _finished(tmp_path, "20260101T000000-1")
    executor.know_finished([JOB])
    _finished(tmp_path, "20260101T000001-1")
    executor.submit(JOB)
    third = f"{JOB.folder}/20260101T000002-1"
    calls.end(0, "one", JobRecord(0, 1.0, third))
    executor.submit(JOB)
    assert calls.known == [[first], [first, third]]


def test_what_a_machine_cannot_make_is_made_by_another(tmp_path: Path) -> None:
    """It fails when none can, with the reasons of all."""
    calls = Calls()
    result = ClusterExecutor(calls, tmp_path).submit(JOB)
    calls.end(0, "one", CANNOT)
    assert calls.avoided == [set(), {"one"}]
    assert not result.done()
    calls.end(1, "two", JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message="no memory"))
    assert result.result(WATCHDOG_S).message == "no space\nno memory"


def test_an_error_while_a_result_is_handed_on_reaches_who_waits_for_it(tmp_path: Path) -> None:
    calls = Calls()
    result = ClusterExecutor(calls, tmp_path).submit(JOB)
    calls.broken = True
    calls.end(0, "one", CANNOT)
    with pytest.raises(ValueError, match="no call"):
        result.result(WATCHDOG_S)


def test_a_directory_of_another_name_is_no_run_of_a_campaign(tmp_path: Path) -> None:
    """Such as a copy that a user has made; nor is a run with another seed."""
    calls = Calls()
    again = _finished(tmp_path, "20260101T000000-1-2")
    _finished(tmp_path, "1")
    _finished(tmp_path, "20260101T000000-12")
    ClusterExecutor(calls, tmp_path).submit(JOB)
    assert calls.known == [[again]]
