"""What is said of the permutation: every flow, every run, and how busy the machine was."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.model.run_files.content import HealthSample
from testbed.model.scenario import Scenario
from testbed.studies.bench import emulated, runs
from testbed.studies.bench.measure import Measurement, Setting

QUICK = Capacity(endpoint_ns=20_000, link_ns=2_000, cpus=8, lag_ns=100_000)


def _figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, worst: float, busy: float, verdict: str
) -> dict[str, Measurement]:
    """Of two runs, the second of them like this; each has eight flows."""
    samples = [
        HealthSample(t_ns=1, process="machine", interval_ns=weight, busy_share=share)
        for share, weight in ((busy - 0.1, 3), (busy + 0.3, 1))
    ]

    def made(scenario: Scenario) -> SimpleNamespace:
        second = scenario.seed == 2
        shares = (*[1.0] * 7, worst if second else 1.0)
        return SimpleNamespace(
            run=SimpleNamespace(data=SimpleNamespace(health_during=samples)),
            summary=SimpleNamespace(
                flows=[SimpleNamespace(before_fraction=share) for share in shares]
            ),
            trusted=not second or verdict == "trusted",
        )

    monkeypatch.setattr(runs, "load_capacity", lambda: QUICK)
    monkeypatch.setattr(emulated, "make_runs", lambda scenarios, _: [*map(made, scenarios)])
    figures = emulated.permutation(Setting(2, tmp_path, lambda _: None))
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
