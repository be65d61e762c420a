"""One HTML file with every figure beside what the paper saw; nothing is loaded from elsewhere."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from testbed.paper.figure import FORMS, Form, PaperFigure
from testbed.paper.outcome import Answer, Checked, MadeRun, Outcome, Shelf


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a figure says: what must hold, and what was measured in each form."""

    what: str
    bound: str
    checks: dict[Form, Checked]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure in the report.

    Attributes:
        figure: which.
        outcomes: what became of it in each form; None where it was never made.
        shelves: where its drawings are.
    """

    figure: PaperFigure
    outcomes: Mapping[Form, Outcome | None]
    shelves: Mapping[Form, Shelf]

    @property
    def made(self) -> tuple[Outcome, ...]:
        """What became of it, of the forms in which it was made."""
        return tuple(one for one in self.outcomes.values() if one is not None)

    @property
    def holds(self) -> Answer:
        """Whether what the paper saw was seen here, in every form that can be trusted.

        What is emulated may be less than what is simulated: one does not stand for the other.
        """
        answers = {one.holds for one in self.made}
        order: tuple[Answer, ...] = ("no", "yes", "not trusted")
        return next((answer for answer in order if answer in answers), "not run")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known beside the answer: why not, and which runs cannot be trusted.

        Of forms that count for the answer; what another one came to is beside its drawing.
        """
        doubts = [f"{one.form}: {one.doubt}" for one in self.made if one.doubt]
        reasons = [why for one in self.made if one.holds == "no" for why in one.reasons]
        return (*dict.fromkeys(doubts), *dict.fromkeys(reasons))

    @property
    def lines(self) -> tuple[Line, ...]:
        """What was measured, each once, with what it came to in each form."""
        found: dict[str, Line] = {}
        for one in self.made:
            for check in one.checks:
                line = found.setdefault(check.what, Line(check.what, check.bound, {}))
                line.checks[one.form] = check
        return tuple(found.values())

    def picture(self, form: Form) -> Path | None:
        """The drawing of a form, where there is one."""
        file = self.shelves[form].picture(self.figure)
        return file if file.is_file() else None

    def instead(self, form: Form) -> str:
        """Why there is nothing in a form."""
        if not self.figure.variants_in(form):
            return "; ".join(self.figure.excluded(form))
        one = self.outcomes[form]
        if one is not None and not one.checks:
            return f"broke off: {one.state}"
        return "made by `make figures-full`" if self.figure.large else "not run"


def render(rows: Sequence[Row]) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("testbed.paper"), PackageLoader("testbed.results.report")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inlined": _inlined}
    answers = [row.holds for row in rows]
    runs = [run for row in rows for one in row.made for run in one.runs]
    return environment.get_template("paper.html.j2").render(
        rows=rows,
        forms=FORMS,
        made=len(answers) - answers.count("not run"),
        counts={answer: answers.count(answer) for answer in get_args(Answer)},
        machines=_machines(runs),
        commits=commits_of(runs),
    )


_MACHINE = ("cpus", "cpu", "kernel", "core")


def _manifests(runs: Sequence[MadeRun]) -> list[dict[str, Any]]:
    """What the runs were made of, of those whose directories are still there."""
    return [json.loads(run.manifest) for run in runs if run.manifest is not None]


def _machines(runs: Sequence[MadeRun]) -> list[dict[str, str]]:
    """On what the emulated runs were made, each machine once."""
    emulated = [run for run in runs if run.expected_load is not None]
    found = [{key: str(one[key]) for key in _MACHINE} for one in _manifests(emulated)]
    return [one for i, one in enumerate(found) if one not in found[:i]]


def commits_of(runs: Sequence[MadeRun]) -> tuple[str, ...]:
    """Of which states of this project emulated runs are, each once; `+` marks one with changes.

    Simulated ones do not tell.
    """
    states = [git for one in _manifests(runs) if (git := one.get("git"))]
    names = (f"{one['commit'][:12]}{'+' if one['modified'] else ''}" for one in states)
    return tuple(dict.fromkeys(names))


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table, for programs."""
    return [
        {
            "figure": row.figure.number,
            "title": row.figure.title,
            "saw": row.figure.saw,
            "holds": row.holds,
            "notes": row.notes,
            **{form: _outcome(row, form) for form in FORMS},
        }
        for row in rows
    ]


def as_markdown(rows: Sequence[Row]) -> str:
    """The table for documents: a line for each figure and form that was made."""
    cells = [("figure", "the paper saw", "form", "measured", "holds"), ("---",) * 5]
    for figure, one in ((row.figure, one) for row in rows for one in row.made):
        measured = "; ".join(f"{check.what}: {check.measured}" for check in one.checks)
        reasons = "; ".join(one.reasons) if one.holds == "no" else ""
        why = f": {reasons}" if reasons else ""
        doubt = f" ({one.doubt})" if one.doubt else ""
        holds = f"{one.holds}{doubt}{why}"
        cells.append((figure.number, figure.saw, one.form, measured or one.state, holds))
    return "".join(f"| {' | '.join(one.replace('|', '/') for one in row)} |\n" for row in cells)


def _outcome(row: Row, form: Form) -> dict[str, Any]:
    one = row.outcomes[form]
    if one is None:
        return {"holds": "not run", "why": row.instead(form)}
    return {
        "holds": one.holds,
        "verdict": one.verdict,
        **json.loads(one.model_dump_json(exclude={"number", "form"})),
    }


def _inlined(picture: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.read_bytes()).decode()}"
