"""What a cluster's executor does with what became of its jobs; nothing is run."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.runs.cluster import executor as module
from testbed.runs.cluster.calls import WorkerCalls
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.cluster.worker import make
from testbed.runs.cluster.workers import Worker
from testbed.runs.job import Job, JobRecord
from tests.waiting import WATCHDOG_S

JOB = Job("a", "simulated", {"seed": 1}, "runs/a", 1.0)


def _worker(name: str) -> Worker:
    return Worker(name, {"emulated": 0, "simulated": 1}, description={"id": name, "host": name})


class Calls(WorkerCalls):
    """Two workers, whose calls end as the test says."""

    def __init__(self) -> None:
        self.made: list[Future[Any]] = []
        self.known: list[list[str]] = []
        self.broken = False

    @property
    def workers(self) -> tuple[Worker, ...]:
        return _worker("one"), _worker("two")

    def call(self, function: Callable[..., Any], *arguments: Any, **_: Any) -> Future[Any]:
        assert function is make
        if self.broken:
            raise ValueError("no call")
        self.made.append(Future())
        self.known.append(arguments[-1])
        return self.made[-1]


def _finished(directory: Path, name: str) -> str:
    """A run that has ended."""
    place = directory / JOB.folder / name
    place.mkdir(parents=True)
    (place / SUMMARY).touch()
    return f"{JOB.folder}/{name}"


def test_a_run_may_end_while_another_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command knows grows then."""
    calls = Calls()
    executor = ClusterExecutor(calls, tmp_path)
    first = _finished(tmp_path, "20260101T000000-1")
    executor.submit(JOB)
    second, seed_of = f"{JOB.folder}/20260101T000001-1", module._seed_of

    def end_another(run: str) -> str:
        if not calls.made[0].done():
            calls.made[0].set_result(asdict(JobRecord(0, 1.0, second)))
        return seed_of(run)

    monkeypatch.setattr(module, "_seed_of", end_another)
    executor.submit(JOB)
    executor.submit(JOB)
    assert [sorted(known) for known in calls.known] == [[first], [first], [first, second]]


def test_an_error_while_a_result_is_handed_on_reaches_who_waits_for_it(tmp_path: Path) -> None:
    calls = Calls()
    result = ClusterExecutor(calls, tmp_path).submit(JOB)
    calls.broken = True
    cannot = JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message="no space", worker="one")
    calls.made[0].set_result(asdict(cannot))
    with pytest.raises(ValueError, match="no call"):
        result.result(WATCHDOG_S)


def test_a_directory_of_another_name_is_no_run_of_a_campaign(tmp_path: Path) -> None:
    """Such as a copy that a user has made."""
    calls = Calls()
    again = _finished(tmp_path, "20260101T000000-1-2")
    _finished(tmp_path, "1")
    ClusterExecutor(calls, tmp_path).submit(JOB)
    assert calls.known == [[again]]
