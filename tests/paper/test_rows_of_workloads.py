"""Rows about collectives, incast, permutation and ablation, in short; and that none is left out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.results.report.figures.style import new_figure
from testbed.studies.paper.figure import PaperFigure, Variant
from testbed.studies.paper.planning import FIGURES

from . import test_rows
from .cases import CASES
from .short import EXPECTED, NOT_IN_SHORT, Short, assert_row, missed_where_broken

pytestmark = [pytest.mark.simulated, pytest.mark.long]


def _as_emulated(figure: PaperFigure) -> PaperFigure:
    """As it is emulated with one seed: with one size only, and of RoCE 1 and 16 QPs."""
    return replace(figure, variants=figure.variants_in("emulated", 1))


def _all_reduce(figure: PaperFigure) -> PaperFigure:
    """Figure 16: one all-reduce of the size that is emulated, and one of MRC's with 1% loss.

    RoCE's with loss are made up: they need all of their time. So is what is not judged at this
    size, which is not drawn either.
    """
    seconds = {
        "allreduce-4m-mrc": 2.5,
        "allreduce-4m-roce-16": 3.0,
        "allreduce-4m-roce-1": 3.7,
        "allreduce-4m-mrc-loss-0.01": 4.5,
    }
    made_up = {name: run for name, run in CASES["16"].runs().items() if "-4m-" in name}
    return replace(
        figure,
        variants=_lasting(figure, seconds),
        measure=lambda runs: figure.measure({**made_up, **runs}),
        draw=lambda _: new_figure(1.0),
    )


def _lasting(figure: PaperFigure, seconds: Mapping[str, float]) -> tuple[Variant, ...]:
    """Some of a figure's runs, for so long, their loss nearly as long."""
    made = []
    for variant in (one for one in figure.variants if one.name in seconds):
        lasts_ms = round(1000 * seconds[variant.name])
        losses = [{**entry, "for": f"{lasts_ms - 301} ms"} for entry in variant.changes["timeline"]]
        changes = {**variant.changes, "duration": f"{lasts_ms} ms", "timeline": losses}
        made.append(replace(variant, changes=changes))
    return tuple(made)


def _incast(figure: PaperFigure) -> PaperFigure:
    """Figure 18; MRC and RoCE with one QP, which take long to settle, for as long as the third."""
    mrc, one, many = figure.variants
    return replace(figure, variants=(replace(mrc, changes={}), replace(one, changes={}), many))


def _permutation(figure: PaperFigure) -> PaperFigure:
    """Figure 20 without DCQCN, which needs most of its time to settle; its run is made up."""
    *shown, dcqcn = figure.variants
    soon = {"duration": "6 s", "drain": "6 s"}
    made = [replace(one, changes={**one.changes, **soon}) if one.excluded else one for one in shown]
    made_up = {dcqcn.name: CASES["20"].runs()[dcqcn.name]}
    return replace(
        figure,
        variants=tuple(made),
        measure=lambda runs: figure.measure({**made_up, **runs}),
    )


def _failover(figure: PaperFigure) -> PaperFigure:
    """MRC beside what stalls hardly longer, and beside RoCE."""
    names = ("dead-link-mrc", "dead-link-blind", "dead-link-roce-50us")
    return replace(
        figure, variants=tuple(variant for variant in figure.variants if variant.name in names)
    )


SHORT = {
    short.number: short
    for short in (
        Short("15", 0.42),
        Short(
            "16",
            1.0,
            misses=("MRC at 1% loss, of its rate, 4 MiB",),
            only=_all_reduce,
        ),
        Short(
            "17",
            0.35,
            misses=("RoCE with 16 QPs over 1 QP, 4 MiB",),
            only=_as_emulated,
        ),
        Short(
            "18",
            0.4,
            without=(
                "RoCE's victim with 1 QP",
                "RoCE's victim, mean with 8 QPs over that with 1",
                "MRC's smallest share over its largest",
                "RoCE's smallest share over its largest, with 8 QPs over that with 1",
            ),
            only=_incast,
        ),
        Short(
            "20",
            1.0,
            misses=("RoCE with PFC, 8 QPs over 1, mean of hosts",),
            without=("RoCE with 8 QPs, DCQCN over PFC, mean of hosts",),
            only=_permutation,
        ),
        Short("21", 0.22, without=("RoCE's victim with PFC only, 1 QP",)),
        Short("failover", 0.9, only=_failover),
        # The stall varies from seed to seed by 5%, which one seed does not show.
        Short("ablation", 0.6, without=("a dead link, no backups: longest stall, over MRC's",)),
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


_SLOW = {"kind": "degrade", "target": "h11--p0_t0_2", "factor": 0.5, "at": "1 s", "for": "10 s"}
BROKEN: Mapping[str, tuple[Mapping[str, dict[str, Any]], str]] = {
    "18": ({"incast-mrc": {"timeline": [_SLOW]}}, "MRC's victim, of its port's rate"),
    "failover": (
        {"dead-link-mrc": {"transport": {"kind": "mrc", "spray": "blind"}}},
        "messages overdue, over MRC's: RoCE, routing converges in 50 us",
    ),
}
"""Runs of a figure with what takes from them what the paper saw, and what then does not hold."""


@pytest.mark.parametrize("number", BROKEN)
def test_a_row_does_not_hold_where_its_input_is_broken(number: str, tmp_path: Path) -> None:
    broken, missed = BROKEN[number]
    assert missed in missed_where_broken(SHORT[number], tmp_path, broken)
