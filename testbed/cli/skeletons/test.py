"""A short run with the class Mine: python -m pytest test_mine.py."""

from pathlib import Path

import pytest

import testbed

MINE = Path(__file__).with_name("mine.py")


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_arrives_and_the_fabric_is_used(seed: int, tmp_path: Path) -> None:
    settings = {"transport.KEY": f"{MINE}:Mine", "duration": "20 RTT"}
    scenario = testbed.load_scenario("SCENARIO", settings)
    summary = testbed.simulate(scenario, seed=seed, results=tmp_path).summary
    assert summary.verdict == "trusted", summary.reasons
    assert summary.integrity.bytes_lost == summary.integrity.bytes_corrupted == 0
    assert all((flow.before_fraction or 0) > 0.5 for flow in summary.flows)
