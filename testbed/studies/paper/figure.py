"""A figure or table of the paper: the runs that it needs, and how they are judged and drawn."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, isinf
from pathlib import Path
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import yaml

from testbed.model.summary.unit import NEVER
from testbed.runs.job import FIRST_SEED, Form

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


_TEXTS = Path(__file__).with_name("figures.yaml")


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes in all runs of a figure, such as to make them larger.

    Attributes:
        longer: how many times as long they are, with their faults.
        settings: values of keys of their scenarios, by key path.
    """

    longer: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The options that give it; empty if it changes nothing."""
        longer = [f"--longer {self.longer}"] if self.longer != 1 else []
        settings = (
            f"--set {quote(f'{key}={json.dumps(value)}')}" for key, value in self.settings.items()
        )
        return " ".join([*longer, *settings])


NOTHING = Overrides()


@dataclass(frozen=True, slots=True)
class Variant:
    """One run: a scenario of `scenarios/paper/` with some of its keys changed.

    Attributes:
        name: the run's name, which is also that of its directory. No other variant of any figure
            has it, unless it is the same run.
        scenario: the stem of the scenario's file.
        changes: keys of the scenario's first level, such as `transport`, and their whole values, as
            a file would have them.
        with_seed: computes more changes that depend on the seed, from the scenario without them.
        emulated: computes more changes of the emulated form, from the scenario as it would be
            simulated.
        may_stall: whether it is a finding, and no reason to distrust the run, if no operation is
            finished or payload is still under way when the run stops waiting for it.
        slowed: how many times slower than simulated it is emulated at least, where a machine that
            is late now and then would spoil it.
        carries: the share of the packets its flows may send that they were counted to send, rounded
            up: the estimated time of its simulation follows from it.
        excluded: the forms in which it is not made, each with the reason.
        repeated_only: whether it is emulated only where several seeds are requested: one seed of
            all figures must take no longer than half an hour.
        overrides: what the command line changes.
    """

    name: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    with_seed: Callable[[Mapping[str, Any], int], Mapping[str, Any]] | None = None
    emulated: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    may_stall: bool = False
    slowed: float = 1.0
    carries: float = 1.0
    excluded: Mapping[Form, str] = field(default_factory=dict, compare=False)
    repeated_only: bool = False
    overrides: Overrides = NOTHING


@dataclass(frozen=True, slots=True)
class FigureText:
    """What the report says of a figure (`figures.yaml`).

    Attributes:
        title: what it is about.
        observed: what the paper observed.
        setup: what is run here, and what differs: scale, compressed times.
        caption: how to read the drawing.
        cannot_show: what emulation cannot show; empty if there is nothing.
        not_shown: what the row does not show, even if its checks hold; empty if there is nothing.
        larger: what came of longer or larger runs (docs/paper/studies.md); empty if there are none.
        reasons: why checks do not hold here, by what they measure; those that hold may have one.
    """

    title: str
    observed: str
    setup: str
    caption: str
    cannot_show: str = ""
    not_shown: str = ""
    larger: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


@cache
def _texts() -> dict[str, FigureText]:
    content = yaml.safe_load(_TEXTS.read_text(encoding="utf-8"))
    return {number: FigureText(**text) for number, text in content.items()}


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One figure or table of the paper.

    Attributes:
        number: how the paper numbers it, and how a user names it: `9a`.
        variants: the runs it needs.
        measure: judges the runs with one seed, or with all seeds, each an argument.
        draw: draws them as the paper does; called within `results.report.figures.style.style()`.
        compares_seeds: whether it is judged and drawn of the runs of all seeds at once.
        seeds: with how many seeds its runs are made at least.
        emulated_seeds: with which ones it is emulated instead, unless more are requested.
        large: whether it is made only by its number, or with everything (`make figures-full`).
        is_own: whether it is a study of our own, which no row of the paper corresponds to.
    """

    number: str
    variants: tuple[Variant, ...]
    measure: Callable[..., tuple[Check, ...]]
    draw: Callable[..., "Figure"]
    compares_seeds: bool = False
    seeds: int = 1
    emulated_seeds: tuple[int, ...] = ()
    large: bool = False
    is_own: bool = False

    @property
    def overrides(self) -> Overrides:
        """What the command line changes in its runs, the same in all."""
        return self.variants[0].overrides

    @property
    def text(self) -> FigureText:
        """What the report says of it."""
        return _texts()[self.number]

    def reason(self, what: str) -> str:
        """Why the check of something does not hold here; empty if that is not known."""
        return self.text.reasons.get(what, "")

    def variants_in(self, form: Form, requested: int | None = None) -> tuple[Variant, ...]:
        """The runs that are made in a form where so many seeds are requested; default: several."""
        one_seed = form == "emulated" and requested == 1
        return tuple(
            variant
            for variant in self.variants
            if form not in variant.excluded and not (one_seed and variant.repeated_only)
        )

    def seeds_in(self, form: Form, requested: int) -> Sequence[int]:
        """The seeds that its runs are made with in a form, where so many are requested."""
        if form == "emulated" and requested <= len(self.emulated_seeds):
            return self.emulated_seeds
        return range(FIRST_SEED, FIRST_SEED + max(requested, self.seeds))

    def excluded(self, form: Form) -> tuple[str, ...]:
        """Why some of its runs are not made in a form, each reason once."""
        reasons = (variant.excluded.get(form) for variant in self.variants)
        return tuple(dict.fromkeys(filter(None, reasons)))

    def changed(self, overrides: Overrides) -> Self:
        """The same figure, of runs in which the command line changes something."""
        variants = tuple(replace(variant, overrides=overrides) for variant in self.variants)
        return replace(self, variants=variants)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a user may give: `6-7`, and also `6` and `7`."""
        return tuple(dict.fromkeys((self.number, *self.number.split("-"))))

    @property
    def stem(self) -> str:
        """The name of its files, without suffix."""
        return f"figure-{self.number}"
