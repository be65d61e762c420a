"""Checks of a figure: measured values, with one seed or more, and their bounds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isinf
from statistics import median

import numpy as np

from testbed.model.summary.unit import NEVER

NO_BOUND = "-"
RATIO = "{:.2f}"
"""How the ratio of two things that are compared is shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """A measured value and its bounds.

    Attributes:
        what: what was measured.
        values: its value with each seed; NEVER for a time until what did not happen.
        low: the least value with which the check holds.
        high: the largest value with which it holds.
        form: how values are shown, with their unit.
        equal: the ranges of two transports that cannot be told apart; the check then does not
            hold, whatever the median is. Empty for all other checks.
    """

    what: str
    values: tuple[float, ...]
    low: float
    high: float
    form: str
    equal: str = ""

    @property
    def measured(self) -> str:
        """The median with its unit; with several seeds also the least and the greatest value.

        These are left out where all three are shown alike, and their unit stands once. What never
        happened is "never". Two things whose ratio is above 1 with some seeds and below with others
        are "undecided". A check that holds, but not with each seed, says with how many.
        """
        numbers = self.value, min(self.values), max(self.values)
        middle, low, high = (
            "never" if value == NEVER else self.form.format(value) for value in numbers
        )
        within, count = sum(map(self._is_within, self.values)), len(self.values)
        note = ""
        if self.undecided:
            note = ", undecided"
        elif self.holds and within < count:
            note = f", {within} of {count} seeds within"
        if low == middle == high:
            return f"{middle}{note}"
        number, _, unit = low.partition(" ")
        return f"{middle} ({number if high.endswith(f' {unit}') else low} to {high}){note}"

    @property
    def undecided(self) -> bool:
        """Whether a ratio that should be above 1, or below, is both, depending on the seed.

        The two things that it compares cannot be told apart then.
        """
        compares = self.form == RATIO and 1.0 in (self.low, self.high)
        return compares and min(self.values) < 1.0 < max(self.values)

    @property
    def value(self) -> float:
        """The median of the values."""
        return median(self.values)

    @property
    def bound(self) -> str:
        """The bounds, as text; `NO_BOUND` of a value that is only shown."""
        low, high = self.form.format(self.low), self.form.format(self.high)
        if isinf(self.low) and isinf(self.high):
            return NO_BOUND
        if isinf(self.high):
            return f"≥ {low}"
        if isinf(self.low):
            return f"≤ {high}"
        return low if low == high else f"{low} to {high}"

    @property
    def holds(self) -> bool:
        """Whether the median is within the bounds, and the values can be told apart."""
        return self._is_within(self.value) and not self.equal

    def _is_within(self, value: float) -> bool:
        return self.low <= value <= self.high


def at_least(what: str, value: float, bound: float, form: str = "{:.1%}") -> Check:
    """Check that a value is not below a bound, both shown in the same form."""
    return Check(what, (value,), bound, inf, form)


def at_most(what: str, value: float, bound: float, form: str = "{:.1%}") -> Check:
    """Check that a value is not above a bound, both shown in the same form."""
    return Check(what, (value,), -inf, bound, form)


def between(what: str, value: float, low: float, high: float, form: str = "{:.1%}") -> Check:
    """Check that a value is within bounds, all shown in the same form."""
    return Check(what, (value,), low, high, form)


def shown(what: str, value: float, form: str) -> Check:
    """A value for which the paper has no figure that could be compared: it has no bounds."""
    return Check(what, (value,), -inf, inf, form)


RESOLUTION = 0.01
"""Comparisons do not tell smaller values or differences apart. In base RTTs it is about the length
of a packet; of ratios near 1 it is a hundredth."""


def costs_less(
    what: str, reference: Sequence[float], other: Sequence[float], *, unit: str = ""
) -> Check:
    """Check that the reference has a lower cost than the other.

    It has if its largest cost with any seed is below the least of the other, so that their ranges
    do not overlap. Costs are not compared seed by seed, as each seed has other links. The value
    shown is the other's cost over the median of the reference.

    Args:
        what: what is compared.
        reference: the cost that should be lower, with each seed.
        other: the cost that it is compared with.
        unit: the unit of all costs, if they have one.
    """
    base, compared = _resolved(reference), _resolved(other)
    equal = ""
    if min(compared) - max(base) < RESOLUTION and min(base) - max(compared) < RESOLUTION:
        equal = f"equal: {_range(compared)} beside {_range(base)} {unit}".rstrip()
    return Check(what, relative(base, compared), 1.0, inf, RATIO, equal=equal)


def costs_no_more(what: str, reference: Sequence[float], other: Sequence[float]) -> Check:
    """Check that the reference has no higher cost than the other.

    It may be equal: the median of the other must not be below the least cost that the reference has
    with any seed. The value shown is the other's cost over the median of the reference.

    Args:
        what: what is compared.
        reference: the cost that must not be higher, with each seed.
        other: the cost that it is compared with.
    """
    resolved = _resolved(reference)
    least = (min(resolved) - RESOLUTION) / median(resolved)
    return Check(what, relative(resolved, other), least, inf, RATIO)


def relative(reference: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """The other's values over the median of the reference; tiny values count as RESOLUTION."""
    usual = median(_resolved(reference))
    return tuple(value / usual for value in _resolved(other))


def _resolved(values: Sequence[float]) -> list[float]:
    return [max(value, RESOLUTION) for value in values]


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def repeated(seeds: Sequence[tuple[Check, ...]]) -> tuple[Check, ...]:
    """The checks of a figure with several seeds, from its checks with each seed."""
    return tuple(
        replace(same[0], values=tuple(value for check in same for value in check.values))
        for same in zip(*seeds, strict=True)
    )


def most_typical(seeds: Sequence[tuple[Check, ...]]) -> int:
    """The index of the seed whose checks are nearest to the medians, by their ranks."""
    values = np.array([[check.value for check in checks] for checks in seeds])
    ranks = values.argsort(axis=0, kind="stable").argsort(axis=0)
    return int(np.abs(ranks - (len(seeds) - 1) / 2).sum(axis=1).argmin())
