"""Figures of the paper, from the runs that they need to the report."""

import json
from collections.abc import Sequence
from pathlib import Path

from testbed.model.errors import InputError, Problem
from testbed.model.names import did_you_mean
from testbed.paper.figure import PaperFigure
from testbed.paper.making import Progress, make
from testbed.paper.outcome import Outcome, judge
from testbed.paper.registry import FIGURES
from testbed.paper.report import as_json, render
from testbed.paper.runs import FIRST_SEED, Order, Run, order
from testbed.results.run_directory import RunDirectory


def chosen(numbers: Sequence[str]) -> tuple[PaperFigure, ...]:
    """The figures of these numbers, in the paper's order; all if there are none.

    Raises:
        InputError: there is no such figure.
    """
    known = {name: figure for figure in FIGURES for name in figure.names}
    unknown = [number for number in numbers if number not in known]
    if unknown:
        expected = f"one of {', '.join(known)}"
        raise InputError([Problem("FIG", unknown[0], expected, did_you_mean(unknown[0], [*known]))])
    return tuple(one for one in FIGURES if not numbers or {*one.names} & {*numbers})


def reproduce(
    figures: Sequence[PaperFigure],
    directory: Path,
    progress: Progress,
    *,
    simulate: bool,
    again: bool,
    seeds: int = 1,
) -> tuple[Outcome, ...]:
    """Make the runs of some figures, judge and draw them, and write the report of all there are.

    Args:
        figures: which.
        directory: where everything goes: runs, `figures/`, `report.html` and `table.json`.
        progress: told what is done, and the part done.
        simulate: in the simulator, all of them.
        again: whether to make runs that are there.
        seeds: how many runs of each variant, with seeds from 1 on.

    Returns:
        What became of the figures asked for.

    Raises:
        InputError: a scenario is wrong, or the directory cannot be written to.
    """
    orders = _orders(FIGURES, directory, simulate=simulate, seeds=seeds)
    wanted = {variant.name for figure in figures for variant in figure.variants}
    due = [one for one in orders if one.variant.name in wanted and (again or _is_due(one))]
    failures = make(due, progress)
    outcomes = []
    for number, figure in enumerate(FIGURES):
        progress(f"drawing {figure.number}", number / len(FIGURES))
        outcomes.append(judge(figure, orders, failures, directory / "figures"))
    place = RunDirectory(directory)
    place.write("report.html", render(outcomes))
    place.write("table.json", json.dumps(as_json(outcomes), indent=1) + "\n")
    place.give_to_user()
    return tuple(outcome for outcome in outcomes if outcome.figure in figures)


def _orders(
    figures: Sequence[PaperFigure], directory: Path, *, simulate: bool, seeds: int
) -> list[Order]:
    variants = {variant.name: variant for figure in figures for variant in figure.variants}
    try:
        return [
            order(variant, directory, simulate=simulate, seed=seed)
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            for variant in variants.values()
        ]
    except OSError as error:
        expected = f"a directory to write to ({error.strerror})"
        raise InputError([Problem("--results", str(directory), expected)]) from error


def _is_due(one: Order) -> bool:
    """Whether a run is missing, or was invalid and may be better another time."""
    run: Run | None = one.finished()
    return run is None or (run.summary.verdict == "invalid" and not run.summary.simulated)
