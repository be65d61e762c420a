"""When being watched counts as changing nothing, and what is said of pairs of runs."""

import pytest

from testbed.model.run_files.health import PAGE_SERVER, WATCHER
from testbed.studies.bench.watched import Pair, WatchedRun, figures_of, is_same


@pytest.mark.parametrize(
    ("low", "high", "same"),
    [(-9, 8, True), (0.1, 2.9, True), (-2.9, -0.1, True), (0.1, 3.1, False), (-5, -0.1, False)],
)
def test_a_difference_counts_unless_it_may_be_none_or_is_small(
    low: float, high: float, same: bool
) -> None:
    assert is_same(low, high) is same


def _pairs(longer: float, verdict: str = "trusted", unread: int = 0, cpu: float = 1) -> list[Pair]:
    """Twelve pairs; being watched makes detection longer by this factor."""
    usual = {"stall": 2.0, "goodput": 0.99}
    used = {PAGE_SERVER: cpu, WATCHER: 1.0}
    return [
        (
            WatchedRun("trusted", usual | {"detection": 1.0 + n / 100}, {}),
            WatchedRun(
                verdict, usual | {"detection": longer * (1.0 + n / 100)}, used, unread=unread
            ),
        )
        for n in range(12)
    ]


def _missed(pairs: list[Pair]) -> set[str]:
    return {figure.name for figure in figures_of(pairs) if figure.target and not figure.holds}


def test_each_effect_of_being_watched_is_told() -> None:
    assert _missed(_pairs(1.02)) == set()
    assert _missed(_pairs(1.04)) == {"detection: interval has 0, or within 3%"}
    assert _missed(_pairs(1, verdict="degraded")) == {"same verdict as without clients"}
    assert _missed(_pairs(1, unread=1)) == {"records that a client missed"}
    assert _missed(_pairs(1, cpu=3.1)) == {"page server, of a core"}


def test_what_few_pairs_or_missing_figures_cannot_say_is_said() -> None:
    few = {figure.name: figure for figure in figures_of(_pairs(1)[:3])}
    stall = few["stall: interval has 0, or within 3%"]
    assert stall.missing == "3 pairs; an interval needs 6"
    pairs = _pairs(1)
    pairs[0][1].figures.pop("stall")
    some = {figure.name: figure for figure in figures_of(pairs)}
    assert some["stall: interval has 0, or within 3%"].missing == "measured in 11 of 12 pairs only"
