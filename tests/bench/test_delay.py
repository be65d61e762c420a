"""Propagation delay is measured at a dilation that the machine carries, with several seeds."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.model.scenario import Scenario
from testbed.studies.bench import emulated, runs
from testbed.studies.bench.measure import Setting

QUICK = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=100_000)
LATE = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=13_080_000)
"""By a tenth of the default round trip: twice as long a one is asked for."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The scenarios that were run; only the second run cannot be trusted."""
    scenarios: list[Scenario] = []

    def make_runs(requested: Sequence[Scenario], _setting: Setting) -> list[SimpleNamespace]:
        scenarios.extend(requested)
        run = SimpleNamespace(data=None)
        return [SimpleNamespace(run=run, trusted=scenario.seed != 2) for scenario in requested]

    monkeypatch.setattr(emulated, "make_runs", make_runs)
    monkeypatch.setattr(emulated, "_errors", lambda _data: (0.0, 0.0))
    return scenarios


def _measure(tmp_path: Path, repeats: int = 1) -> dict[str, tuple[float, ...]]:
    setting = Setting(repeats, tmp_path, lambda _what: None)
    return {figure.name: figure.samples for figure in emulated.delay(setting)}


@pytest.mark.parametrize(("capacity", "dilation"), [(QUICK, 10_000), (LATE, 20_000)])
def test_a_late_machine_is_given_longer_round_trips_and_as_many(
    ran: list[Scenario],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capacity: Capacity,
    dilation: int,
) -> None:
    monkeypatch.setattr(runs, "load_capacity", lambda: capacity)
    assert _measure(tmp_path)["dilation"] == (dilation,)
    assert {scenario.topology.dilation for scenario in ran} == {dilation}
    assert {scenario.duration for scenario in ran} == {5_000_000_000 * dilation // 10_000}


def test_there_is_a_run_for_each_seed(
    ran: list[Scenario], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "load_capacity", lambda: QUICK)
    assert _measure(tmp_path, repeats=3)["runs trusted"] == (True, False, True)
    assert [scenario.seed for scenario in ran] == [1, 2, 3]
