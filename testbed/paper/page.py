"""The rows of the paper as a document: claim, commands, figures, verdict."""

from collections.abc import Sequence
from typing import get_args

from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.campaign.job import Form
from testbed.paper.outcome import Answer
from testbed.paper.report import ReportRow, commits_of, machines_of


def picture_name(row: ReportRow, form: Form) -> str:
    """The file name of a drawing beside the document."""
    return f"{row.figure.number}-{form}.png"


def as_document(rows: Sequence[ReportRow], pictures: str) -> str:
    """The rows as Markdown: a table of all, then a section for each.

    Args:
        rows: in the paper's order.
        pictures: the directory of the drawings, relative to the document; in it they have the
            names of `picture_name`.
    """
    environment = Environment(
        loader=PackageLoader("testbed.paper"),
        autoescape=False,  # noqa: S701 - Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": _anchor,
        "cell": lambda text: text.replace("|", "/"),
        "picture": picture_name,
        "seeds": _seeds,
    }
    answers = [row.holds for row in rows]
    runs = [run for row in rows for outcome in row.existing for run in outcome.runs]
    return environment.get_template("rows.md.j2").render(
        rows=rows,
        pictures=pictures,
        counts={answer: answers.count(answer) for answer in get_args(Answer)},
        machines=machines_of(runs),
        commits=commits_of(runs),
    )


def _anchor(row: ReportRow) -> str:
    """The anchor of a row's heading, as GitHub and MkDocs make it."""
    heading = f"{row.figure.number}: {row.figure.text.title}".lower()
    letters = "".join(letter for letter in heading if letter.isalnum() or letter in " -_")
    return letters.replace(" ", "-")


def _seeds(row: ReportRow, form: Form) -> int:
    """With how many seeds the row was made, or would be."""
    outcome = row.outcomes[form]
    return len(outcome.seeds) if outcome is not None and outcome.seeds else row.figure.seeds
