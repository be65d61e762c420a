"""Intervals of medians: right where the answer is known, silent where there is too little."""

import random

from hypothesis import given
from hypothesis import strategies as st

from testbed.results.estimates import difference, estimate

_samples = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30)


@given(_samples)
def test_an_interval_holds_its_median_and_lies_within_the_samples(samples: list[float]) -> None:
    found = estimate(samples)
    assert found.low is not None
    assert found.high is not None
    assert min(samples) <= found.low <= found.high <= max(samples)
    assert found == estimate(samples)


def test_too_few_samples_have_no_interval() -> None:
    found = estimate([1.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, None, None, 2)
    assert not difference([1.0, 2.0], [5.0, 6.0]).differs


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    """Of 200 series of 15 normal samples, with room for the bootstrap's own error."""
    chooser = random.Random(1)
    covered = 0
    for _ in range(200):
        found = estimate([chooser.gauss(10, 2) for _ in range(15)])
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 10 <= found.high
    assert 0.88 <= covered / 200 <= 1.0


def test_groups_that_differ_are_told_from_those_that_do_not() -> None:
    chooser = random.Random(2)
    one = [chooser.gauss(10, 1) for _ in range(20)]
    same = [chooser.gauss(10, 1) for _ in range(20)]
    more = [chooser.gauss(14, 1) for _ in range(20)]
    assert difference(more, one).differs
    assert difference(more, one).median > 3
    assert not difference(same, one).differs
