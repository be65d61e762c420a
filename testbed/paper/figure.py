"""One figure of the paper: what it shows, what is run to see it again, and how that is judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isinf
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from testbed.paper.runs import Run


Form = Literal["emulated", "simulated"]
"""How runs are made: with real packets through the kernel, or in virtual time."""

FORMS: tuple[Form, ...] = ("emulated", "simulated")

FIRST_SEED = 1


@dataclass(frozen=True, slots=True)
class Variant:
    """One run: a scenario of `scenarios/paper/`, some of its keys changed.

    Attributes:
        name: what the run is called; its directory. No other variant of any figure has it, unless
            it is the same run.
        scenario: the stem of the scenario's file.
        changes: keys of the scenario's first level, such as `transport`, and their whole values, as
            a file would have them.
        with_seed: more of these, which depend on the seed, from the scenario without them.
        emulated: more of these in the emulated form, from the scenario as it would be simulated.
        may_stall: that it is a finding, and no doubt in the run, if not one operation is finished,
            or payload is still under way when the run stops waiting for it.
        only_simulated: why it cannot be emulated; empty if it can.
        only_emulated: why it cannot be simulated; empty if it can.
    """

    name: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    with_seed: Callable[[Mapping[str, Any], int], Mapping[str, Any]] | None = None
    emulated: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    may_stall: bool = False
    only_simulated: str = ""
    only_emulated: str = ""

    def excluded(self, form: Form) -> str:
        """Why it cannot be made in a form; empty if it can."""
        return self.only_simulated if form == "emulated" else self.only_emulated


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


Runs = Mapping[str, "Run"]
"""The runs of a figure, by the names of its variants."""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One figure or table of the paper.

    Attributes:
        number: how the paper numbers it, and how it is asked for: `9a`.
        title: what it is about.
        saw: what the paper saw.
        ours: what is run here, and what differs: scale, compressed times.
        variants: the runs it needs.
        measure: judges the runs with one seed.
        draw: draws them as the paper does; called within `results.figures.style.style()`.
        caption: how to read the drawing.
        cannot_show: what of it emulation cannot show; empty if there is nothing of its own.
        seeds: with how many seeds its runs are made at least.
        emulated_seeds: with which ones it is emulated instead, where no more are asked for.
        measure_seeds: judges the runs of all seeds at once, in place of `measure`: where they
            have to be compared.
        draw_seeds: draws the runs of all seeds at once, in place of `draw`.
        large: whether it is made only by its number, or with everything (`make figures-full`).
    """

    number: str
    title: str
    saw: str
    ours: str
    variants: tuple[Variant, ...]
    measure: Callable[[Runs], tuple[Check, ...]]
    draw: Callable[[Runs], "Figure"]
    caption: str
    cannot_show: str = ""
    seeds: int = 1
    emulated_seeds: tuple[int, ...] = ()
    measure_seeds: Callable[[Sequence[Runs]], tuple[Check, ...]] | None = None
    draw_seeds: Callable[[Sequence[Runs]], "Figure"] | None = None
    large: bool = False

    def variants_in(self, form: Form) -> tuple[Variant, ...]:
        """The runs that can be made in a form."""
        return tuple(variant for variant in self.variants if not variant.excluded(form))

    def seeds_in(self, form: Form, asked: int) -> Sequence[int]:
        """The seeds that its runs are made with in a form, where so many are asked for."""
        if form == "emulated" and asked <= len(self.emulated_seeds):
            return self.emulated_seeds
        count = self.seeds if self.large else max(asked, self.seeds)
        return range(FIRST_SEED, FIRST_SEED + count)

    def excluded(self, form: Form) -> tuple[str, ...]:
        """Why some of its runs cannot be made in a form, each reason once."""
        reasons = (variant.excluded(form) for variant in self.variants)
        return tuple(dict.fromkeys(filter(None, reasons)))

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for as: `6-7` also as `6` and `7`."""
        return tuple(dict.fromkeys((self.number, *self.number.split("-"))))

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"figure-{self.number}"


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


def ahead(
    what: str,
    reference: Sequence[float],
    other: Sequence[float],
    *,
    least: float,
    unit: str,
    why_not: str = "",
) -> Check:
    """Check that one is ahead of another in what is the better the less there is of it.

    It is where the most that it has with any seed is below the least of the other: then their
    ranges do not meet. Seeds do not pair them: each has other links. Shown is the other's over the
    median of the reference.

    Args:
        what: what is compared.
        reference: what should be ahead, with each seed.
        other: what it is compared with.
        least: nothing is taken as less, and no smaller difference as one.
        unit: of all of them.
        why_not: the reason where it is not ahead, as far as one was found.
    """
    one, two = ([max(value, least) for value in values] for values in (reference, other))
    equal = ""
    if min(two) - max(one) < least and min(one) - max(two) < least:
        equal = f"equal: {_range(two)} beside {_range(one)} {unit}"
    ratios = tuple(value / median(one) for value in two)
    return Check(what, ratios, 1.0, inf, "{:.2f}", why_not, equal)


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
