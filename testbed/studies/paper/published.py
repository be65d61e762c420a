"""The results that documents are made of: those of many campaigns, added up in one file.

The runs themselves are not kept. Of each figure and form the file has its checks with their bounds,
and what each seed came to. Results of seeds add up as long as the runs are set up in the same way
and the same is checked; bounds do not move while they do.

The rows of the paper are written as a document from them: claim, commands, figures, verdict.
"""

import json
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from testbed.model.errors import InputError
from testbed.model.flows import LINKS_ACROSS, LINKS_WITHIN, flows_of, links_crossed
from testbed.model.summary import State
from testbed.model.summary.unit import MaybeNever
from testbed.model.transport import Mrc
from testbed.results.report.html import template
from testbed.runs.job import FORMS, STATES, Form
from testbed.studies.paper.figure import Check, PaperFigure
from testbed.studies.paper.outcome import CheckOutcome, FigureOutcome, Outcome, trust_note_of
from testbed.studies.paper.planning import FIGURES, scenario_as_written
from testbed.studies.paper.report import ReportRow, apart, commits_of, counts_of, machines_of

if TYPE_CHECKING:
    from testbed.studies.paper.outcome import Answer


_FIGURES = {figure.number: figure for figure in FIGURES}
_DIGITS = 6
"""Of a value in the file: more than documents show."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishedCheck(_Model):
    """What a check measures, and its bounds (see `Check`); null where it has none."""

    what: str
    low: float | None
    high: float | None
    form: str
    equal: str = ""

    def of(self, figure: PaperFigure, values: Sequence[float]) -> CheckOutcome:
        """Its result with these values, of a figure."""
        low = -float("inf") if self.low is None else self.low
        high = float("inf") if self.high is None else self.high
        check = Check(self.what, tuple(values), low, high, self.form, self.equal)
        return CheckOutcome.of(figure, check)


class PublishedSeeds(_Model):
    """What a seed came to, or several that were judged together.

    Attributes:
        seeds: which.
        values: those of each check: one for each seed, or, if only these are known, the least, the
            median and the greatest.
        verdict: the worst of the runs.
        runs: how many runs there were.
        trusted: how many of them could be trusted.
        commit: that of emulated runs, or the version of the code that simulated ones were made by.
        machine: that of emulated runs; empty for simulated ones.
        bytes_damaged: payload that the runs lost for good or corrupted.
    """

    seeds: tuple[int, ...]
    values: tuple[tuple[MaybeNever, ...], ...]
    verdict: State = "trusted"
    runs: int
    trusted: int
    commit: str = ""
    machine: str = ""
    bytes_damaged: int = 0


class PublishedOutcome(Outcome):
    """The results of a figure in one form, as documents show them.

    Attributes:
        results: what its seeds came to.
    """

    results: tuple[PublishedSeeds, ...] = ()

    @property
    def verdict(self) -> State:
        """The worst verdict of its runs."""
        return max((result.verdict for result in self.results), key=STATES.index, default="trusted")

    @property
    def bytes_damaged(self) -> int:
        """Payload that its runs lost for good or corrupted."""
        return sum(result.bytes_damaged for result in self.results)

    @property
    def trust_note(self) -> str:
        """How many of its runs can be trusted; empty if all can."""
        return trust_note_of(
            sum(r.trusted for r in self.results), sum(r.runs for r in self.results)
        )

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines of emulated runs."""
        return tuple(result.machine for result in self.results if result.machine)

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits of emulated runs."""
        return tuple(result.commit for result in self.results if result.machine)


class PublishedFigure(_Model):
    """The results of a figure in one form.

    Attributes:
        figure: its number.
        form: how its runs were made.
        setup: the digest of what they are (see `setup_of`).
        checks: what was measured.
        results: what its seeds came to; no seed is in two of them.
    """

    figure: str
    form: Form
    setup: str
    checks: tuple[PublishedCheck, ...]
    results: tuple[PublishedSeeds, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """All its seeds."""
        return tuple(sorted(seed for result in self.results for seed in result.seeds))

    @property
    def outcome(self) -> PublishedOutcome:
        """It as documents show it."""
        figure = _FIGURES[self.figure]
        checks = tuple(
            check.of(figure, [value for result in self.results for value in result.values[place]])
            for place, check in enumerate(self.checks)
        )
        return PublishedOutcome(
            number=self.figure,
            form=self.form,
            checks=checks,
            seeds=self.seeds,
            results=self.results,
        )


def published_figure(figure: PaperFigure, outcome: FigureOutcome) -> PublishedFigure:
    """What is published of the outcome of a figure, while the directories of its runs are there."""
    if figure.compares_seeds:
        parts = {outcome.seeds: tuple(check.values for check in outcome.checks)}
    else:
        parts = {
            (seed,): tuple((check.values[place],) for check in outcome.checks)
            for place, seed in enumerate(outcome.seeds)
        }
    results = tuple(_published_seeds(outcome, seeds, values) for seeds, values in parts.items())
    fields = set(PublishedCheck.model_fields)
    checks = tuple(
        PublishedCheck.model_validate(check.model_dump(mode="json", include=fields))
        for check in outcome.checks
    )
    return PublishedFigure(
        figure=figure.number,
        form=outcome.form,
        setup=outcome.setup,
        checks=checks,
        results=results,
    )


def _published_seeds(
    outcome: FigureOutcome, seeds: tuple[int, ...], values: tuple[tuple[float, ...], ...]
) -> PublishedSeeds:
    runs = [run for run in outcome.runs if run.seed in seeds]
    codes = [json.loads(run.manifest)["code"] for run in runs if run.manifest is not None]
    machines = [
        f"{machine['cpus']} CPUs ({machine['cpu']}), kernel {machine['kernel']}, "
        f"protocol core in {machine['core']}"
        for machine in machines_of(runs)
    ]
    emulated = outcome.form == "emulated"
    return PublishedSeeds(
        seeds=seeds,
        values=tuple(
            tuple(float(f"{value:.{_DIGITS}g}") for value in of_check) for of_check in values
        ),
        verdict=max((run.verdict for run in runs), key=STATES.index, default="trusted"),
        runs=len(runs),
        trusted=sum(run.verdict == "trusted" for run in runs),
        commit=", ".join(commits_of(runs) if emulated else dict.fromkeys(codes)),
        machine="; ".join(machines),
        bytes_damaged=sum(run.bytes_damaged for run in runs),
    )


def merged(
    known: PublishedFigure, made: PublishedFigure, *, compares_seeds: bool
) -> PublishedFigure:
    """The results of both: seeds add up.

    Of a seed that is in both, the new result counts, unless its runs have a worse verdict. Results
    of several seeds that were judged together are replaced by those of as many seeds at least.
    Results that were set up or checked otherwise do not add up: the new ones replace them.

    Raises:
        InputError: a bound moved while all else stayed as it was, or the new results are of a part
            of the runs.
    """
    before, after = ([check.what for check in figure.checks] for figure in (known, made))
    if known.setup == made.setup and {*after} < {*before} and _runs(made) < _runs(known):
        place, missing = f"{made.figure}, {made.form}", len(before) - len(after)
        expected = f"{len(before)} checks, as in the published results ({missing} are missing)"
        remedy = "with one seed some runs are not emulated: make it with --seeds 3"
        raise InputError.of(place, f"{len(after)} checks", expected, remedy)
    if known.setup != made.setup or before != after:
        return made
    if compares_seeds:
        return made if {*made.seeds} >= {*known.seeds} else known
    for old_check, check in zip(known.outcome.checks, made.outcome.checks, strict=True):
        if old_check.bound != check.bound:
            place = f"{made.figure}, {made.form}: {check.what}"
            expected = f"{old_check.bound}, as in the published results"
            remedy = "bounds do not move after a run: a new setup of the runs gets new bounds"
            raise InputError.of(place, check.bound, expected, remedy)
    results = {result.seeds: result for result in known.results}
    for new in made.results:
        old = results.get(new.seeds)
        if old is None or STATES.index(new.verdict) <= STATES.index(old.verdict):
            results[new.seeds] = new
    single = {seeds for seeds in results if len(seeds) == 1}
    covered = {seed for seeds in single for seed in seeds}
    groups = [seeds for seeds in results if len(seeds) > 1 and not covered.issuperset(seeds)]
    in_groups = {seed for seeds in groups for seed in seeds}
    counted = [*groups, *(seeds for seeds in single if in_groups.isdisjoint(seeds))]
    return made.model_copy(update={"results": tuple(results[seeds] for seeds in sorted(counted))})


def _runs(figure: PublishedFigure) -> float:
    """How many runs each of its seeds has at least."""
    return min(result.runs / len(result.seeds) for result in figure.results)


@dataclass(frozen=True)
class PublishedResults:
    """All that is published, by figure and form."""

    figures: Mapping[tuple[str, Form], PublishedFigure]

    @cached_property
    def outcomes(self) -> Mapping[tuple[str, Form], PublishedOutcome]:
        """As documents show it."""
        return {key: figure.outcome for key, figure in self.figures.items()}

    def adding(self, made: Iterable[PublishedFigure]) -> "PublishedResults":
        """These results and others (see `merged`)."""
        all_figures = dict(self.figures)
        comparing = {figure.number for figure in FIGURES if figure.compares_seeds}
        for new in made:
            key = new.figure, new.form
            known = all_figures.get(key)
            compares = new.figure in comparing
            all_figures[key] = new if known is None else merged(known, new, compares_seeds=compares)
        return PublishedResults(all_figures)


def read_results(file: Path) -> PublishedResults:
    """The results in a file; none if there is no such file."""
    if not file.is_file():
        return PublishedResults({})
    figures = map(PublishedFigure.model_validate, json.loads(file.read_text(encoding="utf-8")))
    return PublishedResults({(figure.figure, figure.form): figure for figure in figures})


def write_results(file: Path, results: PublishedResults) -> None:
    """Write a file: a check and the result of a seed are a line each, so that versions compare."""
    order = [(figure.number, form) for figure in FIGURES for form in FORMS]
    known = [results.figures[key] for key in order if key in results.figures]
    file.write_text("[" + ",".join(map(_lines, known)) + "\n]\n", encoding="utf-8")


def _lines(figure: PublishedFigure) -> str:
    data: dict[str, Any] = figure.model_dump(mode="json", exclude_defaults=True)
    head = ", ".join(f'"{key}": {json.dumps(data[key])}' for key in ("figure", "form", "setup"))
    lists = ",\n  ".join(
        f'"{key}": [\n    ' + ",\n    ".join(map(json.dumps, data[key])) + "\n  ]"
        for key in ("checks", "results")
    )
    return f"\n{{ {head},\n  {lists} }}"


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
    page = template(
        "rows.md.j2",
        "testbed.studies.paper",
        escaped=False,
        anchor=_anchor,
        evs=_evs,
        cell=lambda text: text.replace("|", "/"),
        picture=picture_name,
        seeds=_seeds,
    )
    kept = [outcome for row in rows for outcome in row.existing]
    document = page.render(
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
