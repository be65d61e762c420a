"""One figure of the paper: what it shows, what is run to see it again, who judges and draws it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from testbed.paper.checks import Check

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
        slowed: how many times slower than simulated it is emulated at least, where a machine that
            is late now and then would spoil it.
        carries: the share of the packets its flows may send that they were counted to send, rounded
            up: from this follows how long it is simulated.
        only_simulated: why it cannot be emulated; empty if it can.
        only_emulated: why it cannot be simulated; empty if it can.
    """

    name: str
    scenario: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    with_seed: Callable[[Mapping[str, Any], int], Mapping[str, Any]] | None = None
    emulated: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    may_stall: bool = False
    slowed: float = 1.0
    carries: float = 1.0
    only_simulated: str = ""
    only_emulated: str = ""

    def excluded(self, form: Form) -> str:
        """Why it cannot be made in a form; empty if it can."""
        return self.only_simulated if form == "emulated" else self.only_emulated


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
        not_emulated: names of runs that are simulated for it only, each with the reason: such as
            that another figure has them emulated, with one seed.
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
    not_emulated: Mapping[str, str] = field(default_factory=dict)
    measure_seeds: Callable[[Sequence[Runs]], tuple[Check, ...]] | None = None
    draw_seeds: Callable[[Sequence[Runs]], "Figure"] | None = None
    large: bool = False

    def variants_in(self, form: Form) -> tuple[Variant, ...]:
        """The runs that can be made in a form."""
        return tuple(one for one in self.variants if not self._why_not(one, form))

    def _why_not(self, variant: Variant, form: Form) -> str:
        own = self.not_emulated.get(variant.name, "") if form == "emulated" else ""
        return variant.excluded(form) or own

    def seeds_in(self, form: Form, asked: int) -> Sequence[int]:
        """The seeds that its runs are made with in a form, where so many are asked for."""
        if form == "emulated" and asked <= len(self.emulated_seeds):
            return self.emulated_seeds
        count = self.seeds if self.large else max(asked, self.seeds)
        return range(FIRST_SEED, FIRST_SEED + count)

    def excluded(self, form: Form) -> tuple[str, ...]:
        """Why some of its runs cannot be made in a form, each reason once."""
        reasons = (self._why_not(variant, form) for variant in self.variants)
        return tuple(dict.fromkeys(filter(None, reasons)))

    @property
    def names(self) -> tuple[str, ...]:
        """What it can be asked for as: `6-7` also as `6` and `7`."""
        return tuple(dict.fromkeys((self.number, *self.number.split("-"))))

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"figure-{self.number}"
