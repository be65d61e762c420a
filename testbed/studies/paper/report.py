"""One HTML file with every figure beside what the paper observed; it loads nothing else."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from testbed.results.report.html import template
from testbed.runs.job import FORMS, Form
from testbed.studies.paper.figure import PaperFigure
from testbed.studies.paper.outcome import (
    Answer,
    CheckOutcome,
    FigureOutcome,
    FigureRun,
    Outcome,
    OutcomeStore,
    by_cause,
)

OutcomeT_co = TypeVar("OutcomeT_co", bound=Outcome, covariant=True)


@dataclass(frozen=True, slots=True)
class Line:
    """A check of a figure: what must hold, and what was measured in each form."""

    what: str
    checks: dict[Form, CheckOutcome]

    @property
    def is_judged(self) -> bool:
        """Whether it has bounds; else its values are only shown."""
        return any(check.is_judged for check in self.checks.values())

    @property
    def bound(self) -> str:
        """What must hold. It differs between the forms where MRC's own variation is the bound."""
        bounds = dict.fromkeys(check.bound for check in self.checks.values())
        if len(bounds) == 1:
            return next(iter(bounds))
        return "; ".join(f"{check.bound} {form}" for form, check in self.checks.items())


@dataclass(frozen=True, slots=True)
class ReportRow(Generic[OutcomeT_co]):
    """A figure in the report.

    Attributes:
        figure: which.
        outcomes: its outcome in each form; None where it was never made.
        outcome_stores: where its drawings are.
    """

    figure: PaperFigure
    outcomes: Mapping[Form, OutcomeT_co | None]
    outcome_stores: Mapping[Form, OutcomeStore]

    @property
    def existing(self) -> tuple[OutcomeT_co, ...]:
        """Its outcomes in the forms in which it was made."""
        return tuple(outcome for outcome in self.outcomes.values() if outcome is not None)

    @property
    def holds(self) -> Answer:
        """Whether what the paper observed was observed here, in every form that can be trusted.

        Fewer runs may be emulated than simulated: one form does not replace the other.
        """
        answers = {outcome.holds for outcome in self.existing}
        order: tuple[Answer, ...] = ("no", "yes", "not trusted")
        return next((answer for answer in order if answer in answers), "not run")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the answer: how many runs cannot be trusted, and why checks do not hold.

        Checks that do not hold for the same reason have one note.
        Reasons are given only of forms that do not hold; the state of the others is beside their
        drawing.
        """
        trust = [
            f"{outcome.form}: {outcome.trust_note}"
            for outcome in self.existing
            if outcome.trust_note
        ]
        damage = [f"{outcome.form}: {what}" for outcome in self.existing for what in outcome.damage]
        missed: dict[tuple[str, str], list[str]] = {}
        for outcome in self.existing:
            for check in outcome.missed:
                values = missed.setdefault((check.cause, check.what), [])
                values.append(f"{check.measured} {outcome.form}")
        reasons = by_cause(
            (cause, f"{what}: {', '.join(of)}") for (cause, what), of in missed.items()
        )
        return (*dict.fromkeys(trust), *damage, *reasons)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Each check once, with its result in each form."""
        lines: dict[str, Line] = {}
        for outcome in self.existing:
            for check in outcome.checks:
                line = lines.setdefault(check.what, Line(check.what, {}))
                line.checks[outcome.form] = check
        return tuple(lines.values())

    def picture(self, form: Form) -> Path | None:
        """The drawing of a form; None if there is none."""
        file = self.outcome_stores[form].picture(self.figure)
        return file if file.is_file() else None

    def instead(self, form: Form) -> str:
        """Why there is nothing in a form."""
        if not self.figure.variants_in(form):
            return "; ".join(self.figure.excluded(form))
        outcome = self.outcomes[form]
        if outcome is not None and not outcome.checks:
            return f"broke off: {outcome.state}"
        return "made by `make figures-full`" if self.figure.large else "not run"


