"""What is emulated of every figure: no more than two cores make in half an hour, none too fast."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.results.analysis.verdict import NOT_DELIVERED, NOTHING_FINISHED
from testbed.results.report.figures.style import style
from testbed.runs.job import Form
from testbed.runs.many import REPEAT_S, estimate_s
from testbed.runs.process import LocalExecutor
from testbed.studies.paper.experiments.collectives import SIZES_MIB, SMALL_MIB
from testbed.studies.paper.experiments.drawing import bus_gbps
from testbed.studies.paper.figure import PaperFigure
from testbed.studies.paper.outcome import Answer, FigureOutcome
from testbed.studies.paper.planning import (
    FIGURES,
    MAX_LOAD,
    forms_of,
    plan,
    plan_variant,
    select_figures,
)
from testbed.studies.paper.report import ReportRow

from .made_up import SECONDS, collective

TWO_CORES = (
    Capacity(endpoint_ns=209_000, link_ns=30_000, cpus=2),
    Capacity(endpoint_ns=245_000, link_ns=37_000, cpus=2),
)
"""329 and 393 us of CPU for a packet between racks: a virtual machine at its best and at its worst
(`testbed doctor --measure`)."""


@pytest.mark.parametrize("machine", TWO_CORES, ids=["at its best", "at its worst"])
def test_the_emulated_set_is_made_in_half_an_hour(machine: Capacity, tmp_path: Path) -> None:
    planned = plan(select_figures([]), tmp_path, ("emulated",), machine=machine)
    assert {one.job.form for one in planned.due} == {"emulated"}
    assert (
        estimate_s(planned.due, LocalExecutor(tmp_path))["emulated"] <= 0.9 * REPEAT_S
    )  # some are made again
    assert all(one.load is not None and one.load <= MAX_LOAD for one in planned.due)


ONLY_SIMULATED = {"22", "text-ecmp", "16x64", "17x64", "scale"}
"""Of RoCE with priority flow control alone, of switches that hash, or of many hosts."""


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_every_figure_is_emulated_but_a_few(figure: PaperFigure) -> None:
    expected: Form = "simulated" if figure.number in ONLY_SIMULATED else "emulated"
    assert forms_of(figure, ("emulated",)) == (expected,)


def test_pause_is_the_simulators_only() -> None:
    (incast,) = select_figures(["18"])
    for variant in incast.variants:
        emulated, simulated = (
            plan_variant(variant, form).scenario for form in ("emulated", "simulated")
        )
        assert emulated.topology.pause is None
        assert (simulated.topology.pause is None) is (variant.name == "incast-mrc")
        assert emulated.topology.queue == simulated.topology.queue
        assert emulated.workload == simulated.workload


def test_a_figure_may_be_emulated_with_a_seed_of_its_own() -> None:
    (incast,) = select_figures(["18"])
    (own,) = incast.emulated_seeds
    assert [*incast.seeds_in("emulated", 1)] == [own]
    assert [*incast.seeds_in("emulated", 6)] == [1, 2, 3, 4, 5, 6]
    assert [*incast.seeds_in("simulated", 1)] == [1, 2, 3, 4, 5]


def test_some_runs_are_emulated_only_with_several_seeds(tmp_path: Path) -> None:
    figures = select_figures(["12-13"])
    (lossy,) = figures
    one, three = (
        plan(figures, tmp_path, ("emulated",), seeds={"emulated": seeds, "simulated": seeds})
        for seeds in (1, 3)
    )
    assert [run.job.name for run in one.due] == ["lossy-ev"]
    assert len(three.due) == 3 * len(lossy.variants)
    assert lossy.variants_in("simulated", 1) == lossy.variants


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_every_figure_is_made_with_more_seeds_if_asked(figure: PaperFigure) -> None:
    for form in forms_of(figure, ("emulated", "simulated")):
        assert [*figure.seeds_in(form, 7)] == [1, 2, 3, 4, 5, 6, 7]


def test_what_never_finished_is_rated_over_all_of_its_run() -> None:
    """1 Mbit/s until the last arrival, a quarter of the run from its beginning."""
    assert bus_gbps(collective(0.5)) == pytest.approx(200)
    assert bus_gbps(collective(0.0, until_s=SECONDS / 4)) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("variant", "placed_bps", "expected_gbps"),
    [
        ("alltoall-64-roce-1-loss-0.001", 1e6, 10),
        ("alltoall-64-roce-1-loss-0.001", 36e6, 44),
        ("alltoall-16m-roce-16-loss-0.001", 4e6, 40),
        ("alltoall-16m-roce-16-loss-0.001", 36e6, 78),
    ],
)
def test_an_all_to_all_that_some_hosts_never_finish_is_at_most_one_in_the_run(
    variant: str, placed_bps: float, expected_gbps: float
) -> None:
    """8 and 16 MiB in 15 s are 44 and 78 Gb/s at full speed, however much other hosts place."""
    lossy = collective(0.0, variant=variant, placed_bps=placed_bps)
    assert bus_gbps(lossy) == pytest.approx(expected_gbps, rel=0.01)


@pytest.mark.parametrize("number", ["16", "17"])
@pytest.mark.parametrize("form", ["emulated", "simulated"])
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_sizes_that_were_run_are_judged_and_drawn(number: str, form: Form, seeds: int) -> None:
    (figure,) = select_figures([number])
    runs = {
        variant.name: collective(0.0 if variant.may_stall else 0.5)
        for variant in figure.variants_in(form, seeds)
    }
    checks = figure.measure(runs)
    judged = {size for size in SIZES_MIB for check in checks if f", {size} MiB" in check.what}
    assert judged == ({SMALL_MIB} if form == "emulated" else {4, 16})
    with style():
        drawing = figure.draw(runs)
    losses = {
        variant.name.rpartition("-loss-")[2]
        for variant in figure.variants_in(form, seeds)
        if variant.may_stall
    }
    few = {"16": 1, "17": 0}[number]
    assert len(losses) == (few if form == "emulated" and seeds == 1 else 2)
    assert len(drawing.axes) == 1 + len(losses)


@pytest.mark.parametrize(
    ("reasons", "state"),
    [
        ((NOTHING_FINISHED,), "trusted"),
        ((NOT_DELIVERED, NOTHING_FINISHED), "trusted"),
        ((NOTHING_FINISHED, "the CPUs were 99% busy"), "invalid"),
        (("data did not arrive as sent: 1 bytes lost, 0 corrupted",), "invalid"),
    ],
)
def test_only_a_stall_may_be_a_finding(reasons: tuple[str, ...], state: str) -> None:
    (figure,) = select_figures(["16"])
    summary = SimpleNamespace(reasons=reasons, verdict="invalid")
    stalling = next(variant for variant in figure.variants if variant.may_stall)
    steady = next(variant for variant in figure.variants if not variant.may_stall)
    assert plan_variant(stalling, "simulated").verdict(summary) == state  # type: ignore[arg-type]
    assert plan_variant(steady, "simulated").verdict(summary) == "invalid"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("emulated", "simulated", "row"),
    [
        ("yes", "yes", "yes"),
        ("yes", "no", "no"),
        ("no", "yes", "no"),
        ("not trusted", "yes", "yes"),
        ("not trusted", "no", "no"),
        ("not trusted", "not run", "not trusted"),
        ("not run", "not run", "not run"),
    ],
)
def test_a_row_holds_where_every_trusted_form_does(
    emulated: Answer, simulated: Answer, row: Answer
) -> None:
    (figure,) = select_figures(["16"])
    answers: dict[Form, Answer] = {"emulated": emulated, "simulated": simulated}
    outcomes = {
        form: cast("FigureOutcome", SimpleNamespace(holds=answer))
        for form, answer in answers.items()
    }
    assert ReportRow(figure, outcomes, {}).holds == row
