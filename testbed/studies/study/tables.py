"""The tables of a study: a row for each case, a column for each scenario, a table for a metric."""

import csv
import io
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller

from testbed.results.analysis.estimates import CONFIDENCE, interval_meaning
from testbed.results.comparison import Cell, Row, row_of
from testbed.results.report.comparison_report import format_estimate
from testbed.studies.study.file import Shown, StudyFile
from testbed.studies.study.judging import Cells, Judgement

RUNS = "runs.csv"
"""The table of single runs, with their verdicts."""

LABEL = 16
"""So many characters of a scenario's name stand on a line."""


@dataclass(frozen=True, slots=True)
class Table:
    """A metric of all cases in all scenarios.

    Attributes:
        shown: the metric.
        cases: their names.
        rows: a row for each scenario, whose cells are those of the cases.
        untrusted: how many of its runs were not trusted.
    """

    shown: Shown
    cases: tuple[str, ...]
    rows: tuple[Row, ...]
    untrusted: int = 0

    @property
    def stem(self) -> str:
        """The name of its files, without suffix."""
        return self.shown.stem

    @property
    def heading(self) -> str:
        """The metric with its unit."""
        return self.rows[0].heading

    @property
    def notes(self) -> tuple[str, ...]:
        """What its cells are."""
        cells = [cell for row in self.rows for cell in row.cells]
        meaning = interval_meaning([cell.value.count for cell in cells if cell.value] or [1])
        notes = [f"Medians{f', with their {meaning}' if meaning else ''}"]
        if any(_differs(cell) for cell in cells):
            notes.append(f"*: differs from {self.cases[0]} with {CONFIDENCE:.0%} confidence")
        if any(cell.never for cell in cells):
            notes.append("never: not before the run ended, later than any time")
        if any(0 < cell.measured < cell.runs for cell in cells):
            notes.append("1 of 2: in so many runs it was measured")
        if not all(cell.measured for cell in cells):
            notes.append("a dash: it was not measured")
        if self.untrusted:
            runs = sum(cell.runs for cell in cells)
            notes.append(f"{self.untrusted} of {runs} runs not trusted ({RUNS} says which)")
        return tuple(notes)


def tables_of(content: StudyFile, cells: Cells) -> tuple[Table, ...]:
    """The tables of all metrics that the study shows."""
    cases = tuple(content.cases)
    summaries = [summary for group in cells.values() for summary in group.summaries]
    untrusted = sum(summary.verdict != "trusted" for summary in summaries)
    return tuple(
        Table(
            shown,
            cases,
            tuple(
                row_of(
                    [cells[scenario, case] for case in cases],
                    scenario,
                    shown.name,
                    shown.unit,
                    methodcaller("numbers", shown.metric),
                )
                for scenario in content.scenarios
            ),
            untrusted,
        )
        for shown in content.shown
    )


def _differs(cell: Cell) -> bool:
    return cell.difference is not None and cell.difference.differs


def cell_text(cell: Cell) -> str:
    """A cell as text: `12.3 [11.8, 12.9] *`."""
    basis = f" ({cell.basis})" if 0 < cell.measured < cell.runs else ""
    return f"{format_estimate(cell.value)}{' *' if _differs(cell) else ''}{basis}"


def _lines(table: Table) -> Iterator[tuple[str, ...]]:
    """The heading of a table, then its rows, as text."""
    yield "", *(row.fault for row in table.rows)
    columns = zip(*(row.cells for row in table.rows), strict=True)
    for case, cells in zip(table.cases, columns, strict=True):
        yield case, *map(cell_text, cells)


def in_markdown(text: str) -> str:
    """A text as a cell of a Markdown table has it."""
    return re.sub(r"([\\|<>*_`\[\]$])", r"\\\1", " ".join(text.split()))


