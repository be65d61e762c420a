"""What a training job under a dead link is judged by, of runs that nobody made."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from testbed.model.errors import RunFailedError
from testbed.model.workload import Program
from testbed.results.records import OPERATIONS
from testbed.results.report.figures.style import style
from testbed.runs.result import Result
from testbed.studies.paper.experiments.training import FAILS_AT, TRAINING
from testbed.studies.paper.planning import FIGURES, forms_of, plan_variant, select_figures

RTT_S = 0.25
USUAL_S = 4.0
STEPS = 26
HOSTS = 8


def trained(
    directory: Path, costs: float = 0.0, weights: str = "a1", loss: float = 2.0, steps: int = STEPS
) -> Result:
    """A job whose step with the failure takes so much longer."""
    (directory / "programs").mkdir(parents=True)
    printed = [f"step {step:3}  loss {loss + 1 / (step + 1):.6f}  4.000 s" for step in range(steps)]
    log = "\n".join(["356332 parameters on 8 ranks", *printed, f"weights {weights}", ""])
    (directory / "programs/h0.log").write_text(log)
    rows, start = [], 20.0
    for step in range(steps):
        end = start + USUAL_S + (costs if step == FAILS_AT else 0.0)
        rows += [
            (start, end - host / 100, f"h{host}", "step", step, 1_400_000, HOSTS)
            for host in range(HOSTS)
        ]
        start = end
    names = ("start_t", "t", "host", "kind", "number", "bytes", "hosts")
    operations = pl.DataFrame(rows, schema=names, orient="row")
    fault = SimpleNamespace(effective_s=60.0, healed_s=80.0)
    made: Any = SimpleNamespace(
        directory=directory,
        data=SimpleNamespace(tables={OPERATIONS: operations}, base_rtt_s=RTT_S),
        summary=SimpleNamespace(faults=(fault,)),
    )
    return cast("Result", made)


def runs(directory: Path, **changes: dict[str, Any]) -> dict[str, Result]:
    costs = {"healthy": 0.0, "mrc": 0.5, "tcp": 40.0, "mptcp": 20.0}
    return {
        f"training-{name}": trained(directory / name, **({"costs": cost} | changes.get(name, {})))
        for name, cost in costs.items()
    }


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"mrc": {"costs": 0.8}}, ["MRC's slowest step"]),
        ({"mrc": {"weights": "b2"}}, ["MRC's weights at the end"]),
        ({"mrc": {"weights": ""}, "healthy": {"weights": ""}}, ["MRC's weights at the end"]),
        ({"tcp": {"costs": 2.0}}, ["steps that the failure cost, beyond MRC's: TCP"]),
        ({"mptcp": {"loss": 2.4}}, ["largest difference of a loss from MRC's: Multipath"]),
        ({"mptcp": {"steps": 25}}, ["largest difference of a loss from MRC's: Multipath"]),
    ],
)
def test_what_is_wrong_with_a_job_fails_its_check(
    changes: dict[str, dict[str, Any]], missed: Sequence[str], tmp_path: Path
) -> None:
    checks = TRAINING.measure(runs(tmp_path, **changes))
    failed = [check.what for check in checks if not check.holds]
    assert len(failed) == len(missed), failed
    for what, expected in zip(failed, missed, strict=True):
        assert what.startswith(expected)


def test_what_the_failure_cost_is_counted_in_usual_steps(tmp_path: Path) -> None:
    values = {check.what: check.value for check in TRAINING.measure(runs(tmp_path))}
    assert values["MRC's slowest step, beyond that without failure"] == pytest.approx(2.0)
    assert values["steps that the failure cost: MRC"] == pytest.approx(0.125)
    beyond = values["steps that the failure cost, beyond MRC's: TCP"]
    assert beyond == pytest.approx(10 - 0.125)


def test_a_job_that_ends_before_the_failure_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="9 steps were finished"):
        TRAINING.measure(runs(tmp_path, mrc={"steps": 9}))


def test_it_is_drawn(tmp_path: Path) -> None:
    with style():
        figure = TRAINING.draw(runs(tmp_path))
    progress, duration, loss = figure.axes
    assert [len(axes.lines) for axes in (duration, loss)] == [4, 4]
    assert progress.lines[0].get_label() == "MRC, no failure (weights a1)"


def test_it_is_made_by_its_name_only_and_all_of_its_runs_are_emulated() -> None:
    assert TRAINING not in select_figures([], large=True)
    assert TRAINING not in FIGURES
    assert select_figures(["training"]) == (TRAINING,)
    assert forms_of(TRAINING, ("simulated",)) == ("emulated",)
    programs = [plan_variant(each, "emulated").scenario.workload for each in TRAINING.variants]
    over = [
        (program.command[-1], program.env.get("TESTBED_MPTCP"))
        for program in programs
        if isinstance(program, Program)
    ]
    assert over == [("26", None), ("26", None), ("gloo", None), ("gloo", "1")]
