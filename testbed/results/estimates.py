"""Medians of repeats and how sure they are: 95% confidence intervals by bootstrap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 4000
MIN_SAMPLES = 3
"""Of fewer repeats an interval would only pretend to know."""

_SEED = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of some samples, or a difference of two medians.

    Attributes:
        median: the estimate.
        low: where the confidence interval begins; None where there are too few samples.
        high: where it ends.
        count: how many samples there are, of the smaller group for a difference.
    """

    median: float
    low: float | None
    high: float | None
    count: int

    @property
    def differs(self) -> bool:
        """Of a difference: whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def estimate(samples: Sequence[float]) -> Estimate:
    """The median of one sample or more."""
    return _estimate(float(np.median(samples)), len(samples), _medians(samples, _SEED))


def difference(samples: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """How much the median of some samples is above that of others; the two are independent."""
    found = float(np.median(samples) - np.median(baseline))
    count = min(len(samples), len(baseline))
    return _estimate(found, count, _medians(samples, _SEED) - _medians(baseline, _SEED + 1))


def _medians(samples: Sequence[float], seed: int) -> NDArray[np.float64]:
    """The medians of resamples, drawn with replacement: the percentile bootstrap (Efron 1979)."""
    random = np.random.default_rng(seed)
    drawn = random.choice(np.asarray(samples, dtype=np.float64), (RESAMPLES, len(samples)))
    return np.asarray(np.median(drawn, axis=1), dtype=np.float64)


def _estimate(median: float, count: int, medians: NDArray[np.float64]) -> Estimate:
    if count < MIN_SAMPLES:
        return Estimate(median, None, None, count)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, (tail, 1 - tail))
    return Estimate(median, float(low), float(high), count)
