"""Write the rows of docs/paper.md, and their pictures, from the results of `testbed figures`.

    python scripts/paper_page.py results/paper

The rows stand between `<!-- rows -->` and `<!-- end -->`. The results of a form that were never
made are left out, and said to be.
"""

import re
import sys
from pathlib import Path

from PIL import Image

from testbed.campaign.job import FORMS
from testbed.paper.outcome import OutcomeStore
from testbed.paper.page import as_document, picture_name
from testbed.paper.registry import FIGURES
from testbed.paper.report import ReportRow

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = Path("images", "paper")
COLOURS = 64
"""Of a picture in the document: lines and text need no more, and files are a third as large."""

_ROWS = re.compile(r"(<!-- rows -->\n).*(<!-- end -->)", re.DOTALL)


def with_rows(document: str, rows: str) -> str:
    """A document with these rows between its comments."""
    return _ROWS.sub(lambda match: f"{match[1]}{rows}{match[2]}", document)


def main(results: Path) -> None:
    """Write the rows and the pictures of the figures that were made in a directory."""
    stores = {form: OutcomeStore(results / "figures", form) for form in FORMS}
    rows = [
        ReportRow(figure, {form: store.load(figure) for form, store in stores.items()}, stores)
        for figure in FIGURES
    ]
    (DOCS / PICTURES).mkdir(exist_ok=True)
    for row in rows:
        for form in FORMS:
            target = DOCS / PICTURES / picture_name(row, form)
            target.unlink(missing_ok=True)
            if (picture := row.picture(form)) is not None:
                with Image.open(picture.with_suffix(".png")) as drawn:
                    drawn.convert("RGB").quantize(COLOURS).save(target, optimize=True)
    page = DOCS / "paper.md"
    page.write_text(with_rows(page.read_text(), as_document(rows, PICTURES.as_posix())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
