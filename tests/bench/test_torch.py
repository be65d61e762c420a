"""PyTorch's all_reduce is compared with the workload of the same size, hosts and dilation."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from testbed.model.scenario import Scenario
from testbed.model.workload import AllReduce, Program
from testbed.results.records import OPERATIONS
from testbed.studies.bench import emulated
from testbed.studies.bench.measure import Setting
from tests.planted import Planted

HERE = "/bin/true"
"""It imports whatever it is told to."""


def test_the_workload_is_that_of_the_ranks() -> None:
    ranks, workload = emulated.scenarios("/usr/bin/python3")
    assert ranks.topology == workload.topology
    assert isinstance(ranks.workload, Program)
    assert isinstance(workload.workload, AllReduce)
    assert ranks.workload.hosts == workload.workload.hosts
    assert str(workload.workload.size) == ranks.workload.command[-1]
    assert not ranks.timeline


@pytest.mark.parametrize(
    ("lasts", "starts", "misses"), [(2.2, 29.0, 0), (2.3, 29.0, 1), (2.2, 31.0, 1)]
)
def test_start_and_rate_are_judged(
    lasts: float, starts: float, misses: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made(scenario: Scenario) -> SimpleNamespace:
        takes, start = (2.0, 0.0) if scenario.name == "allreduce" else (lasts, starts)
        begins = [start, start + takes]
        table = pl.DataFrame({"start": begins, "end": [at + takes for at in begins]})
        data = SimpleNamespace(tables={OPERATIONS: table})
        return SimpleNamespace(run=SimpleNamespace(data=data), trusted=True)

    monkeypatch.setenv("TORCH_PYTHON", HERE)
    monkeypatch.setattr(emulated, "completed", lambda table: table)
    monkeypatch.setattr(emulated, "make_runs", lambda scenarios, _: [*map(made, scenarios)])
    figures = emulated.torch(Setting(2, tmp_path, lambda _: None))
    assert sum(not figure.holds for figure in figures) == misses


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python"])
def test_without_torch_it_says_what_to_do(
    python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_PYTHON", python)
    figures = emulated.torch(Setting(2, tmp_path, lambda _: None))
    assert all(python in figure.missing and "TORCH_PYTHON=" in figure.missing for figure in figures)


def test_a_python_is_tried_outside_the_current_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its path may be relative, and `import torch` imports much of Python's library."""
    planted = Planted(tmp_path)
    (planted.directory / "torch.py").write_text("import json\n", encoding="utf-8")
    monkeypatch.chdir(planted.directory)
    monkeypatch.setenv("TORCH_PYTHON", os.path.relpath(sys.executable))
    emulated.torch(Setting(2, tmp_path, lambda _: None))
    assert not planted.executed
