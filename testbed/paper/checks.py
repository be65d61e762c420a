"""What a figure says, each thing with the bound that it must keep: once, or with several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isinf
from statistics import median

import numpy as np


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a figure says, as measured here: once, or with each of several seeds.

    Attributes:
        what: what was measured.
        values: its value with each seed.
        low: what it must not be below to hold.
        high: what it must not be above.
        form: how values are shown, with their unit.
        why_not: the reason where it does not hold, as far as one was found; else empty.
        equal: of a comparison that cannot tell the two apart, in which case neither is ahead
            whatever the median is: how that shows; else empty.
    """

    what: str
    values: tuple[float, ...]
    low: float
    high: float
    form: str
    why_not: str = ""
    equal: str = ""

    @property
    def measured(self) -> str:
        """The median, with its unit; of several seeds with the least and the greatest value."""
        middle, *ends = (
            self.form.format(value) for value in (self.value, min(self.values), max(self.values))
        )
        return middle if len(self.values) == 1 else f"{middle} ({' to '.join(ends)})"

    @property
    def value(self) -> float:
        """The median of the values."""
        return median(self.values)

    @property
    def bound(self) -> str:
        """What it must be to hold."""
        low, high = self.form.format(self.low), self.form.format(self.high)
        if isinf(self.high):
            return f"≥ {low}"
        if isinf(self.low):
            return f"≤ {high}"
        return low if low == high else f"{low} to {high}"

    @property
    def holds(self) -> bool:
        """Whether the median is what it must be, and says something."""
        return self.low <= self.value <= self.high and not self.equal


def at_least(
    what: str, value: float, bound: float, form: str = "{:.1%}", why_not: str = ""
) -> Check:
    """Check that a value is not below a bound, both shown in the same form."""
    return Check(what, (value,), bound, inf, form, why_not)


def at_most(
    what: str, value: float, bound: float, form: str = "{:.1%}", why_not: str = ""
) -> Check:
    """Check that a value is not above a bound, both shown in the same form."""
    return Check(what, (value,), -inf, bound, form, why_not)


def between(
    what: str, value: float, low: float, high: float, form: str = "{:.1%}", why_not: str = ""
) -> Check:
    """Check that a value is within bounds, all shown in the same form."""
    return Check(what, (value,), low, high, form, why_not)


RESOLUTION = 0.01
"""What comparisons tell apart: nothing is taken as less, nor a smaller difference as one. In base
RTTs it is about as long as one packet; of what is near 1, a hundredth."""


def ahead(
    what: str,
    reference: Sequence[float],
    other: Sequence[float],
    *,
    unit: str = "",
) -> Check:
    """Check that one is ahead of another in what is the better the less there is of it.

    It is where the most that it has with any seed is below the least of the other: then their
    ranges do not meet. Seeds do not pair them: each has other links. Shown is the other's over the
    median of the reference.

    Args:
        what: what is compared.
        reference: what should be ahead, with each seed.
        other: what it is compared with.
        unit: of all of them, if they have one.
    """
    one, two = _resolved(reference), _resolved(other)
    equal = ""
    if min(two) - max(one) < RESOLUTION and min(one) - max(two) < RESOLUTION:
        equal = f"equal: {_range(two)} beside {_range(one)} {unit}".rstrip()
    return Check(what, relative(one, two), 1.0, inf, "{:.2f}", equal=equal)


def not_behind(what: str, reference: Sequence[float], other: Sequence[float]) -> Check:
    """Check that one is not behind another in what is the better the less there is of it.

    It may be equal: the other's median must not be below the least that the reference has with any
    seed. Shown is the other's over the median of the reference.

    Args:
        what: what is compared.
        reference: what must not be behind, with each seed.
        other: what it is compared with.
    """
    one = _resolved(reference)
    least = (min(one) - RESOLUTION) / median(one)
    return Check(what, relative(one, other), least, inf, "{:.2f}")


def relative(reference: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """The other's values over the median of the reference, as far as they can be told apart."""
    usual = median(_resolved(reference))
    return tuple(value / usual for value in _resolved(other))


def _resolved(values: Sequence[float]) -> list[float]:
    return [max(value, RESOLUTION) for value in values]


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def repeated(seeds: Sequence[tuple[Check, ...]]) -> tuple[Check, ...]:
    """The checks of a figure with several seeds, from those with each."""
    return tuple(
        replace(same[0], values=tuple(value for one in same for value in one.values))
        for same in zip(*seeds, strict=True)
    )


def most_typical(seeds: Sequence[tuple[Check, ...]]) -> int:
    """Which seed's checks are nearest to the medians, by their ranks; the first of those alike."""
    values = np.array([[check.value for check in checks] for checks in seeds])
    ranks = values.argsort(axis=0, kind="stable").argsort(axis=0)
    return int(np.abs(ranks - (len(seeds) - 1) / 2).sum(axis=1).argmin())
