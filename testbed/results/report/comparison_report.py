"""The comparison of groups of runs as one HTML file."""

from collections.abc import Sequence
from pathlib import Path

from testbed.model.run_files.layout import FIGURES
from testbed.results.analysis.comparison import Group, Row, compare
from testbed.results.analysis.estimates import Estimate, interval_meaning
from testbed.results.report.html import DASH, Picture, template


def shown(value: Estimate | None, *, signed: bool = False) -> str:
    """An estimate with its confidence interval, `12.3 [11.8, 12.9]`; a dash for None.

    Samples that are too few for a confidence interval have their range: `12.3 (11.8 to 12.9)`. A
    single sample stands alone.
    """
    if value is None:
        return DASH
    form = "+.3g" if signed else ".4g"
    middle = f"{value.median:{form}}"
    if value.count == 1:
        return middle
    low, high = f"{value.low:{form}}", f"{value.high:{form}}"
    return f"{middle} [{low}, {high}]" if value.confident else f"{middle} ({low} to {high})"


def write_comparison(title: str, groups: Sequence[Group], file: Path) -> tuple[Row, ...]:
    """Write the report into a file, and its figures beside it; returns the table."""
    from testbed.results.report.figures.comparison import draw  # noqa: PLC0415 - loads Matplotlib, Polars

    rows = compare(groups)
    figures = file.parent / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    drawings = draw(groups, rows, figures)
    html = template("comparison.html.j2", estimate=shown).render(
        title=title,
        groups=groups,
        rows=rows,
        meaning=interval_meaning([len(group.runs) for group in groups]),
        pictures=[Picture.of(drawing, figures) for drawing in drawings],
    )
    file.write_text(html, encoding="utf-8")
    return rows
