"""What the long forms of tests tried is counted, and what failed of it is told."""

from pathlib import Path

import pytest

from testbed.bench import robustness
from testbed.bench.setting import Setting

TEST = """\
import os

import pytest


@pytest.mark.parametrize("number", range(3))
def test_it(number, record_property):
    assert os.environ["TESTBED_SOAK"]
    record_property("packets", 400_000)
    record_property("schedules", 400)
    assert number < {fine}
"""


@pytest.mark.parametrize(("fine", "failures"), [(3, 0), (2, 1)])
def test_tried_is_counted_and_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fine: int, failures: int
) -> None:
    test = tmp_path / "test_long.py"
    test.write_text(TEST.format(fine=fine))
    monkeypatch.setattr(robustness, "TESTS", {"something": str(test)})
    said: list[str] = []
    figures = robustness.robustness(Setting(1, tmp_path, said.append))
    packets, schedules, failed = figures
    assert (packets.samples, packets.holds) == ((1_200_000,), True)
    assert (schedules.samples, schedules.holds) == ((1200,), True)
    assert (failed.samples, failed.holds) == ((failures,), failures == 0)
    assert said[0] == "something"
    assert any("assert 2 < 2" in one for one in said) == bool(failures)


def test_the_tests_that_it_runs_are_there() -> None:
    for test in robustness.TESTS.values():
        file, _, name = test.partition("::")
        assert name in (robustness.ROOT / file).read_text()
