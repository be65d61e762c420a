"""Medians of repeats and how sure they are: from ranks alone, whatever the samples' distribution.

Of few repeats there is the range that they span, which is called that and not confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""At least. Ranks come in steps: an interval of 6 samples has 96.9%, one of 15 has 96.5%."""

MIN_SAMPLES = 6
"""The fewest with an interval: the median lies beyond all of them once in 2^5 times."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of some samples, or how much two groups of samples are apart.

    Attributes:
        median: the estimate.
        low: where its confidence interval begins; of too few samples the least of them.
        high: where it ends; of too few samples the greatest of them.
        count: how many samples there are, of the smaller group for a difference.
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
        """Of a difference: whether a confidence interval leaves out zero.

        This is the exact rank test of Mann and Whitney, two-sided.
        """
        return self.confident and not self.low <= 0 <= self.high


def estimate(samples: Sequence[float]) -> Estimate:
    """The median of one sample or more; its interval is between two of them (the sign test's)."""
    count = len(samples)
    below = [comb(count, number) for number in range(count + 1)]
    return _estimate(samples, count, below)


def difference(samples: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """How much some samples are above others; the two groups are independent.

    The median of the differences of all pairs, with the interval that goes with the rank test
    (Hodges and Lehmann 1963).
    """
    pairs = [one - other for one in samples for other in baseline]
    count = min(len(samples), len(baseline))
    return _estimate(pairs, count, _orders(len(samples), len(baseline)))


def interval_meaning(counts: Sequence[int]) -> str:
    """What the intervals of groups of so many samples are, in words.

    Confidence is spoken of only where there are enough samples for it.
    """
    few = sorted({count for count in counts if 1 < count < MIN_SAMPLES})
    enough = f"{CONFIDENCE:.0%} confidence interval" if max(counts) >= MIN_SAMPLES else ""
    ranges = f"range of {' or '.join(map(str, few))}" if few else ""
    return ", or ".join(filter(None, (enough, ranges)))


def _estimate(values: Sequence[float], count: int, ways: Sequence[int]) -> Estimate:
    """The median of values with the interval between the k-th from below and from above.

    Args:
        values: samples, or differences of pairs.
        count: of how many samples.
        ways: in how many of all ways, equally likely, so many of the values are below the truth.
    """
    ordered, rank = sorted(values), 1
    if count >= MIN_SAMPLES:
        most = (1 - CONFIDENCE) / 2 * sum(ways)
        while sum(ways[: rank + 1]) <= most:
            rank += 1
    return Estimate(float(median(ordered)), float(ordered[rank - 1]), float(ordered[-rank]), count)


def _orders(one: int, other: int) -> list[int]:
    """In how many orders of two groups so many pairs have the first group's member in front.

    The coefficients of the Gaussian binomial (Mann and Whitney 1947).
    """
    pairs = one * other
    ways = [1] + [0] * pairs
    for member in range(1, one + 1):
        for inverted in range(pairs, other + member - 1, -1):
            ways[inverted] -= ways[inverted - other - member]
        for inverted in range(member, pairs + 1):
            ways[inverted] += ways[inverted - member]
    return ways


class Percentiles:
    """How some times are distributed.

    Attributes:
        count: how many there are.
        median: in seconds.
        p99: in seconds.
        max: in seconds.
    """

    def __init__(self, seconds: NDArray[np.float64]) -> None:
        """Take one time or more, in seconds."""
        self.count = seconds.size
        self.median, self.p99 = map(float, np.percentile(seconds, [50, 99]))
        self.max = float(seconds.max())
