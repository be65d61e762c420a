"""What tests tried is counted, what failed of it is told, and what was skipped is not measured."""

from pathlib import Path

import pytest

from testbed.studies.bench import robustness
from testbed.studies.bench.claims import ROOT, Claim, figures
from testbed.studies.bench.fabric import accounts
from testbed.studies.bench.measure import Setting

pytestmark = pytest.mark.programs

TEST = """\
import os

import pytest


@pytest.mark.parametrize("number", range(3))
def test_it(number, record_property):
    if number == {skipped}:
        pytest.skip("no link model: make setup")
    record_property("packets", 400_000)
    record_property("others", int(os.environ["OTHERS"]))
    assert number < {fine}
"""


def claims(directory: Path, *, fine: int = 3, skipped: int = 3) -> tuple[Claim, ...]:
    """Two figures of the same tests: what they count as packets, and as others."""
    place = directory / "test_long.py"
    place.write_text(TEST.format(fine=fine, skipped=skipped))
    environment = {"OTHERS": "7"}
    return (
        Claim("packets", "packets", 1_000_000, str(place), environment),
        Claim("others", "others", 22, str(place), environment),
    )


@pytest.mark.parametrize(("fine", "failures"), [(3, 0), (2, 1)])
def test_tried_is_counted_and_failed_is_told(tmp_path: Path, fine: int, failures: int) -> None:
    said: list[str] = []
    packets, others, failed = figures(
        claims(tmp_path, fine=fine), Setting(1, tmp_path, said.append), at_once=2
    )
    assert (packets.samples, packets.holds) == ((1_200_000,), True)
    assert (others.samples, others.holds) == ((21,), False)
    assert (failed.samples, failed.holds) == ((2 * failures,), failures == 0)
    assert {"packets", "others"} <= set(said)
    assert any("assert 2 < 2" in one for one in said) == bool(failures)


def test_what_a_machine_cannot_test_is_not_measured(tmp_path: Path) -> None:
    said: list[str] = []
    first, _, failed = figures(claims(tmp_path, skipped=1), Setting(1, tmp_path, said.append))
    assert not first.samples
    assert not first.holds
    assert "no link model: make setup" in first.missing
    assert failed.holds


@pytest.mark.parametrize("one", [*accounts.CLAIMS, *robustness.CLAIMS])
def test_the_tests_of_the_parts_are_there_and_count(one: Claim) -> None:
    file, _, name = one.tests.partition("::")
    source = (ROOT / file).read_text()
    assert f"def {name}(" in source or not name
    assert f'record_property("{one.counted}"' in source or "DRAWN.recorded()" in source