def apart(
    rows: Sequence[ReportRow[OutcomeT_co]],
) -> tuple[Sequence[ReportRow[OutcomeT_co]], Sequence[ReportRow[OutcomeT_co]]]:
    """The rows of the paper, and those of our own studies."""
    return (
        [row for row in rows if not row.figure.is_own],
        [row for row in rows if row.figure.is_own],
    )


def counts_of(rows: Sequence[ReportRow[OutcomeT_co]]) -> dict[Answer, int]:
    """How many rows have each answer."""
    answers = [row.holds for row in rows]
    return {answer: answers.count(answer) for answer in get_args(Answer)}


def render(rows: Sequence[ReportRow[FigureOutcome]]) -> str:
    """The report as HTML."""
    page = template("paper.html.j2", "testbed.studies.paper", inlined=_inlined)
    counts, own = (counts_of(some) for some in apart(rows))
    runs = [run for row in rows for outcome in row.existing for run in outcome.runs]
    return page.render(
        rows=rows,
        forms=FORMS,
        counts=counts,
        own=own,
        machines=machines_of(runs),
        commits=commits_of(runs),
        changed=any(outcome.overrides for row in rows for outcome in row.existing),
    )


_MACHINE = ("cpus", "cpu", "kernel", "core")


def _manifests(runs: Sequence[FigureRun]) -> list[dict[str, Any]]:
    """The manifests of runs whose directories are still there."""
    return [json.loads(run.manifest) for run in runs if run.manifest is not None]


def machines_of(runs: Sequence[FigureRun]) -> list[dict[str, str]]:
    """The machines on which the emulated runs were made, each once."""
    emulated = [run for run in runs if run.expected_load is not None]
    machines = [tuple(str(manifest[key]) for key in _MACHINE) for manifest in _manifests(emulated)]
    return [dict(zip(_MACHINE, machine, strict=True)) for machine in dict.fromkeys(machines)]


def commits_of(runs: Sequence[FigureRun]) -> tuple[str, ...]:
    """The commits that emulated runs were made of, each once; `+` marks one with changes.

    Manifests of simulated runs do not say.
    """
    states = [git for manifest in _manifests(runs) if (git := manifest.get("git"))]
    names = (f"{state['commit'][:12]}{'+' if state['modified'] else ''}" for state in states)
    return tuple(dict.fromkeys(names))


def as_json(rows: Sequence[ReportRow[FigureOutcome]]) -> list[dict[str, Any]]:
    """The table, for programs."""
    return [
        {
            "figure": row.figure.number,
            "title": row.figure.text.title,
            "saw": row.figure.text.observed,
            "holds": row.holds,
            "notes": row.notes,
            **{form: _outcome(row, form) for form in FORMS},
        }
        for row in rows
    ]


def as_markdown(rows: Sequence[ReportRow[FigureOutcome]]) -> str:
    """The table for documents: a line for each figure and form that was made."""
    cells = [("figure", "the paper saw", "form", "measured", "holds"), ("---",) * 5]
    for figure, outcome in ((row.figure, outcome) for row in rows for outcome in row.existing):
        measured = "; ".join(f"{check.what}: {check.measured}" for check in outcome.checks)
        reasons = ". ".join(outcome.reasons)
        why = f": {reasons}" if reasons else ""
        trust_note = f" ({outcome.trust_note})" if outcome.trust_note else ""
        holds = f"{outcome.holds}{trust_note}{why}"
        number = f"{figure.number} with {outcome.overrides}" if outcome.overrides else figure.number
        measured = measured or outcome.state
        cells.append((number, figure.text.observed, outcome.form, measured, holds))
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in cells)


def _outcome(row: ReportRow[FigureOutcome], form: Form) -> dict[str, Any]:
    outcome = row.outcomes[form]
    if outcome is None:
        return {"holds": "not run", "why": row.instead(form)}
    return {
        "holds": outcome.holds,
        "verdict": outcome.verdict,
        **json.loads(outcome.model_dump_json(exclude={"number", "form"})),
    }


def _inlined(picture: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.read_bytes()).decode()}"
