"""What became of a figure in one form: its checks, its drawing, and whether both can be trusted."""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from testbed.paper.checks import most_typical, repeated
from testbed.paper.figure import Form, PaperFigure
from testbed.paper.runs import STATES, Order, Run, verdict
from testbed.results.report.figures.style import save, style
from testbed.results.run_directory import give_to_user
from testbed.results.summary import State, Summary

Answer = Literal["yes", "no", "not trusted", "not run"]


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Checked(_Kept):
    """A check, as it came out (see `Check`)."""

    what: str
    measured: str
    values: tuple[float | None, ...]
    bound: str
    holds: bool
    why_not: str = ""
    equal: str = ""

    @property
    def reason(self) -> str:
        """Why it does not hold; empty if it does."""
        if self.holds:
            return ""
        known = "; ".join(filter(None, (self.equal, self.why_not)))
        return f"{self.what}: {self.measured}, {known or 'for a reason that was not found yet'}"


class MadeRun(_Kept):
    """A run behind a figure.

    `attempts` is how often it was made until it could be trusted, or was given up. `expected_load`
    is the share of the CPUs that it was expected to take, null for a simulated one.
    """

    name: str
    directory: Path
    seed: int
    dilation: float
    verdict: State
    reasons: tuple[str, ...]
    attempts: int
    expected_load: float | None

    @property
    def manifest(self) -> str | None:
        """What it was made of, as JSON; None where its directory is gone."""
        file = self.directory / "manifest.json"
        return file.read_text() if file.is_file() else None


