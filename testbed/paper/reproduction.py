"""Figures of the paper, from the runs that they need to the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.model.errors import InputError, Problem, did_you_mean
from testbed.model.progress import Progress
from testbed.paper.figure import FORMS, Form, PaperFigure
from testbed.paper.fitting import Machine
from testbed.paper.making import REPEAT_S, make
from testbed.paper.outcome import Outcome, Shelf, judge
from testbed.paper.registry import FIGURES
from testbed.paper.report import Row, as_json, as_markdown, render
from testbed.paper.runs import Order, order, verdict
from testbed.results.run_directory import RunDirectory


def chosen(numbers: Sequence[str], *, large: bool = False) -> tuple[PaperFigure, ...]:
    """The figures of these numbers, in the paper's order; all if there are none.

    Of all, those that are large only if these are asked for.

    Raises:
        InputError: there is no such figure.
    """
    known = {name: figure for figure in FIGURES for name in figure.names}
    unknown = [number for number in numbers if number not in known]
    if unknown:
        expected = f"one of {', '.join(known)}"
        raise InputError([Problem("FIG", unknown[0], expected, did_you_mean(unknown[0], [*known]))])
    if not numbers:
        return tuple(one for one in FIGURES if large or not one.large)
    return tuple(one for one in FIGURES if {*one.names} & {*numbers})


def forms_of(figure: PaperFigure, wanted: Sequence[Form]) -> tuple[Form, ...]:
    """In which forms a figure is made, of those wanted; in the other if it can be made in none."""
    able = tuple(form for form in FORMS if figure.variants_in(form))
    return tuple(form for form in able if form in wanted) or able


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done.

    Attributes:
        directory: where everything goes: runs, `figures/`, `report.html`, the table.
        orders: the runs of each figure, by the form in which it is made.
        due: those of them that are to be made.
    """

    directory: Path
    orders: Mapping[tuple[str, Form], Sequence[Order]]
    due: Sequence[Order]

    @property
    def forms(self) -> tuple[Form, ...]:
        """In which forms anything is made."""
        return tuple(form for form in FORMS if any(made == form for _, made in self.orders))


def plan(
    figures: Sequence[PaperFigure],
    directory: Path,
    forms: Sequence[Form],
    *,
    seeds: int = 1,
    again: bool = False,
    machine: Machine | None = None,
) -> Plan:
    """What has to be run for some figures.

    Args:
        figures: which.
        directory: where everything goes.
        forms: how their runs are made; a figure that can be made in none of them, in the other.
        seeds: with how many seeds, from 1 on, at least; figures may need more, large ones
            are made with as many as they need.
        again: whether to make runs that are there.
        machine: what is known of it (see `order`).

    Raises:
        InputError: a scenario is wrong, or the directory cannot be written to.
    """
    known: dict[tuple[Form, str, int], Order] = {}
    orders: dict[tuple[str, Form], list[Order]] = {}
    try:
        for figure in figures:
            for form in forms_of(figure, forms):
                own = orders.setdefault((figure.number, form), [])
                for seed in figure.seeds_in(form, seeds):
                    for variant in figure.variants_in(form):
                        key = form, variant.name, seed
                        if key not in known:
                            known[key] = order(variant, directory / form, form, seed, machine)
                        own.append(known[key])
    except OSError as error:
        expected = f"a directory to write to ({error.strerror})"
        raise InputError([Problem("--results", str(directory), expected)]) from error
    return Plan(directory, orders, [one for one in known.values() if again or _is_due(one)])


def reproduce(
    figures: Sequence[PaperFigure],
    planned: Plan,
    progress: Progress,
    emulated_s: float = REPEAT_S,
) -> tuple[Outcome, ...]:
    """Make the runs that are due, judge and draw the figures, and write the report.

    The report tells of all figures: of those that are not asked for, what became of them when they
    were last made.

    Args:
        figures: which.
        planned: their runs.
        progress: told how far it is.
        emulated_s: how long emulated runs may take, with those that are tried again.

    Returns:
        What became of the figures asked for, in each of the forms.
    """
    failures = make(planned.due, progress, emulated_s)
    shelves = {form: Shelf(planned.directory / "figures", form) for form in FORMS}
    outcomes = []
    for number, figure in enumerate(figures):
        progress(f"drawing {figure.number}", number / len(figures))
        outcomes += [
            judge(figure, planned.orders[figure.number, form], failures, shelves[form])
            for form in FORMS
            if (figure.number, form) in planned.orders
        ]
    rows = [
        Row(figure, {form: shelves[form].kept(figure) for form in FORMS}, shelves)
        for figure in FIGURES
    ]
    place = RunDirectory(planned.directory)
    place.write("report.html", render(rows))
    place.write("table.json", json.dumps(as_json(rows), indent=1) + "\n")
    place.write("table.md", as_markdown(rows))
    return tuple(outcomes)


def _is_due(one: Order) -> bool:
    """Whether a run is missing, or could not be trusted and may be another time."""
    run = one.finished()
    if run is None:
        return True
    return one.form == "emulated" and verdict(one.variant, run.summary) != "trusted"
