"""The rows of the paper as a document: claim, commands, figures, verdict."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.model.flows import LINKS_ACROSS, LINKS_WITHIN, flows_of, links_crossed
from testbed.model.transport import Mrc
from testbed.runs.job import FORMS, Form
from testbed.studies.paper.planning import scenario_as_written
from testbed.studies.paper.published import PublishedOutcome
from testbed.studies.paper.report import ReportRow, apart, counts_of

if TYPE_CHECKING:
    from testbed.studies.paper.outcome import Answer

Row = ReportRow[PublishedOutcome]

WIDTH = 120
"""Columns of the document's prose; tables are as wide as they are."""


def picture_name(number: str, form: Form) -> str:
    """The file name of a figure's drawing beside the document."""
    return f"{number}-{form}.png"


def sums_of(rows: Sequence[Row]) -> tuple[str, str, str]:
    """How many rows of the paper hold, how many do not, and how many of our own studies hold."""
    paper, own = apart(rows)
    counts, of_own = counts_of(paper), counts_of(own)
    others: dict[Answer, str] = {
        "no": "do not",
        "not trusted": "cannot be trusted",
        "not run": "were not made",
    }
    return (
        f"{counts['yes']} of {len(paper)} rows of the paper hold",
        ", ".join(f"{counts[answer]} {word}" for answer, word in others.items() if counts[answer]),
        f"own studies: {of_own['yes']} of {len(own)} hold",
    )


def as_document(rows: Sequence[Row], pictures: str, drawn: Collection[str]) -> str:
    """The rows as Markdown: a table of all, then a section for each.

    Args:
        rows: in the paper's order.
        pictures: the directory of the drawings, relative to the document; in it they have the
            names of `picture_name`.
        drawn: the names of the drawings that are there.
    """
    environment = Environment(
        loader=PackageLoader("testbed.studies.paper"),
        autoescape=False,  # noqa: S701 - Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": _anchor,
        "evs": _evs,
        "cell": lambda text: text.replace("|", "/"),
        "picture": picture_name,
        "seeds": _seeds,
    }
    kept = [outcome for row in rows for outcome in row.existing]
    document = environment.get_template("rows.md.j2").render(
        rows=rows,
        pictures=pictures,
        drawn=drawn,
        sums=sums_of(rows),
        groups=dict(zip(("row of the paper", "own study"), apart(rows), strict=True)),
        machines=tuple(dict.fromkeys(machine for outcome in kept for machine in outcome.machines)),
    )
    return "".join(f"{line}\n" for line in _wrapped(document.splitlines()))


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a document, with none of its prose wider than `WIDTH`."""
    listing = False
    for line in lines:
        listing ^= line.startswith("```")
        if listing or not line or line.startswith(("|", "#", "!", "```")):
            yield line
        else:
            indent = "  " if line.startswith("- ") else ""
            yield from textwrap.wrap(
                line,
                WIDTH,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )


def _anchor(row: Row) -> str:
    """The anchor of a row's heading, as GitHub and MkDocs make it."""
    heading = f"{row.figure.number}: {row.figure.text.title}".lower()
    letters = "".join(letter for letter in heading if letter.isalnum() or letter in " -_")
    return letters.replace(" ", "-")


def _evs(row: Row) -> str:
    """How many EVs the queue pairs of MRC's runs have, between racks and within one."""
    counts: dict[int, set[int]] = {LINKS_ACROSS: set(), LINKS_WITHIN: set()}
    for variant in row.figure.variants:
        form = next(form for form in FORMS if form not in variant.excluded)
        scenario = scenario_as_written(variant, form)
        topology, transport = scenario.topology, scenario.transport
        if not isinstance(transport, Mrc):
            continue
        flows = {links_crossed(topology, flow): flow for flow in flows_of(scenario)}
        for links, flow in flows.items():
            ends = topology, flow.src, flow.dst
            evs = transport.choose_evs(*ends, lane=flow.lane, seed=scenario.seed)
            counts[links].add(len(evs))
    places = {LINKS_ACROSS: "between racks", LINKS_WITHIN: "within a rack"}
    return "; ".join(
        f"{', '.join(map(str, sorted(counts[links])))} {place}"
        for links, place in places.items()
        if counts[links]
    )


def _seeds(row: Row, form: Form) -> int:
    """With how many seeds the row was made, or would be."""
    outcome = row.outcomes[form]
    made = () if outcome is None else outcome.seeds
    return len(made or row.figure.seeds_in(form, 1))
