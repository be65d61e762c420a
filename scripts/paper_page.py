"""Keep results of `testbed figures`, and write the rows of docs/paper/rows.md and the README's sum.

    python scripts/paper_page.py results/paper    # adds the results of this directory first
    python scripts/paper_page.py                  # writes the documents again

`docs/paper/results.json` keeps what each seed of each figure came to: results of several
directories add up, in whatever order they are added. The rows stand between `<!-- rows -->` and
`<!-- end -->`. A drawing is that of the directory that was added last.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from testbed.model.errors import InputError
from testbed.runs.job import FORMS
from testbed.studies.paper.outcome import OutcomeStore
from testbed.studies.paper.planning import FIGURES
from testbed.studies.paper.published import (
    PublishedResults,
    Row,
    as_document,
    picture_name,
    published_figure,
    read_results,
    sums_of,
    write_results,
)
from testbed.studies.paper.report import ReportRow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = DOCS / "paper" / "results.json"
PICTURES = Path("images", "paper")
COLOURS = 128
"""Of a picture in the document: lines and text need no more, and files are half as large."""

_ROWS = re.compile(r"(<!-- rows -->\n).*(<!-- end -->)", re.DOTALL)
_SUM = re.compile(r"\[[^]]* hold\]\(docs/paper/rows\.md\);[^|]*own studies: \d+ of \d+ hold")


def rows_of(results: PublishedResults) -> list[Row]:
    """A row for each figure."""
    return [
        ReportRow(figure, {form: results.outcomes.get((figure.number, form)) for form in FORMS}, {})
        for figure in FIGURES
    ]


def with_rows(document: str, rows: Sequence[Row]) -> str:
    """The page with these rows between its comments."""
    drawn = {file.name for file in (DOCS / PICTURES).iterdir()}
    text = as_document(rows, f"../{PICTURES.as_posix()}", drawn)
    return _ROWS.sub(lambda match: f"{match[1]}{text}{match[2]}", document)


def with_sum(readme: str, rows: Sequence[Row]) -> str:
    """The README with the sum of these rows."""
    hold, others, own = sums_of(rows)
    return _SUM.sub("; ".join(filter(None, (f"[{hold}](docs/paper/rows.md)", others, own))), readme)


def added(results: PublishedResults, directory: Path) -> PublishedResults:
    """The results with those of a directory; its drawings replace those of the documents."""
    made = []
    for form in FORMS:
        store = OutcomeStore(directory / "figures", form)
        for figure in FIGURES:
            outcome = store.load(figure)
            if outcome is not None and outcome.checks:
                if outcome.overrides:
                    raise InputError.of(
                        str(directory),
                        f"figure {figure.number} with {outcome.overrides}",
                        "results of unchanged runs",
                        "make them without these options",
                    )
                made.append(published_figure(figure, outcome))
                keep_picture(
                    store.picture(figure).with_suffix(".png"),
                    DOCS / PICTURES / picture_name(figure.number, form),
                )
    return results.adding(made)


def keep_picture(drawn: Path, target: Path) -> None:
    """Copy a drawing with few colours.

    An octree keeps those of thin lines, which other methods sacrifice to shades of large areas.
    """
    with Image.open(drawn) as picture:
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE)
        few.save(target, optimize=True)


def main(directories: Sequence[Path]) -> None:
    """Add the results of some directories, and write the documents."""
    results = read_results(RESULTS)
    (DOCS / PICTURES).mkdir(exist_ok=True)
    for directory in directories:
        results = added(results, directory)
    write_results(RESULTS, results)
    rows = rows_of(results)
    page, readme = DOCS / "paper" / "rows.md", ROOT / "README.md"
    page.write_text(with_rows(page.read_text(encoding="utf-8"), rows), encoding="utf-8")
    readme.write_text(with_sum(readme.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