def as_markdown(table: Table) -> str:
    """A table in Markdown."""
    heading, *rows = _lines(table)
    lines = [heading, ("---", *("---:" for _ in heading[1:])), *rows]
    cells = ([c if c.strip("-:") == "" else in_markdown(c) for c in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def judgements_as_markdown(judgements: Sequence[Judgement]) -> str:
    """What became of the hypotheses, as a table in Markdown."""
    lines = [("hypothesis", "scenario", "answer", "measured"), ("---",) * 4]
    rows = [(j.claim, j.scenario, j.answer, j.measured) for j in judgements]
    cells = [*lines, *(tuple(map(in_markdown, row)) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)


def _greek(name: str) -> str:
    """The letter of a macro of LaTeX; Unicode spells lambda otherwise."""
    case = "SMALL" if name.islower() else "CAPITAL"
    return unicodedata.lookup(f"GREEK {case} LETTER {name.replace('ambda', 'amda')}")


_LATEX: dict[str, str | int | None] = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{_greek(name): f"$\\{name}$" for name in _GREEK.split()},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "*": "{*}",  # after \\ it and a bracket would be read as arguments
    "[": "{[}",
    "]": "{]}",
    "\N{EN DASH}": "--",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$",
    "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{NOT EQUAL TO}": r"$\neq$",
    "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{INFINITY}": r"$\infty$",
    "\N{ZERO WIDTH SPACE}": "{}",
}

_JOINED = re.compile(r"([-,?!'`])(?=[-,'`])")
"""A sign that LaTeX would join with the next one, such as the two of `--set`."""


def in_latex(text: str) -> str:
    """A text as LaTeX shows it; letters of other scripts need LuaLaTeX or XeLaTeX."""
    whole = unicodedata.normalize("NFC", " ".join(text.split()))
    return _JOINED.sub("\\1\N{ZERO WIDTH SPACE}", whole).translate(str.maketrans(_LATEX))


def _wrapped(scenario: str) -> list[str]:
    """A scenario's name on as many lines as it needs over a column."""
    return textwrap.wrap(scenario, LABEL, break_long_words=False) or [""]


def _heading(scenario: str) -> str:
    lines = [*map(in_latex, _wrapped(scenario))]
    whole = r" \\ ".join(lines)
    return rf"\shortstack[r]{{{whole}}}" if lines[1:] else whole


_COLUMN_PT, _PAGE_PT = 240.0, 505.0
"""The widths of a column of a paper and of both, as ACM and IEEE have them, or a little less."""

_CHARACTER_PT, _BETWEEN_PT = 4.65, 12.0
"""The widths of a digit in LaTeX's small letters, and of what is between columns of a table."""


_PAGE_LINES, _HEADING_LINES = 48, 5
"""The lines of a page below a caption, and what the heading of a table is as high as."""


def as_latex(table: Table, caption: str) -> str:
    """A table for LaTeX, with the package booktabs.

    It is over both columns of a paper where one is too narrow for it. Scenarios for which both are
    too narrow stand below the first ones.
    """
    heading, *rows = _lines(table)
    widest = [max(map(len, _wrapped(name))) for name in heading]
    label_pt, *widths_pt = (
        _CHARACTER_PT * max(width, *map(len, column)) + _BETWEEN_PT
        for width, column in zip(widest, zip(*rows, strict=True), strict=True)
    )
    kind = "table" if label_pt + sum(widths_pt) <= _COLUMN_PT else "table*"
    most = max(1, int((_PAGE_PT - label_pt) / max(widths_pt)))
    parts = -(-len(widths_pt) // most)
    size = -(-len(widths_pt) // parts)
    tabulars = [
        _tabular([[line[0], *line[i : i + size]] for line in (heading, *rows)])
        for i in range(1, len(heading), size)
    ]
    fitting = max(1, _PAGE_LINES // (len(rows) + _HEADING_LINES))
    floats = [tabulars[i : i + fitting] for i in range(0, len(tabulars), fitting)]
    first = f"\\caption{{{in_latex(caption)}}}\n  \\label{{tab:{table.stem}}}"
    captions = [first, *(r"\caption{(continued)}" for _ in floats[1:])]
    return "".join(
        f"\\begin{{{kind}}}\n  \\centering\\small\n  {said}\n  \\smallskip\n"
        + "\n  \\par\\medskip\n".join(shown)
        + f"\n\\end{{{kind}}}\n"
        for said, shown in zip(captions, floats, strict=True)
    )


def _tabular(lines: Sequence[Sequence[str]]) -> str:
    heading, *rows = lines
    cells = [[*map(_heading, heading)], *(map(in_latex, row) for row in rows)]
    first, *others = (f"    {' & '.join(line)} \\\\" for line in cells)
    return "\n".join(
        [
            f"  \\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}",
            r"    \toprule",
            first,
            r"    \midrule",
            *others,
            r"    \bottomrule",
            r"  \end{tabular}",
        ]
    )


def as_csv(tables: Sequence[Table]) -> str:
    """All estimates: a line for each metric, scenario and case; inf: never."""
    columns = "metric", "title", "unit", "scenario", "case", "median", "low", "high", "interval"
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*columns, "differs_from_first", "measured", "never", "runs"))
    for table in tables:
        for row in table.rows:
            for case, cell in zip(table.cases, row.cells, strict=True):
                value = cell.value
                numbers = (value.median, value.low, value.high) if value else (None,) * 3
                writer.writerow(
                    (
                        *(table.shown.metric, row.metric, row.unit, row.fault, case),
                        *numbers,
                        "" if value is None else interval_meaning([value.count]),
                        _differs(cell),
                        *(cell.measured, cell.never, cell.runs),
                    )
                )
    return file.getvalue()


def runs_as_csv(content: StudyFile, cells: Cells) -> str:
    """Every run: a line for each, with its verdict and the study's metrics in their own units."""
    metrics = [shown.metric for shown in content.shown]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("scenario", "case", "seed", "verdict", *metrics))
    for (scenario, case), group in cells.items():
        numbers = map(group.numbers, metrics)
        for summary, *values in zip(group.summaries, *numbers, strict=True):
            writer.writerow((scenario, case, summary.seed, summary.verdict, *values))
    return file.getvalue()
