"""Propagation delay is measured at a dilation that the machine carries, until a run is trusted."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.bench import runs
from testbed.bench.fabric import delay
from testbed.bench.setting import Setting
from testbed.experiment.capacity import Capacity
from testbed.model.scenario import Scenario

QUICK = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=100_000)
LATE = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=13_080_000)
"""By a tenth of the default round trip: twice as long a one is asked for."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The scenarios that were run, each trusted from its third try on; their error is nothing."""
    scenarios: list[Scenario] = []

    def run(scenario: Scenario, _results: Path) -> SimpleNamespace:
        scenarios.append(scenario)
        tries = sum(one.seed == scenario.seed for one in scenarios)
        return SimpleNamespace(verdict="trusted" if tries == 3 else "degraded", run="run")

    monkeypatch.setattr(runs, "run", run)
    monkeypatch.setattr(delay, "_errors", lambda _directory: (0.0, 0.0))
    return scenarios


def _measure(tmp_path: Path, repeats: int = 1) -> dict[str, tuple[float, ...]]:
    setting = Setting(repeats, tmp_path, lambda _what: None)
    return {one.name: one.samples for one in delay.delay(setting)}


@pytest.mark.parametrize(("capacity", "dilation"), [(QUICK, 10_000), (LATE, 20_000)])
def test_a_late_machine_is_given_longer_round_trips_and_as_many(
    ran: list[Scenario],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capacity: Capacity,
    dilation: int,
) -> None:
    monkeypatch.setattr(runs, "kept", lambda: capacity)
    assert _measure(tmp_path)["dilation"] == (dilation,)
    assert {one.topology.dilation for one in ran} == {dilation}
    assert {one.duration for one in ran} == {5_000_000_000 * dilation // 10_000}


def test_a_run_that_is_not_trusted_is_tried_again(
    ran: list[Scenario], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "kept", lambda: QUICK)
    assert _measure(tmp_path, repeats=2)["runs trusted"] == (True, True)
    assert [one.seed for one in ran] == [1, 1, 1, 2, 2, 2]
    monkeypatch.setattr(runs, "TRIES", 2)
    ran.clear()
    assert _measure(tmp_path)["runs trusted"] == (False,)
    assert len(ran) == 2
