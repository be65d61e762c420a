"""Rows of the table, simulated in short: each holds, and does not where its input is broken."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.model.units import parse_duration
from testbed.paper.figure import PaperFigure
from testbed.paper.outcome import Outcome
from testbed.paper.reproduction import chosen, plan, reproduce
from testbed.paper.runs import PAPER_SCENARIOS

SHORTENED = {"8": 0.5, "10": 0.5, "14": 0.6, "19c": 0.5, "permutation": 0.25}
"""By how much. The others need all of their time, or far more packets than a test should send."""

TIMES = ("at", "for", "silent")


def _shorter(figure: PaperFigure, factor: float) -> PaperFigure:
    """The same with runs and faults that last a part of their time."""
    variants = []
    for variant in figure.variants:
        data = yaml.safe_load((PAPER_SCENARIOS / f"{variant.scenario}.yaml").read_text())
        data |= variant.changes
        timeline = [
            {key: _times(value, factor) if key in TIMES else value for key, value in one.items()}
            for one in data.get("timeline", [])
        ]
        changes = {"duration": _times(data["duration"], factor), "timeline": timeline}
        variants.append(replace(variant, changes={**variant.changes, **changes}))
    return replace(figure, variants=tuple(variants))


def _times(duration: str, factor: float) -> str:
    return f"{round(parse_duration(duration) * factor)} ns"


def _outcome(figure: PaperFigure, directory: Path) -> Outcome:
    (outcome,) = reproduce(
        (figure,), plan((figure,), directory, ("simulated",)), lambda _what, _done: None
    )
    return outcome


@pytest.mark.parametrize("number", SHORTENED)
def test_a_row_holds(number: str, tmp_path: Path) -> None:
    (figure,) = chosen([number])
    outcome = _outcome(_shorter(figure, SHORTENED[number]), tmp_path)
    assert outcome.holds == "yes", outcome.checks


BROKEN: Mapping[str, tuple[str, dict[str, Any]]] = {
    "10": (
        "t0-down",
        {
            "timeline": [
                {"kind": "cut", "target": ["p0_t0_0", "p1_t0_0"], "at": "2 s", "for": "2 s"}
            ]
        },
    ),
    "12-13": ("lossy-ev", {"transport": {"kind": "mrc", "evs": 24, "spray": "blind"}}),
    "14": ("same-ev", {"transport": {"kind": "mrc", "ecn_skip": False}}),
}
"""A run of a figure, and what takes from it what the paper saw."""


@pytest.mark.parametrize("number", BROKEN)
def test_a_row_does_not_hold_where_its_input_is_broken(number: str, tmp_path: Path) -> None:
    (figure,) = chosen([number])
    figure = _shorter(figure, SHORTENED.get(number, 1.0))
    name, changes = BROKEN[number]
    variants = tuple(
        replace(one, changes={**one.changes, **changes}) if one.name == name else one
        for one in figure.variants
    )
    outcome = _outcome(replace(figure, variants=variants), tmp_path)
    assert outcome.holds == "no"
