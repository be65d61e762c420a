"""What is said of the permutation: every flow, every run, and how busy the machine was."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.bench import permutation, runs
from testbed.bench.figure import Figure
from testbed.bench.setting import Setting
from testbed.experiment.capacity import Capacity
from testbed.model.scenario import Scenario
from testbed.results.json_records import HealthSample

QUICK = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=100_000)


def _figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, worst: float, busy: float, verdict: str
) -> dict[str, Figure]:
    """Of two runs, the second of them as told; each has eight flows."""

    def run(scenario: Scenario, _results: Path) -> SimpleNamespace:
        of_it = worst if scenario.seed == 2 else 1.0
        flows = [SimpleNamespace(attainable_fraction=f) for f in (*[1.0] * 7, of_it)]
        told = verdict if scenario.seed == 2 else "trusted"
        return SimpleNamespace(verdict=told, run=f"run-{scenario.seed}", flows=flows)

    def load(directory: Path) -> SimpleNamespace:
        assert directory.parent == tmp_path / "bench-permutation"
        samples = [
            HealthSample(t_ns=1, process="machine", interval_ns=weight, busy_share=share)
            for share, weight in ((busy - 0.1, 3), (busy + 0.3, 1))
        ]
        return SimpleNamespace(health_during=samples)

    monkeypatch.setattr(runs, "kept", lambda: QUICK)
    monkeypatch.setattr(runs, "run", run)
    monkeypatch.setattr(permutation, "load_run", load)
    figures = permutation.permutation(Setting(2, tmp_path, lambda _: None))
    return {figure.name: figure for figure in figures}


@pytest.mark.parametrize(
    ("worst", "busy", "verdict", "misses"),
    [
        (0.98, 0.69, "trusted", set()),
        (0.96, 0.5, "trusted", {"goodput / attainable, every flow"}),
        (1.0, 0.71, "trusted", {"all CPUs busy, mean of the run"}),
        (1.0, 0.5, "degraded", {"runs trusted"}),
    ],
)
def test_one_flow_or_one_run_that_falls_short_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    worst: float,
    busy: float,
    verdict: str,
    misses: set[str],
) -> None:
    figures = _figures(monkeypatch, tmp_path, worst, busy, verdict)
    assert {name for name, figure in figures.items() if not figure.holds} == misses
    assert figures["dilation"].samples == (10_000,)
    assert figures["all CPUs busy, mean of the run"].median == pytest.approx(100 * busy)
