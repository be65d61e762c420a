"""What it takes for a figure to hold, and what is said of one that cannot be measured."""

import pytest

from testbed.studies.bench.measure import Measurement, at_least, at_most, not_measured


@pytest.mark.parametrize(
    ("figure", "holds", "target"),
    [
        (at_most("a", "s", [1, 2, 9], 2), True, "≤ 2 s"),
        (at_most("a", "s", [1, 3, 9], 2), False, "≤ 2 s"),
        (at_least("a", "", [0, 5, 5], 5), True, "≥ 5"),
        (at_least("a", "", [4, 4, 5], 5), False, "≥ 5"),
        (at_most("a", "B", [0, 0, 1], 0, every=True), False, "≤ 0 B, each"),
        (at_most("a", "B", [0, 0, 0], 0, every=True), True, "≤ 0 B, each"),
        (at_least("a", "", [0.96, 1, 1], 0.97, every=True), False, "≥ 0.97, each"),
        (Measurement("a", "s", (7.0,)), True, ""),
    ],
)
def test_the_median_holds_or_every_sample_where_that_must_be(
    figure: Measurement, holds: bool, target: str
) -> None:
    assert (figure.holds, figure.target) == (holds, target)


def test_what_was_not_measured_does_not_hold_and_has_no_median() -> None:
    figure = not_measured(at_least("ours", "", [], 10), "no mnexec: apt install mininet")
    assert not figure.holds
    assert figure.median is None
    assert figure.target == "≥ 10"
    told = figure.to_json()
    assert (told["median"], told["holds"]) == (None, False)
    assert told["missing"] == "no mnexec: apt install mininet"
