"""Rows hold for numbers as the paper's, do not where one is wrong, and only of trusted runs."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import RunFailedError
from testbed.model.summary import State
from testbed.studies.paper.figure import NO_BOUND
from testbed.studies.paper.outcome import Answer, CheckOutcome, FigureOutcome, FigureRun
from testbed.studies.paper.planning import FIGURES, select_figures

from .cases import CASES, Runs
from .made_up_figures import transceiver_flaps_runs

WRONG = [(number, *wrong) for number, case in CASES.items() for wrong in case.wrong]


def _judged(number: str, runs: Runs) -> FigureOutcome:
    """What becomes of a figure of these runs, which are trusted."""
    (figure,) = select_figures([number])
    assert {*runs} == {variant.name for variant in figure.variants}
    made = tuple(
        FigureRun(
            name=name,
            directory=Path(),
            seed=1,
            dilation=run.summary.dilation,
            verdict=run.summary.verdict,
            reasons=(),
            attempts=1,
            expected_load=None,
        )
        for name, run in runs.items()
    )
    said = figure.measure(runs)
    checks = tuple(CheckOutcome.model_validate(check, from_attributes=True) for check in said)
    return FigureOutcome(number=number, form="simulated", runs=made, checks=checks)


def _but(outcome: FigureOutcome, name: str, state: State) -> FigureOutcome:
    """The same, but that one of its runs is in this state."""
    runs = (
        run.model_copy(update={"verdict": state}) if run.name == name else run
        for run in outcome.runs
    )
    return outcome.model_copy(update={"runs": tuple(runs)})


def test_every_figure_is_judged() -> None:
    assert {*CASES} == {figure.number for figure in FIGURES}


@pytest.mark.parametrize("number", CASES)
def test_what_is_as_the_paper_saw_it_holds(number: str) -> None:
    outcome = _judged(number, CASES[number].runs())
    assert outcome.reasons == ()
    assert outcome.holds == "yes"


def test_an_incast_is_fair_that_is_uneven_only_in_its_first_bursts_and_for_a_moment() -> None:
    moments = ((0, 0.01), (2, 1 / 7), (12, 0.1))
    assert _judged("18", CASES["18"].runs(smallest=moments)).holds == "yes"


@pytest.mark.parametrize(("number", "claim", "wrong"), WRONG)
def test_a_claim_that_fails_makes_the_row_a_no(
    number: str, claim: str, wrong: Mapping[str, Any]
) -> None:
    """That claim fails, and no other."""
    outcome = _judged(number, CASES[number].runs(**wrong))
    failed = {check.what for check in outcome.checks if not check.holds}
    assert failed == {one.what for one in outcome.checks if re.search(claim, one.what)} != set()
    assert outcome.holds == "no"
    assert all(any(what in line for line in outcome.reasons) for what in failed)


@pytest.mark.parametrize("number", CASES)
def test_every_claim_of_a_row_can_fail(number: str) -> None:
    case = CASES[number]
    outcomes = [_judged(number, case.runs(**wrong)) for _, wrong in case.wrong]
    failed = {check.what for outcome in outcomes for check in outcome.checks if not check.holds}
    bounded = [check for check in _judged(number, case.runs()).checks if check.bound != NO_BOUND]
    assert failed == {check.what for check in bounded}


@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize(
    ("state", "good", "bad"),
    [("invalid", "not trusted", "not trusted"), ("degraded", "yes", "not trusted")],
)
def test_a_row_is_not_trusted_where_one_of_its_runs_is_not(
    number: str, state: State, good: Answer, bad: Answer
) -> None:
    case = CASES[number]
    _, wrong = case.wrong[0]
    holding, failing = _judged(number, case.runs()), _judged(number, case.runs(**wrong))
    for run in holding.runs:
        assert _but(holding, run.name, state).holds == good
        assert _but(failing, run.name, state).holds == bad


def test_runs_of_unlike_machines_are_not_pooled_silently() -> None:
    outcome = _judged("9a", CASES["9a"].runs())
    kinds = ("2 x Xeon, kernel 6.1", "2 x Xeon, kernel 6.12")

    def made_on(*machines: str) -> str:
        runs = [
            run.model_copy(update={"machine": machines[number % len(machines)]})
            for number, run in enumerate([*outcome.runs, *outcome.runs])
        ]
        return outcome.model_copy(update={"runs": tuple(runs)}).trust_note

    assert made_on("") == ""
    assert made_on(kinds[0]) == ""
    said = made_on(*kinds)
    assert said.startswith("runs of unlike machines: ")
    assert all(f" on {kind}" in said for kind in kinds)


def test_a_job_that_finishes_no_step_after_its_fault_shows_nothing() -> None:
    (figure,) = select_figures(["6-7"])
    with pytest.raises(RunFailedError, match="no training step was finished after the fault"):
        figure.measure(transceiver_flaps_runs(during_s=100.0))
