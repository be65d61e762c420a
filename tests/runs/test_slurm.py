"""Jobs of Slurm that bring no worker; its commands are programs of the test."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.model.errors import MachineError
from testbed.runs.cluster import slurm, start
from testbed.runs.cluster.slurm import SlurmOptions, logs_of, slurm_cluster, why_ended
from tests.waiting import WATCHDOG_S

CLUSTER = SimpleNamespace(
    workers={0: SimpleNamespace(job_id="7"), 1: SimpleNamespace(job_id="8")},
    worker_spec={0: {}, 1: {}},
)


def _commands(directory: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Commands of Slurm that are these scripts."""
    place = directory / "bin"
    place.mkdir()
    for name, script in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `squeue` prints; it fails without it."""
    printed = tmp_path / "queue"
    _commands(tmp_path, monkeypatch, squeue=f"cat {printed}")
    return printed


def test_jobs_that_have_all_ended_say_what_they_printed(tmp_path: Path, queue: Path) -> None:
    logs = logs_of(tmp_path)
    logs.mkdir()
    (logs / "testbed-7.err").write_text("...\nNo module named 'distributed'\n")
    (logs / "testbed-7.out").touch()
    assert why_ended(CLUSTER, tmp_path) == "", "Slurm does not answer"
    queue.write_text("8\n9\n")
    assert why_ended(CLUSTER, tmp_path) == ""
    queue.write_text("9\n")
    assert why_ended(CLUSTER, tmp_path) == (
        "all jobs of Slurm (7, 8) ended before a worker came; "
        "the last line of one: No module named 'distributed'"
    )
    fewer = SimpleNamespace(workers={0: CLUSTER.workers[0]}, worker_spec=CLUSTER.worker_spec)
    assert why_ended(fewer, tmp_path) == "", "one is still to be submitted"


def test_no_worker_is_waited_for_that_cannot_come_any_more() -> None:
    def wait_for_workers(_count: int, timeout: float) -> None:
        raise TimeoutError(timeout)

    client = SimpleNamespace(wait_for_workers=wait_for_workers)
    reasons = iter(["", "all jobs ended"])
    scheduler = start._Scheduler("address", 600.0, ended=lambda: next(reasons))
    assert start._no_worker(client, scheduler, 600.0) == "all jobs ended"


def test_jobs_that_slurm_has_taken_are_cancelled_if_it_does_not_take_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that it takes when the command has given up."""
    late = f"mkdir {tmp_path}/first 2>/dev/null && exec echo job 7; sleep 3; echo job 8"
    ended = tmp_path / "ended"
    _commands(tmp_path, monkeypatch, sbatch=late, scancel=f"echo $* >> {ended}", squeue="exit 1")
    monkeypatch.setattr(slurm, "_SUBMIT_S", 1.0)
    monkeypatch.setattr(slurm, "_LATE_S", WATCHDOG_S)
    with (
        pytest.raises(MachineError, match="sbatch has not taken the jobs"),
        slurm_cluster(SlurmOptions(), tmp_path, {}),
    ):
        pass
    assert {*ended.read_text().split()} == {"7", "8"}
