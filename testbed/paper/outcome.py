"""What became of a figure: its checks, its drawing, and whether both can be trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.paper.figure import Check, PaperFigure
from testbed.paper.runs import Run
from testbed.results.figures.style import save, style
from testbed.results.summary import State

Answer = Literal["yes", "no", "not trusted", "not run"]

_STATES: Sequence[State] = ("trusted", "degraded", "invalid")
"""From the best to the worst."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a figure.

    Attributes:
        figure: the figure.
        runs: those that were carried through, by the names of its variants.
        failures: why others were not, by the names of theirs.
        checks: what was measured; none where a run is missing.
        picture: the drawing, as SVG; None where a run is missing.
    """

    figure: PaperFigure
    runs: Mapping[str, Run]
    failures: Mapping[str, str]
    checks: tuple[Check, ...]
    picture: Path | None

    @property
    def verdict(self) -> State:
        """The worst verdict of its runs."""
        return max((run.summary.verdict for run in self.runs.values()), key=_STATES.index)

    @property
    def holds(self) -> Answer:
        """Whether what the paper saw was seen here."""
        if not self.checks:
            return "not run"
        if self.verdict == "invalid":
            return "not trusted"
        return "yes" if all(check.holds for check in self.checks) else "no"


def judge(
    figure: PaperFigure, found: Mapping[str, Run], failures: Mapping[str, str], pictures: Path
) -> Outcome:
    """Measure a figure's runs and draw them into a directory; nothing if one of them is missing."""
    names = [variant.name for variant in figure.variants]
    runs = {name: found[name] for name in names if name in found}
    missing = {name: failures.get(name, "not run") for name in names if name not in found}
    if missing:
        return Outcome(figure, runs, missing, (), None)
    checks = figure.measure(runs)
    with style():
        drawing = figure.draw(runs)
        summaries = [run.summary for run in runs.values()]
        worst = max(summaries, key=lambda one: _STATES.index(one.verdict))
        save(drawing, pictures, figure.stem, worst)
    return Outcome(figure, runs, missing, checks, pictures / f"{figure.stem}.svg")
