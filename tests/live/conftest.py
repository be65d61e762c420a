"""Runs that several tests look at: a simulated one, and one that is emulated meanwhile."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.results.analyse import analyse
from testbed.results.run_directory import RunDirectory
from testbed.sim import simulate

from .watched import SCENARIO, started

FAILURE = """
name: failure
topology: clos-tiny
duration: 3 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 256 KiB}
timeline:
  - {kind: blackhole, target: p0_t0_0--p0_t1_0, at: 1 s, for: 1 s}
"""


@pytest.fixture(scope="session")
def failure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run in which a link fails and heals."""
    results = tmp_path_factory.mktemp("results")
    file = results / "failure.yaml"
    file.write_text(FAILURE)
    run = RunDirectory.create(results, "failure", 1, datetime.now(UTC))
    simulate(load_scenario(str(file)), run.path)
    analyse(run.path, drawn=False)
    return run.path


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An emulated run with its page, which goes on."""
    with started("run", tmp_path, SCENARIO) as process:
        yield process
