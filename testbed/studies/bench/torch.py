"""PyTorch on the device: how soon 8 ranks have met, and all_reduce beside the workload's."""

import os
from pathlib import Path
from typing import Final

import polars as pl

from testbed import interpreter
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.results.analysis.operations import completed
from testbed.results.records import OPERATIONS
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, not_measured
from testbed.studies.bench.runs import BenchRun, make_runs, seeded

BYTES: Final = 1 << 20
LEAST: Final = 0.9
"""Of the rate of the workload `allreduce` of the same size, on the same hosts and dilation."""

MOST_START_S: Final = 30.0
DURATION: Final = "40 s"
"""A dozen of the workload's, at the dilation of `torch-training`."""


def torch(setting: Setting) -> list[Measurement]:
    """Run `examples/all_reduce.py` and the workload in turn, in the Python of `TORCH_PYTHON`."""
    python = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
    runs: list[BenchRun] = []
    missing = _why_no_torch(python)
    if not missing:
        ranks, workload = scenarios(python)
        runs = make_runs([*seeded(ranks, setting), *seeded(workload, setting)], setting)
    by_torch, by_workload = runs[: len(runs) // 2], runs[len(runs) // 2 :]
    rates = [_lasted_s(own) / _lasted_s(of) for of, own in zip(by_torch, by_workload, strict=True)]
    starts = [float(_operations(run)["start"].min()) for run in by_torch]  # type: ignore[arg-type]
    figures = [
        at_most("start of 8 ranks, until all have met", "s", starts, MOST_START_S),
        at_least("rate of all_reduce / of the workload allreduce", "", rates, LEAST),
        at_least("runs trusted", "", [run.trusted for run in runs], 1, every=True),
    ]
    return [not_measured(figure, missing) for figure in figures] if missing else figures


def scenarios(python: str) -> tuple[Scenario, Scenario]:
    """PyTorch's all_reduce, and the workload of the same size, on the same hosts and dilation."""
    ranks = load_scenario(
        "torch-training",
        settings={
            "name": "torch-all-reduce",
            "timeline": [],
            "expect": {},
            "workload.check": [],
            "workload.command": [python, "all_reduce.py", BYTES],
        },
    )
    workload = load_scenario(
        "allreduce",
        settings={
            "topology.dilation": ranks.topology.dilation,
            "workload.size": f"{BYTES} B",
            "duration": DURATION,
            "expect": {},
        },
    )
    return ranks, workload


def _why_no_torch(python: str) -> str:
    program = str(Path(python).absolute()) if os.sep in python else python
    try:
        done = interpreter.run((program, "-c", "import torch"), capture_output=True)
    except OSError as error:
        return f"{python}: {error.strerror}: TORCH_PYTHON=PYTHON"
    return f"{python} has no torch: TORCH_PYTHON=PYTHON" if done.returncode else ""


def _operations(run: BenchRun) -> pl.DataFrame:
    return completed(run.run.data.tables[OPERATIONS])


def _lasted_s(run: BenchRun) -> float:
    operations = _operations(run)
    return float((operations["end"] - operations["start"]).median())  # type: ignore[arg-type]
