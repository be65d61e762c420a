"""One figure of the paper: what it shows, what is run to see it again, and how that is judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from testbed.paper.runs import Run


@dataclass(frozen=True, slots=True)
class Variant:
    """One run: a scenario of `scenarios/paper/`, some of its keys changed.

    Attributes:
        name: what the run is called; its directory. No other variant of any figure has it, unless
            it is the same run.
        scenario: the stem of the scenario's file.
        changes: keys of the scenario's first level, such as `transport`, and their whole values, as
            a file would have them.
        only_simulated: that it is always simulated, as it cannot be emulated.
    """

    name: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    only_simulated: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a figure says, as measured here.

    Attributes:
        what: what was measured.
        measured: its value, with its unit.
        bound: what it must be to hold.
        holds: whether it is.
    """

    what: str
    measured: str
    bound: str
    holds: bool


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
        measure: judges the runs.
        draw: draws them as the paper does; called within `results.figures.style.style()`.
        caption: how to read the drawing.
        cannot_show: what of it emulation cannot show; empty if there is nothing of its own.
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

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for as: `6-7` also as `6` and `7`."""
        return tuple(dict.fromkeys((self.number, *self.number.split("-"))))

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"figure-{self.number}"


def at_least(what: str, value: float, bound: float, form: str = "{:.1%}") -> Check:
    """Check that a value is not below a bound, both shown in the same form."""
    return Check(what, form.format(value), f"≥ {form.format(bound)}", value >= bound)


def at_most(what: str, value: float, bound: float, form: str = "{:.1%}") -> Check:
    """Check that a value is not above a bound, both shown in the same form."""
    return Check(what, form.format(value), f"≤ {form.format(bound)}", value <= bound)


def between(what: str, value: float, low: float, high: float, form: str = "{:.1%}") -> Check:
    """Check that a value is within bounds, all shown in the same form."""
    bound = f"{form.format(low)} to {form.format(high)}"
    return Check(what, form.format(value), bound, low <= value <= high)
