"""Rows about collectives, an incast and the ablation, in short; and that no row is left out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.paper.figure import PaperFigure
from testbed.paper.registry import FIGURES

from . import test_rows
from .short import EXPECTED, NOT_IN_SHORT, Short, assert_row, checks_of


def _as_emulated(figure: PaperFigure) -> PaperFigure:
    """With one size only, that which is emulated."""
    return replace(figure, variants=figure.variants_in("emulated"))


def _incast(figure: PaperFigure) -> PaperFigure:
    """Figure 18; RoCE with one QP, which takes long to settle, for as long as the others."""
    mrc, one, many = figure.variants
    return replace(figure, variants=(mrc, replace(one, changes={}), many))


def _failover(figure: PaperFigure) -> PaperFigure:
    """MRC, what is equal to it in the stall, and what it is ahead of in everything."""
    names = ("dead-link-mrc", "dead-link-blind", "dead-link-roce-50us")
    return replace(figure, variants=tuple(one for one in figure.variants if one.name in names))


SHORT = {
    short.number: short
    for short in (
        Short("15", 0.35),
        Short(
            "17",
            0.45,
            misses=("RoCE with 16 QPs over 1 QP, 4 MiB",),
            only=_as_emulated,
        ),
        Short(
            "18",
            0.4,
            without=("RoCE's victim with 1 QP", "MRC's smallest share over its largest"),
            only=_incast,
        ),
        Short(
            "failover",
            0.8,
            misses=("longest stall, over MRC's: blind spraying",),
            only=_failover,
        ),
        Short("ablation", 0.5),
    )
}


def test_every_row_is_asserted_or_is_said_not_to_be() -> None:
    numbers = {figure.number for figure in FIGURES}
    assert {*EXPECTED} == {*test_rows.SHORT, *SHORT}
    assert numbers == {*EXPECTED, *NOT_IN_SHORT}
    assert not {*EXPECTED} & {*NOT_IN_SHORT}


@pytest.mark.parametrize("number", SHORT)
def test_a_row_is_as_the_table_has_it(number: str, tmp_path: Path) -> None:
    assert_row(SHORT[number], tmp_path)


BROKEN: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "failover": {"dead-link-mrc": {"transport": {"kind": "mrc", "spray": "blind"}}},
}
"""Runs of a figure, and what takes from them what the paper saw."""


@pytest.mark.parametrize("number", BROKEN)
def test_a_row_does_not_hold_where_its_input_is_broken(number: str, tmp_path: Path) -> None:
    checks = checks_of(SHORT[number], tmp_path, BROKEN[number])
    assert {check.what for check in checks if not check.holds} > {*SHORT[number].misses}
