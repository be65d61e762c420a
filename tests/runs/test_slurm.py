"""Jobs of Slurm that bring no worker; its commands are programs of the test."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.runs.cluster.launch import why_ended

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


def test_jobs_that_have_all_ended_are_named(queue: Path) -> None:
    assert why_ended(CLUSTER) == "", "Slurm does not answer"
    queue.write_text("8\n9\n")
    assert why_ended(CLUSTER) == ""
    queue.write_text("9\n")
    assert why_ended(CLUSTER) == "all jobs of Slurm (7, 8) ended before a worker came"
    fewer = SimpleNamespace(workers={0: CLUSTER.workers[0]}, worker_spec=CLUSTER.worker_spec)
    assert why_ended(fewer) == "", "one is still to be submitted"
