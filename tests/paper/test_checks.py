"""Checks keep their bounds, with several seeds by the median; comparisons tell what these can."""

from math import inf

import pytest

from testbed.studies.paper.figure import (
    RATIO,
    at_least,
    at_most,
    between,
    costs_less,
    costs_no_more,
    most_typical,
    relative,
    repeated,
)


@pytest.mark.parametrize("values", [(0.97,), (0.99, 0.95, 0.97)])
def test_the_median_of_the_seeds_is_judged(values: tuple[float, ...]) -> None:
    (check,) = repeated([(at_least("share", value, 0.96),) for value in values])
    assert check.holds
    assert check.measured.startswith("97.0%")
    assert ("95.0% to 99.0%" in check.measured) is (len(values) > 1)
    (missed,) = repeated([(at_least("share", value, 0.98),) for value in values])
    assert not missed.holds


@pytest.mark.parametrize(
    ("values", "measured"),
    [
        ((1.31, 1.32, 1.33), "1.3 RTT"),
        ((1.3, 1.3, 1.5), "1.3 RTT (1.3 to 1.5 RTT)"),
        ((1.3, 1.4, inf), "1.4 RTT (1.3 RTT to never), 2 of 3 seeds within"),
    ],
)
def test_a_range_is_shown_only_where_it_says_more(values: tuple[float, ...], measured: str) -> None:
    (check,) = repeated([(at_most("stall", value, 2.0, "{:.1f} RTT"),) for value in values])
    assert check.measured == measured


@pytest.mark.parametrize(
    ("ratios", "measured"),
    [
        ((0.97, 1.05, 1.1), "1.05 (0.97 to 1.10), undecided"),
        ((1.01, 1.05, 1.1), "1.05 (1.01 to 1.10)"),
        ((0.97,), "0.97"),
    ],
)
def test_a_ratio_that_is_on_both_sides_of_1_is_undecided(
    ratios: tuple[float, ...], measured: str
) -> None:
    (check,) = repeated([(at_least("one over the other", ratio, 1.0, RATIO),) for ratio in ratios])
    assert check.measured == measured
    (share,) = repeated([(at_least("share", ratio, 1.0),) for ratio in ratios])
    assert "undecided" not in share.measured


@pytest.mark.parametrize(
    ("other", "holds", "equal"),
    [
        ((2.0, 3.0, 4.0), True, ""),
        ((1.3, 3.0, 4.0), False, "equal: 1.3 to 4 beside 1.2 to 1.4 RTT"),
        ((1.405, 3.0, 4.0), False, "equal: 1.41 to 4 beside 1.2 to 1.4 RTT"),
        ((0.5, 0.6, 0.7), False, ""),
        ((inf, inf, inf), True, ""),
    ],
)
def test_ahead_is_who_is_so_with_every_seed(
    other: tuple[float, ...], holds: bool, equal: str
) -> None:
    check = costs_less("stall", (1.2, 1.4, 1.3), other, unit="RTT")
    assert (check.holds, check.equal) == (holds, equal)
    assert check.value == pytest.approx(sorted(other)[1] / 1.3)


def test_what_costs_nothing_at_all_is_equal_to_what_costs_next_to_nothing() -> None:
    check = costs_less("deficit", (0.0, 0.0), (0.005, 0.008), unit="RTT")
    assert (check.holds, check.values) == (False, (1.0, 1.0))


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
    assert (never.measured, never.holds) == ("never", False)


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        ((2.0, 3.0, 4.0), True),
        ((1.0, 1.3, 1.5), True),  # equal: no worse than MRC's own worst seed
        ((1.195, 1.195, 1.195), True),  # a difference that nothing tells apart
        ((0.5, 1.1, 4.0), False),
    ],
)
def test_not_behind_is_who_is_equal_at_its_best(other: tuple[float, ...], holds: bool) -> None:
    check = costs_no_more("stall", (1.2, 1.4, 1.3), other)
    assert check.holds is holds
    assert check.values == relative((1.2, 1.4, 1.3), other)
    assert check.value == pytest.approx(sorted(other)[1] / 1.3)


def test_nothing_is_next_to_nothing_where_it_is_divided_by() -> None:
    assert relative((0.0, 0.0, 0.0), (0.0, 0.005, 0.5)) == (1.0, 1.0, 50.0)
