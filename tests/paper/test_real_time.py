"""Figures tell of runs as they would be at full speed, however these were slowed down."""

from types import SimpleNamespace

import pytest

from testbed.results.records import OPERATIONS
from testbed.results.report.figures.style import new_figure
from testbed.runs.result import Result
from testbed.studies.paper.experiments.drawing import shade_faults
from testbed.studies.paper.planning import select_figures

from .made_up import SECONDS, run, steps


def _cut(number: int, start: float, healed: float | None) -> SimpleNamespace:
    target = f"p{number}_t0_0--p{number}_t1_0"
    return SimpleNamespace(kind="cut", target=target, effective_s=start, healed_s=healed)


def _job(dilation: float, *faults: object) -> Result:
    """Training steps, each of 100 us at full speed."""
    table = steps(lambda _: dilation / 10_000)
    return run(faults=faults, tables={OPERATIONS: table}, dilation=dilation)


def test_a_job_is_held_against_the_undisturbed_one_at_full_speed() -> None:
    (figure,) = select_figures(["6-7"])
    calm, flapping = (variant.name for variant in figure.variants)
    for dilation in (10_000, 15_000):
        flap = _cut(0, 3.0 * dilation / 10_000, 6.0 * dilation / 10_000)
        runs = {calm: _job(10_000), flapping: _job(dilation, flap)}
        during, after, *_ = (check.value for check in figure.measure(runs))
        assert during == pytest.approx(1.0)
        assert after == pytest.approx(1.0)


def test_times_in_which_faults_overlap_are_shaded_once() -> None:
    faults = (_cut(0, 1.0, 5.0), _cut(1, 2.0, 6.0), _cut(2, 8.0, None))
    axes = new_figure(2.0).subplots()
    shade_faults(axes, run(faults=faults, dilation=20_000), named=False)
    shaded = [(patch.get_x(), patch.get_width()) for patch in axes.patches]  # type: ignore[attr-defined]
    assert shaded == [pytest.approx((50, 250)), pytest.approx((400, 50 * SECONDS - 400))]
    assert [line.get_xdata()[0] for line in axes.lines] == [50, 100, 400]  # type: ignore[index]


@pytest.mark.parametrize(
    ("count", "labels"),
    [
        (2, ["cut p0_t0_0--p0_t1_0", "cut p1_t0_0--p1_t1_0"]),
        (3, ["cut, 3 times"]),
    ],
)
def test_few_faults_are_named_and_many_are_counted(count: int, labels: list[str]) -> None:
    axes = new_figure(2.0).subplots()
    shade_faults(axes, run(faults=[_cut(i, 1.0 + i, 9.0) for i in range(count)]))
    assert [text.get_text() for text in axes.texts] == labels