class Outcome(_Kept):
    """What became of a figure in one form.

    Attributes:
        number: the figure's.
        form: how its runs were made.
        runs: those that were carried through.
        failures: why others were not, by their names; and what could not be measured or drawn.
        checks: what was measured, with every seed of which all runs are there.
        seeds: those seeds.
        drawn: the one whose runs are drawn, that of the most typical ones; None for all of them.
    """

    number: str
    form: Form
    runs: tuple[MadeRun, ...] = ()
    failures: dict[str, str] = {}
    checks: tuple[Checked, ...] = ()
    seeds: tuple[int, ...] = ()
    drawn: int | None = None

    @property
    def verdict(self) -> State:
        """The worst verdict of its runs."""
        return max((run.verdict for run in self.runs), key=STATES.index, default="trusted")

    @property
    def holds(self) -> Answer:
        """Whether what the paper saw was seen here.

        A machine that is late now and then takes throughput and time: what holds on it all the
        same holds, but that something does not hold only trusted runs can tell.
        """
        if not self.checks:
            return "not run"
        holds = all(check.holds for check in self.checks)
        if self.verdict == "invalid" or (self.verdict == "degraded" and not holds):
            return "not trusted"
        return "yes" if holds else "no"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not, of each check that does not hold."""
        return tuple(filter(None, (check.reason for check in self.checks)))

    @property
    def doubt(self) -> str:
        """How many of its runs can be trusted, where that is not all."""
        trusted = sum(run.verdict == "trusted" for run in self.runs)
        count = len(self.runs)
        return "" if trusted == count else f"{trusted} of {count} runs trusted"

    @property
    def state(self) -> str:
        """The same in a line, with what is to be known of its runs."""
        seeds = f"{len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        worst = next((run for run in self.runs if run.verdict == self.verdict), None)
        doubt = ""
        if worst is not None and worst.verdict != "trusted":
            doubt = f"{worst.name} is {worst.verdict}: {'; '.join(worst.reasons[:1])}"
        failed = f"{len(self.failures)} failed" if self.failures else ""
        return ", ".join(filter(None, (seeds, failed, doubt)))


class Shelf:
    """Where outcomes and drawings of one form are kept: each figure's beside one another."""

    def __init__(self, directory: Path, form: Form) -> None:
        """Have them in a directory of that form below the given one."""
        self.directory, self.form = directory / form, form

    def picture(self, figure: PaperFigure) -> Path:
        """The drawing of a figure, as SVG; it need not be there."""
        return self.directory / f"{figure.stem}.svg"

    def kept(self, figure: PaperFigure) -> Outcome | None:
        """What became of a figure when it was last made."""
        file = self._file(figure)
        return Outcome.model_validate_json(file.read_text()) if file.is_file() else None

    def keep(self, figure: PaperFigure, outcome: Outcome) -> None:
        """Keep it; a drawing that does not belong to it goes."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file(figure).write_text(outcome.model_dump_json(indent=1) + "\n")
        if not outcome.checks:
            for suffix in (".svg", ".png"):
                self.picture(figure).with_suffix(suffix).unlink(missing_ok=True)
        for file in (self.directory, *self.directory.glob(f"{figure.stem}.*")):
            give_to_user(file)

    def _file(self, figure: PaperFigure) -> Path:
        return self.directory / f"{figure.stem}.json"


def judge(
    figure: PaperFigure, orders: Sequence[Order], failures: Mapping[Path, str], shelf: Shelf
) -> Outcome:
    """Measure a figure's runs, draw them, and keep both.

    Args:
        figure: which.
        orders: its runs in the form of the shelf, with every seed.
        failures: why some were not carried through, by their files.
        shelf: where it is kept.
    """
    attempts = {one.name: one.attempts() for one in orders}
    found = {one.name: run for one in orders if (run := one.finished()) is not None}
    made = tuple(
        _made(one, found[one.name], len(attempts[one.name])) for one in orders if one.name in found
    )
    missing = {
        one.name: failures.get(one.file, "not run") for one in orders if one.name not in found
    }
    seeds = sorted({one.scenario.seed for one in orders})
    by_seed = {
        seed: {one.variant.name: found.get(one.name) for one in orders if one.scenario.seed == seed}
        for seed in seeds
    }
    complete = {
        seed: {name: run for name, run in runs.items() if run is not None}
        for seed, runs in by_seed.items()
        if all(runs.values())
    }
    outcome = Outcome(number=figure.number, form=shelf.form, runs=made, failures=missing)
    if complete:
        try:
            outcome = outcome.model_copy(update=_measured(figure, complete, shelf))
        except Exception as error:  # noqa: BLE001 - one figure must not cost the others: it is told
            log = shelf.directory / f"{figure.stem}.log"
            shelf.directory.mkdir(parents=True, exist_ok=True)
            log.write_text(traceback.format_exc())
            said = f"{type(error).__name__}: {error}; traceback: {log}"
            outcome = outcome.model_copy(update={"failures": {**missing, "measuring": said}})
    shelf.keep(figure, outcome)
    return outcome


def _measured(
    figure: PaperFigure, complete: Mapping[int, Mapping[str, Run]], shelf: Shelf
) -> dict[str, Any]:
    """What an outcome says of the runs of some seeds; they are drawn as well."""
    by_seed = [figure.measure(runs) for runs in complete.values()]
    checks = repeated(by_seed)
    if figure.measure_seeds is not None:
        checks = figure.measure_seeds([*complete.values()])
    drawn: int | None
    drawn, runs = list(complete.items())[most_typical(by_seed)]
    with style():
        if figure.draw_seeds is not None:
            drawing, drawn = figure.draw_seeds([*complete.values()]), None
            summaries = [one for runs in complete.values() for one in _doubted(figure, runs)]
        else:
            drawing = figure.draw(runs)
            summaries = _doubted(figure, runs)
        shelf.directory.mkdir(parents=True, exist_ok=True)
        save(drawing, shelf.directory, figure.stem, _worst(summaries))
    checked = tuple(Checked.model_validate(check, from_attributes=True) for check in checks)
    return {"checks": checked, "seeds": tuple(complete), "drawn": drawn}


def _made(one: Order, run: Run, attempts: int) -> MadeRun:
    summary = run.summary
    return MadeRun(
        name=one.name,
        directory=run.directory,
        seed=summary.seed,
        dilation=summary.dilation,
        verdict=verdict(one.variant, summary),
        reasons=summary.reasons,
        attempts=attempts,
        expected_load=one.load,
    )


def _doubted(figure: PaperFigure, runs: Mapping[str, Run]) -> list[Summary]:
    """Summaries of a figure's runs but for those that only finished nothing, as they may."""
    variants = {variant.name: variant for variant in figure.variants}
    summaries = {name: run.summary for name, run in runs.items()}
    return [
        one for name, one in summaries.items() if verdict(variants[name], one) == one.verdict
    ] or [*summaries.values()]


def _worst(summaries: Sequence[Summary]) -> Summary:
    return max(summaries, key=lambda one: STATES.index(one.verdict))
