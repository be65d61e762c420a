"""What a simulated run costs, by stage."""

from pathlib import Path

import pytest

from testbed.studies.bench.cost import ALL_TO_ALLS, all_to_all, costs, permutation
from testbed.studies.bench.measure import Setting

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


@pytest.mark.parametrize("flows", ALL_TO_ALLS)
def test_an_all_to_all_has_as_many_flows_as_it_is_named_for(flows: int) -> None:
    assert len(all_to_all(*ALL_TO_ALLS[flows]).flows) == flows
