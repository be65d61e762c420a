"""The comparison of groups of runs as one HTML file, and the text of its cells."""

import re
from collections.abc import Sequence
from itertools import groupby
from math import isinf
from pathlib import Path
from typing import Any

from testbed.model.run_files.layout import FIGURES
from testbed.model.summary import Summary
from testbed.model.summary.scopes import outcome
from testbed.results.analysis.estimates import Estimate, interval_meaning
from testbed.results.comparison import Cell, Group, Row, compare
from testbed.results.report.html import DASH, Picture, template

NAMED = 3
"""So many groups are named by a note that is about several."""

COLUMNS = 5
"""So many groups stand beside each other in a table of the report."""

_WHOLE = 1000
"""Numbers from here on are shown without decimals, not in powers of ten."""


def format_estimate(value: Estimate | None, *, signed: bool = False) -> str:
    """An estimate with its confidence interval, `12.3 [11.8, 12.9]`; a dash for None.

    Samples that are too few for a confidence interval have their range: `12.3 (11.8 to 12.9)`. A
    value without a spread stands alone. What never happened is `never`; a difference is `+never`
    if it happened in the first group only.
    """
    if value is None:
        return DASH
    middle, low, high = (
        _number(number, signed=signed) for number in (value.median, value.low, value.high)
    )
    if value.low == value.high:
        return middle
    return f"{middle} [{low}, {high}]" if value.confident else f"{middle} ({low} to {high})"


def _number(number: float, *, signed: bool) -> str:
    sign = "+" if signed else ""
    if isinf(number):
        return f"{'+' if number > 0 else '-'}never" if signed else "never"
    if abs(number) >= _WHOLE:
        return f"{number:{sign},.0f}"
    return f"{number:{sign}.{3 if signed else 4}g}"


def as_data(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows for JSON; what never happened is "never"."""
    return [
        {
            "name": row.name,
            "fault": row.fault,
            "metric": row.metric,
            "unit": row.unit,
            "cells": [_cell_data(cell) for cell in row.cells],
        }
        for row in rows
    ]


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "value": _estimate_data(cell.value, signed=False),
        "difference": _estimate_data(cell.difference, signed=True),
        "measured": cell.measured,
        "never": cell.never,
        "runs": cell.runs,
    }


def _estimate_data(value: Estimate | None, *, signed: bool) -> dict[str, Any] | None:
    if value is None:
        return None
    numbers = {"median": value.median, "low": value.low, "high": value.high}
    written = {
        key: _number(number, signed=signed) if isinf(number) else number
        for key, number in numbers.items()
    }
    return {**written, "count": value.count, "confident": value.confident}


def missed_expectations(summary: Summary) -> list[str]:
    """Each expectation that a run missed, and what was measured instead."""
    return [
        f"{expected.whose}: {expected.figure} {expected.bound}: {outcome(expected)}"
        for expected in summary.expectations
        if not expected.holds
    ]


def expectations_met(summary: Summary) -> str:
    """How many of its expectations a run met: `1 of 3 missed`."""
    count = len(summary.expectations)
    failed = len(missed_expectations(summary))
    if not count:
        return "none"
    return f"{failed} of {count} missed" if failed else f"all {count} met"


def notes_on_never(groups: Sequence[Group]) -> list[str]:
    """What explains values that are `never`, as the runs' reports say it: each kind once."""
    first, told = dict[str, str](), dict[str, dict[str, None]]()
    for group in groups:
        for summary in group.summaries:
            for fault in summary.faults:
                for remark in summary.remarks_on_never(fault):
                    note = f"{fault.name}: {remark}"
                    kind = re.sub(r"[0-9.]+", "", note)
                    first.setdefault(kind, note)
                    told.setdefault(kind, {})[group.name] = None
    return [f"{note} ({_of(list(told[kind]), groups)})" for kind, note in first.items()]


def _of(names: Sequence[str], groups: Sequence[Group]) -> str:
    """Which groups a note is about."""
    if not groups[1:]:
        return names[0]
    further = "; ..." if names[NAMED:] else ""
    return f"in {len(names)} of {len(groups)}: {'; '.join(names[:NAMED])}{further}"


def sections(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of the whole run, then those of each fault, each with the fault's name."""
    return [(fault, list(same)) for fault, same in groupby(rows, key=lambda row: row.fault)]


def write_comparison(title: str, groups: Sequence[Group], file: Path) -> tuple[Row, ...]:
    """Write the report into a file, and its figures beside it; returns the table."""
    from testbed.results.report.figures.comparison import draw  # noqa: PLC0415 - loads Matplotlib, Polars

    rows = compare(groups)
    figures = file.parent / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    drawings = draw(groups, rows, figures)
    html = template("comparison.html.j2", estimate=format_estimate).render(
        title=title,
        groups=groups,
        sections=sections(rows),
        missed_expectations=missed_expectations,
        notes=notes_on_never(groups),
        columns=COLUMNS,
        expectations_met=expectations_met,
        meaning=interval_meaning([len(group.runs) for group in groups]),
        pictures=[Picture.of(drawing, figures) for drawing in drawings],
    )
    file.write_text(html, encoding="utf-8")
    return rows
