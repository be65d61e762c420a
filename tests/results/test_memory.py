"""Growth of processes over a run, from what health.jsonl has of them."""

import json
from pathlib import Path

import pytest

from testbed.model.scenario import Expect
from testbed.model.summary import Summary
from testbed.results.analysis.metrics import evaluate, flow_tables, summarise
from testbed.results.run_data import load_run

from .synthetic import Plan, generate, ns

MIB = 1 << 20


def summary_of(directory: Path, memory: dict[str, list[int]]) -> Summary:
    """A run of 16 s in which processes had so much memory, second by second."""
    generate(directory, Plan(duration=16.0, failures=()))
    with (directory / "health.jsonl").open("a") as file:
        for second in range(16):
            resident = {name: sizes[second] for name, sizes in memory.items() if sizes[second]}
            line = {"t_ns": ns(second + 0.5), "process": "machine", "resident_bytes": resident}
            file.write(json.dumps(line) + "\n")
    data = load_run(directory)
    return summarise(data, flow_tables(data))


def test_growth_is_of_the_last_quarter_over_the_second(tmp_path: Path) -> None:
    memory = {
        "flat": [10 * MIB] * 16,
        "warming": [MIB] * 4 + [20 * MIB] * 12,
        "leaking": [(10 + second) * MIB for second in range(16)],
        "killed": [MIB] * 8 + [0] * 8,
    }
    summary = summary_of(tmp_path / "run", memory)
    growth = {process.process: process.growth for process in summary.memory}
    assert growth["flat"] == growth["warming"] == 0
    assert growth["leaking"] == pytest.approx(23.5 / 15.5 - 1, abs=1e-6)
    assert "killed" not in growth
    expected = Expect.model_validate({"processes": {"growth": {"at_most": 0.05}}})
    (expectation,) = evaluate(summary, expected)
    assert (expectation.holds, expectation.where) == (False, "leaking")


def test_a_run_without_samples_shows_nothing(tmp_path: Path) -> None:
    summary = summary_of(tmp_path / "run", {})
    expected = Expect.model_validate({"processes": {"growth": {"at_most": 0.05}}})
    (expectation,) = evaluate(summary, expected)
    assert not expectation.holds
    assert evaluate(summary.model_copy(update={"simulated": True}), expected) == ()
