"""Intervals of medians: right where the answer is known, and no confidence in few samples."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model.summary.unit import NEVER
from testbed.results.analysis.estimates import (
    CONFIDENCE,
    MIN_SAMPLES,
    Estimate,
    Percentiles,
    difference,
    estimate,
    interval_meaning,
    ratio,
)
from testbed.results.report.comparison_report import format_estimate

_samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(_samples)
def test_an_interval_holds_its_median_and_ends_at_samples(samples: list[float]) -> None:
    result = estimate(samples)
    assert result.low <= result.median <= result.high
    assert {result.low, result.high} <= {*samples}
    assert result == estimate(samples[::-1])


def test_too_few_samples_have_a_range_and_no_confidence() -> None:
    result = estimate([1.0, 3.0])
    assert (result.median, result.low, result.high, result.count) == (2.0, 1.0, 3.0, 2)
    assert not result.confident
    apart = difference([1.0] * MIN_SAMPLES, [5.0] * (MIN_SAMPLES - 1))
    assert apart.median == -4.0
    assert not apart.confident
    assert not apart.differs


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(6, 0, 5), (8, 0, 7), (9, 1, 7), (15, 3, 11), (20, 5, 14)],
)
def test_the_interval_is_that_of_the_tables_of_the_sign_test(
    count: int, low: int, high: int
) -> None:
    result = estimate([float(number) for number in range(count)])
    assert (result.low, result.high) == (low, high)


@pytest.mark.parametrize(("count", "least"), [(MIN_SAMPLES, 0.955), (15, 0.95)])
def test_the_interval_covers_the_true_median_as_often_as_it_says(count: int, least: float) -> None:
    """Of skewed samples, too; 0.969 and 0.965 are exact, with three standard errors of 4000."""
    chooser = random.Random(1)
    covered = 0
    for _ in range(4000):
        result = estimate([chooser.lognormvariate(0, 1) for _ in range(count)])
        assert result.confident
        covered += result.low <= 1 <= result.high
    assert CONFIDENCE <= least <= covered / 4000 < 0.99


@pytest.mark.parametrize("count", [6, 12])
def test_a_ratio_covers_the_true_one_as_often_as_it_says(count: int) -> None:
    """Both groups vary: the interval of one over the other's median would be too narrow."""
    random = np.random.default_rng(count)
    covered = 0
    for _ in range(400):
        samples, others = random.lognormal(size=(2, count)).tolist()
        found = ratio([2 * sample for sample in samples], others)
        covered += found.low <= 2 <= found.high
    assert covered >= 0.93 * 400


def test_differs_is_the_exact_rank_test() -> None:
    """Of all orders of 6 and 6 without a difference, at most 5% are said to differ, two-sided."""
    orders = differing = 0
    for first in combinations(range(2 * MIN_SAMPLES), MIN_SAMPLES):
        second = [rank for rank in range(2 * MIN_SAMPLES) if rank not in first]
        orders += 1
        differing += difference(first, second).differs
    assert orders == 924
    assert 0.03 < differing / orders <= 1 - CONFIDENCE


def test_groups_that_differ_are_told_from_those_that_do_not() -> None:
    chooser = random.Random(2)
    baseline = [chooser.gauss(10, 1) for _ in range(20)]
    same = [chooser.gauss(10, 1) for _ in range(20)]
    more = [chooser.gauss(14, 1) for _ in range(9)]
    assert difference(more, baseline).differs
    assert difference(more, baseline).median > 3
    assert not difference(same, baseline).differs


@given(
    finite=st.lists(st.floats(0, 1e6), max_size=30),
    never=st.integers(0, 30),
)
def test_what_never_happened_counts_in_percentiles(finite: list[float], never: int) -> None:
    if not finite and not never:
        return
    seconds = np.array(finite + [NEVER] * never)
    measured = Percentiles(seconds)
    huge = np.array(finite + [1e30] * never)
    for value, percent in ((measured.median, 50), (measured.p99, 99), (measured.p999, 99.9)):
        expected = float(np.percentile(huge, percent))
        if expected > 1e6:
            assert value == NEVER
        else:
            assert value == (expected if not never else pytest.approx(expected))
    assert measured.max == (NEVER if never else max(finite))
    assert measured.count == len(finite) + never


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "\N{EN DASH}"),
        (Estimate(2.0, 2.0, 2.0, 1), "2"),
        (Estimate(2.0, 2.0, 2.0, 3), "2"),
        (Estimate(2.0, 1.0, 3.5, 3), "2 (1 to 3.5)"),
        (Estimate(2.0, 1.0, 3.5, MIN_SAMPLES), "2 [1, 3.5]"),
    ],
)
def test_a_range_is_not_shown_as_confidence(result: Estimate | None, text: str) -> None:
    assert format_estimate(result) == text


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 1), ""),
        ((3, 3), "range of 3"),
        ((6, 10), "95% confidence interval"),
        ((6, 3, 4), "95% confidence interval, or range of 3 or 4"),
    ],
)
def test_confidence_is_spoken_of_where_there_is_any(counts: tuple[int, ...], words: str) -> None:
    assert interval_meaning(counts) == words
