"""Which part of the code a simulation's time goes to."""

from pathlib import Path

import pytest

from testbed import fast
from testbed.studies.bench.measure import Setting
from testbed.studies.bench.simulated import shares

pytestmark = pytest.mark.simulated


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(1, tmp_path, lambda _: None)


@pytest.mark.skipif(fast.is_built(), reason="the profiler does not see what make fast has built")
def test_the_parts_are_nearly_all_of_it(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LEAVES", 2)
    monkeypatch.setattr(shares, "HOSTS_PER_LEAF", 2)
    *parts, largest = (figure.samples[0] for figure in shares.simulator_shares(setting))
    assert 95 < sum(parts) <= 100
    assert 0 < largest < max(parts)


def test_what_is_built_is_not_measured(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "is_built", lambda: True)
    assert all("make slow" in figure.missing for figure in shares.simulator_shares(setting))
