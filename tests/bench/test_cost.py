"""What a simulated run costs, by stage."""

from pathlib import Path

import pytest

from testbed.studies.bench.cost import costs
from testbed.studies.bench.measure import Setting
from testbed.studies.bench.simulator import permutation

pytestmark = pytest.mark.simulated

STAGES = (
    "simulating without records",
    "starting",
    "simulating with records",
    "collecting records",
    "analysing",
    "drawing",
)


def test_every_stage_has_its_time_and_its_memory(tmp_path: Path) -> None:
    figures = costs("4 hosts", permutation(2, 2, 1), Setting(1, tmp_path, lambda _: None))
    assert [figure.name for figure in figures] == [
        f"4 hosts: {stage}{what}" for stage in STAGES for what in ("", ", peak memory")
    ]
    assert {figure.unit for figure in figures} == {"s", "MB"}
    assert all(figure.samples[0] > 0 for figure in figures)
