"""Every figure of the paper is well formed, and `testbed figures` judges runs as it says."""

from math import inf
from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.paper.figure import at_least, at_most, between, most_typical, repeated
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
    assert made.scenario.duration <= (45 if made.simulated else 15) * 10**9
    assert made.finished() is None


def test_each_seed_has_a_directory_of_its_own(tmp_path: Path) -> None:
    first, second = (
        order(VARIANTS["lossy-ev"], tmp_path, simulate=True, seed=seed) for seed in (1, 2)
    )
    assert first.results == tmp_path
    assert second.results == tmp_path / "seed-2"
    assert (first.scenario.seed, second.scenario.seed) == (1, 2)
    assert (first.name, second.name) == ("lossy-ev", "lossy-ev, seed 2")


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


@pytest.mark.parametrize("values", [(0.97,), (0.99, 0.95, 0.97)])
def test_the_median_of_the_seeds_is_judged(values: tuple[float, ...]) -> None:
    (check,) = repeated([(at_least("share", value, 0.96),) for value in values])
    assert check.holds
    assert check.measured.startswith("97.0%")
    assert ("95.0% to 99.0%" in check.measured) is (len(values) > 1)
    (missed,) = repeated([(at_least("share", value, 0.98),) for value in values])
    assert not missed.holds


def test_the_seed_in_the_middle_of_most_checks_is_drawn() -> None:
    found = [
        (at_least("a", a, 0.0), at_most("b", b, 9.0)) for a, b in ((0.3, 5), (0.2, 3), (0.1, 4))
    ]
    assert most_typical(found) == 1
    assert most_typical(found[:1]) == 0


def test_a_bound_reads_as_it_is_judged() -> None:
    exact = between("EVs", 2, 2, 2, "{:.0f}")
    assert (exact.bound, exact.holds) == ("2", True)
    assert between("EVs", 2, 1, 3, "{:.0f}").bound == "1 to 3"
    never = at_most("until it is out", inf, 4.0, "{:.1f} RTT")
    assert (never.measured, never.holds) == ("inf RTT", False)
