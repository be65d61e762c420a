"""Parts of the bench that only simulate have the same figures on the workers of a cluster."""

from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus
from testbed.runs.places import pool_at
from testbed.studies.bench.measure import Setting
from testbed.studies.bench.on_cluster import figures_from
from testbed.studies.bench.parts import PARTS, load
from tests.cli.conftest import Call, call

__all__ = ["call"]


@pytest.mark.simulated
def test_workers_measure_the_same_figures(tmp_path: Path) -> None:
    said: list[str] = []
    with pool_at("local", "bench", tmp_path) as pool:
        assert pool is not None
        there = figures_from(pool, ["shared-path"], 1, tmp_path, said.append)
    assert there == {"shared-path": load("shared-path")(Setting(1, tmp_path, said.append))}
    assert said[0] == "shared-path: measured"


@pytest.mark.parametrize("part", [name for name, part in PARTS.items() if not part.anywhere])
def test_what_measures_the_machine_is_refused_elsewhere(call: Call, part: str) -> None:
    called = call("bench", part, "--on", "local")
    assert called.status == ExitStatus.WRONG_INPUT
    assert f"--on: found {part}, expected a part whose figures are the same" in called.err
