"""Medians of repeats with confidence intervals from ranks, for any distribution of the samples.

Where there are too few samples for a confidence interval, their range takes its place, and is
called a range. A sample may be NEVER, which is worse than any number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, comb, isclose, isfinite, isinf

import numpy as np
from numpy.typing import NDArray

from testbed.model.summary.unit import NEVER

CONFIDENCE = 0.95
"""The least confidence. Ranks come in steps: 6 samples have 96.9%, 15 have 96.5%."""

MIN_SAMPLES = 6
"""The fewest samples with an interval: the median lies beyond all of them once in 2^5 times."""


_ROUNDED = 1e-12
"""Two numbers that differ by this share of them differ by rounding only."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of some samples, or of the difference between two groups of samples.

    Attributes:
        median: the estimate.
        low: the lower end of its confidence interval; of too few samples their minimum.
        high: the upper end; of too few samples their maximum.
        count: the number of samples; for a difference of the smaller group.
    """

    median: float
    low: float
    high: float
    count: int

    @property
    def confident(self) -> bool:
        """Whether `low` to `high` is a confidence interval, and not the range of a few samples."""
        return self.count >= MIN_SAMPLES

    @property
    def differs(self) -> bool:
        """Whether the confidence interval of a difference excludes zero.

        This is the exact rank test of Mann and Whitney, two-sided.
        """
        return self.confident and not self.low <= 0 <= self.high


def estimate(samples: Sequence[float]) -> Estimate:
    """The median of one or more samples, with the confidence interval of the sign test."""
    count = len(samples)
    return _estimate(samples, count, _below(count))


def bands(curves: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """For curves of repeats, a row each: `low`, `median` and `high` as `estimate` has them."""
    ordered, rank = np.sort(curves, axis=0), _rank(len(curves), _below(len(curves)))
    return ordered[rank - 1], np.median(curves, axis=0), ordered[-rank]


def difference(samples: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The difference of two independent groups of samples.

    It is the median of the differences of all pairs, with the interval that belongs to the rank
    test (Hodges and Lehmann 1963). Two samples that are both NEVER do not differ.
    """
    return _of_pairs(_minus, samples, baseline)


def ratio(samples: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The ratio of two independent groups of samples, none of which is negative.

    As `difference`, of the quotients of all pairs: both groups vary, and both count. Something over
    0 is NEVER; two samples that are both 0, or both NEVER, have the ratio 1.
    """
    return _of_pairs(_over, samples, baseline)


def _of_pairs(
    of: Callable[[float, float], float], samples: Sequence[float], baseline: Sequence[float]
) -> Estimate:
    pairs = [of(sample, other) for sample in samples for other in baseline]
    count = min(len(samples), len(baseline))
    return _estimate(pairs, count, _orders(len(samples), len(baseline)))


def interval_meaning(counts: Sequence[int]) -> str:
    """In words what the intervals of groups are, given the groups' numbers of samples."""
    few = sorted({count for count in counts if 1 < count < MIN_SAMPLES})
    enough = f"{CONFIDENCE:.0%} confidence interval" if max(counts) >= MIN_SAMPLES else ""
    ranges = f"range of {' or '.join(map(str, few))}" if few else ""
    return ", or ".join(filter(None, (enough, ranges)))


def _estimate(values: Sequence[float], count: int, ways: Sequence[int]) -> Estimate:
    """The median of values with the interval between the k-th from below and from above.

    Args:
        values: samples, or differences of pairs.
        count: the number of samples.
        ways: for k = 0, 1, ...: in how many of all equally likely cases k of the values are below
            the true value.
    """
    ordered, rank = sorted(values), _rank(count, ways)
    return Estimate(_median(ordered), float(ordered[rank - 1]), float(ordered[-rank]), count)


def _below(count: int) -> list[int]:
    """For k = 0, 1, ...: in how many cases k of the samples are below the median."""
    return [comb(count, number) for number in range(count + 1)]


def _rank(count: int, ways: Sequence[int]) -> int:
    """Which value from below and from above ends the interval (see `_estimate`)."""
    rank = 1
    if count >= MIN_SAMPLES:
        most = (1 - CONFIDENCE) / 2 * sum(ways)
        while sum(ways[: rank + 1]) <= most:
            rank += 1
    return rank


def _median(ordered: Sequence[float]) -> float:
    """The median; between a change to NEVER and one from it, 0: neither prevails."""
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return 0.0 if low == -high else (low + high) / 2


def _minus(sample: float, other: float) -> float:
    """A difference; of equal numbers that were rounded differently, and of two NEVER, 0."""
    return 0.0 if isclose(sample, other, rel_tol=_ROUNDED) else sample - other


def _over(sample: float, other: float) -> float:
    """A quotient; of equal numbers, also of two zeros and of two NEVER, 1."""
    if isclose(sample, other, rel_tol=_ROUNDED):
        return 1.0
    return sample / other if other else NEVER


def _orders(first: int, second: int) -> list[int]:
    """For k = 0, 1, ...: in how many orders of two groups k pairs have the first group's in front.

    These are the coefficients of the Gaussian binomial (Mann and Whitney 1947).

    Args:
        first: the size of the first group.
        second: the size of the second group.
    """
    pairs = first * second
    ways = [1] + [0] * pairs
    for member in range(1, first + 1):
        for inverted in range(pairs, second + member - 1, -1):
            ways[inverted] -= ways[inverted - second - member]
        for inverted in range(member, pairs + 1):
            ways[inverted] += ways[inverted - member]
    return ways


class Percentiles:
    """Percentiles of some times, of which any may be NEVER, which is more than any number.

    Attributes:
        count: how many there are.
        median: in seconds.
        p99: in seconds.
        p999: in seconds, the 99.9th percentile.
        max: in seconds.
    """

    def __init__(self, seconds: NDArray[np.float64]) -> None:
        """Take one time or more, in seconds."""
        self.count = seconds.size
        ordered = np.sort(seconds)
        self.median, self.p99, self.p999 = _percentiles(ordered, [50, 99, 99.9])
        self.max = float(ordered[-1])


def _percentiles(ordered: NDArray[np.float64], percents: Sequence[float]) -> list[float]:
    """Of ascending values as NumPy interpolates by default; between a number and NEVER is NEVER."""
    if isfinite(ordered[-1]):
        # NumPy's own function takes longer than all else that is measured of a flow.
        return [_interpolated(ordered, (ordered.size - 1) * (p / 100)) for p in percents]
    places = [(ordered.size - 1) * percent / 100 for percent in percents]
    return [
        NEVER if isinf(ordered[ceil(at)]) else float(np.interp(at, range(ordered.size), ordered))
        for at in places
    ]


def _interpolated(ordered: NDArray[np.float64], place: float) -> float:
    """The value between two of some ascending ones, from the nearer one, as NumPy rounds it."""
    below, above = float(ordered[int(place)]), float(ordered[ceil(place)])
    share = place - int(place)
    step = above - below
    return below + step * share if 2 * share < 1 else above - step * (1 - share)
