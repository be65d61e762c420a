"""Jobs of Slurm that end before a worker comes; `squeue` is a program of the test."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.campaign.cluster import start
from testbed.campaign.cluster.slurm import logs_of, why_ended

CLUSTER = SimpleNamespace(
    workers={0: SimpleNamespace(job_id="7"), 1: SimpleNamespace(job_id="8")},
    worker_spec={0: {}, 1: {}},
)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `squeue` prints; it fails without it."""
    squeue, printed = tmp_path / "bin/squeue", tmp_path / "queue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/sh\ncat {printed}\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
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
