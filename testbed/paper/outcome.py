"""What became of a figure: its checks, its drawing, and whether both can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.paper.figure import Check, PaperFigure, most_typical, repeated
from testbed.paper.runs import Order, Run
from testbed.results.figures.style import save, style
from testbed.results.summary import State, Summary

Answer = Literal["yes", "no", "not trusted", "not run"]

_STATES: Sequence[State] = ("trusted", "degraded", "invalid")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a figure.

    Attributes:
        figure: the figure.
        runs: those that were carried through, by the names of their orders.
        failures: why others were not, by the names of theirs.
        checks: what was measured, with every seed of which all runs are there; none where one of
            those ordered failed.
        seeds: those seeds.
        drawn: the one whose runs are drawn, that of the most typical ones.
        picture: the drawing, as SVG; None where nothing was measured.
    """

    figure: PaperFigure
    runs: Mapping[str, Run]
    failures: Mapping[str, str]
    checks: tuple[Check, ...] = ()
    seeds: tuple[int, ...] = ()
    drawn: int | None = None
    picture: Path | None = None

    @property
    def verdict(self) -> State:
        """The worst verdict of its runs."""
        return _worst([run.summary for run in self.runs.values()]).verdict

    @property
    def holds(self) -> Answer:
        """Whether what the paper saw was seen here."""
        if not self.checks:
            return "not run"
        if self.verdict == "invalid":
            return "not trusted"
        return "yes" if all(check.holds for check in self.checks) else "no"


def judge(
    figure: PaperFigure, orders: Sequence[Order], failures: Mapping[str, str], pictures: Path
) -> Outcome:
    """Measure a figure's runs and draw them into a directory.

    Nothing is measured if there is no seed of which all runs are there, or one of them failed.
    """
    names = {variant.name for variant in figure.variants}
    own = [one for one in orders if one.variant.name in names]
    found = {one.name: run for one in own if (run := one.finished()) is not None}
    failed = {one.name: failures[one.name] for one in own if one.name in failures}
    seeds = tuple(sorted({one.scenario.seed for one in own}))
    by_seed = {
        seed: {
            one.variant.name: found[one.name]
            for one in own
            if one.scenario.seed == seed and one.name in found
        }
        for seed in seeds
    }
    complete = {seed: runs for seed, runs in by_seed.items() if len(runs) == len(names)}
    if failed or not complete:
        missing = {one.name: "not run" for one in own if one.name not in found}
        return Outcome(figure, found, missing | failed)
    measured = [figure.measure(runs) for runs in complete.values()]
    drawn, runs = list(complete.items())[most_typical(measured)]
    with style():
        drawing = figure.draw(runs)
        save(drawing, pictures, figure.stem, _worst([run.summary for run in runs.values()]))
    picture = pictures / f"{figure.stem}.svg"
    return Outcome(figure, found, {}, repeated(measured), tuple(complete), drawn, picture)


def _worst(summaries: Sequence[Summary]) -> Summary:
    return max(summaries, key=lambda one: _STATES.index(one.verdict))
