"""`testbed simulate` as a user runs it."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.commands import Completed, completed

pytestmark = pytest.mark.simulated

SCENARIO = """
name: short
topology: {name: real, planes: 2, t0_per_plane: 2, t1_per_plane: 2, hosts_per_t0: 1, dilation: 1}
duration: 300 us
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}
timeline: [{kind: cut, target: p1_t0_1--p1_t1_0, at: 150 us, for: 80 us}]
"""


def _simulate(directory: Path, *arguments: str) -> Completed:
    scenario = directory / "short.yaml"
    scenario.write_text(SCENARIO)
    command = (sys.executable, "-c", "from testbed.cli import main; main()", "simulate")
    return completed(
        [*command, str(scenario), "--results", str(directory / "results"), *arguments],
        env=os.environ | {"MPLCONFIGDIR": str(directory)},
    )


def test_a_fabric_at_full_speed(tmp_path: Path) -> None:
    done = _simulate(tmp_path, "--seed", "7", "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    summary = printed["summary"]
    assert (summary["simulated"], summary["seed"], summary["dilation"]) == (True, 7, 1)
    assert summary["integrity"]["bytes_verified"] > 5_000_000
    (fault,) = summary["faults"]
    assert (fault["actuator"], fault["effective_uncertainty_ms"]) == ("simulator", 0)
    assert fault["detection_rtt"] < 1.6
    run = Path(printed["run"])
    assert run.name.endswith("-7")
    for name in ("report.html", "summary.json", "manifest.json", "run.json", "arrivals.parquet"):
        assert (run / name).stat().st_size > 0


def test_a_seed_out_of_range(tmp_path: Path) -> None:
    done = _simulate(tmp_path, "--seed", "-1")
    assert done.returncode == 2
    assert "--seed" in done.stderr
    assert not (tmp_path / "results").exists()
