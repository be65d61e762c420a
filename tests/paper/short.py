"""Figures in short: their runs simulated, so much of their time, and judged as the table is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.model.run_files.layout import SUMMARY
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.report.figures.style import style
from testbed.results.run_data import load_run
from testbed.runs.result import Result
from testbed.sim import simulate
from testbed.studies.paper.figure import Check, PaperFigure, Variant
from testbed.studies.paper.outcome import Answer, CheckOutcome, FigureOutcome
from testbed.studies.paper.planning import plan_variant, select_figures

from .cases import CASES


@dataclass(frozen=True)
class Short:
    """A figure in short.

    Attributes:
        number: which.
        factor: so much of their time its runs last, faults and all.
        misses: checks that do not hold in the simulator, for which the table says *no*.
        without: checks that need all of the time, or all seeds: they are not judged here.
        only: what of the figure is run; all if not given.
    """

    number: str
    factor: float
    misses: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: Callable[[PaperFigure], PaperFigure] = lambda figure: figure

    @property
    def figure(self) -> PaperFigure:
        """The figure, as far as it is run."""
        (figure,) = select_figures([self.number])
        return self.only(figure)


EXPECTED: Mapping[str, Answer] = {
    "5.2.1": "yes",
    "4": "yes",
    "8": "yes",
    "9a": "yes",
    "9b": "yes",
    "9c": "yes",
    "9d": "yes",
    "10": "yes",
    "11": "yes",
    "12-13": "yes",
    "14": "no",
    "15": "yes",
    "16": "no",
    "17": "no",
    "18": "yes",
    "19a": "yes",
    "19b": "yes",
    "19c": "yes",
    "unequal-links": "yes",
    "20": "no",
    "21": "yes",
    "text-planes": "no",
    "text-remap": "yes",
    "text-lossy-nic": "yes",
    "text-probes": "yes",
    "text-ecmp": "no",
    "failover": "yes",
    "ablation": "yes",
}
"""What the table says of each figure, in the simulator, with the first seed. (Of 18 it says *no*,
for a check that is not judged in short.)"""

NOT_IN_SHORT = {
    "5": "its flaps follow one another too slowly",
    "6-7": "steps of the job before, during and after the flaps need all of the time",
    "16x64": "64 hosts",
    "17x64": "64 hosts",
    "22": "its flows arrive over 0.12 s of real time",
    "scale": "512 hosts",
    "text-transceiver": "its queue pairs try for most of the time",
}
"""Those that take all of their time, or far more packets than a test should send, and why. Like all
others they are judged by made-up numbers (test_judging.py)."""


def checks_of(short: Short, directory: Path) -> list[Check]:
    """What a figure says of short runs; they are drawn as well.

    Args:
        short: which.
        directory: where its runs go.

    Raises:
        AssertionError: a run is invalid, so that the table would not count it.
    """
    figure = short.figure
    variants = figure.variants_in("simulated")
    runs = {variant.name: _made(variant, short.factor, directory) for variant in variants}
    with style():
        figure.draw(runs)
    checks = figure.measure(runs)
    assert {*short.without} <= {check.what for check in checks}
    return [check for check in checks if check.what not in short.without]


def missed_where_broken(
    short: Short, directory: Path, broken: Mapping[str, Mapping[str, Any]]
) -> set[str]:
    """What does not hold where runs are broken; the others are made up, as the paper saw them.

    Args:
        short: the figure.
        directory: where the broken runs go.
        broken: changes of runs by their names, that take from them what the paper saw.
    """
    figure = short.figure
    made_up = CASES[short.number].runs()
    made = {
        variant.name: _made(
            replace(variant, changes={**variant.changes, **broken[variant.name]}, with_seed=None),
            short.factor,
            directory,
        )
        for variant in figure.variants
        if variant.name in broken
    }
    assert {*made} == {*broken} <= {*made_up}
    return {check.what for check in figure.measure({**made_up, **made}) if not check.holds}


def _made(variant: Variant, factor: float, directory: Path) -> Result:
    """A variant's run, so much of its time.

    Raises:
        AssertionError: it is invalid, so that the table would not count it.
    """
    planned = plan_variant(variant, "simulated")
    scenario = planned.scenario.stretched(factor)
    place = directory / variant.name
    place.mkdir()
    simulate(scenario, place)
    data = load_run(place)
    (place / SUMMARY).write_text(summarise(data, flow_tables(data)).model_dump_json())
    run = Result(place)
    assert planned.verdict(run.summary) != "invalid", (variant.name, run.summary.reasons)
    return run


def assert_row(short: Short, directory: Path) -> None:
    """Assert that a figure comes out as the table has it, every miss with its reason."""
    checks = checks_of(short, directory)
    missed = [check for check in checks if not check.holds]
    assert {check.what for check in missed} == {*short.misses}, missed
    assert all(short.figure.reason(check.what) or check.equal for check in missed)
    checked = tuple(CheckOutcome.of(short.figure, check) for check in checks)
    outcome = FigureOutcome(number=short.number, form="simulated", checks=checked)
    assert outcome.holds == EXPECTED[short.number]
    assert all(any(check.what in line for line in outcome.reasons) for check in missed)
