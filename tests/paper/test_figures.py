"""Every figure of the paper is well formed, and `testbed figures` judges runs as it says."""

from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.paper.registry import FIGURES
from testbed.paper.reproduction import chosen, reproduce
from testbed.paper.runs import PAPER_SCENARIOS, order

VARIANTS = {variant.name: variant for figure in FIGURES for variant in figure.variants}


def test_every_figure_is_there_once() -> None:
    numbers = [figure.number for figure in FIGURES]
    assert len(set(numbers)) == len(numbers)


def test_a_variants_name_means_one_run() -> None:
    for figure in FIGURES:
        for variant in figure.variants:
            assert VARIANTS[variant.name] == variant


@pytest.mark.parametrize("name", VARIANTS)
def test_every_run_is_a_valid_scenario_of_its_name(name: str, tmp_path: Path) -> None:
    made = order(VARIANTS[name], tmp_path, simulate=False)
    assert made.scenario.name == name
    assert made.scenario.duration <= 15 * 10**9
    assert made.finished() is None


def test_no_scenario_is_left_over() -> None:
    used = {variant.scenario for variant in VARIANTS.values()}
    assert {file.stem for file in PAPER_SCENARIOS.glob("*.yaml")} == used


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(InputError, match="expected one of"):
        chosen(["9z"])


def test_a_figure_is_simulated_judged_drawn_and_kept(tmp_path: Path) -> None:
    figures = chosen(["12"])
    told: list[str] = []
    for _ in range(2):
        (outcome,) = reproduce(
            figures, tmp_path, lambda what, _: told.append(what), simulate=True, again=False
        )
        assert outcome.holds == "yes"
    assert sum("lossy-ev" in what for what in told) == 1  # the second time it was there
    assert "lossy-ev" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "figures" / "figure-12-13.png").is_file()
