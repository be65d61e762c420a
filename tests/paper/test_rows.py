"""Rows of the table, simulated in short: each holds, and does not where its input is broken."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.paper.figure import Check, PaperFigure, Variant
from testbed.paper.reproduction import chosen
from testbed.paper.runs import Run, order
from testbed.results.figures.style import style
from testbed.results.metrics import flow_tables, summarise
from testbed.results.run_data import load_run
from testbed.results.run_directory import SUMMARY
from testbed.sim import simulate


@dataclass(frozen=True)
class Short:
    """A figure in short.

    Attributes:
        figure: which.
        factor: so much of their time its runs last, faults and all.
        without: checks that need all of the time, or do not hold in the simulator either.
    """

    figure: PaperFigure
    factor: float
    without: tuple[str, ...] = ()


def _figure(number: str) -> PaperFigure:
    (figure,) = chosen([number])
    return figure


def _incast() -> PaperFigure:
    """Figure 18; RoCE with one QP, which takes long to settle, for as long as the others."""
    figure = _figure("18")
    mrc, one, many = figure.variants
    return replace(figure, variants=(mrc, replace(one, changes={}), many))


def _all_reduce() -> PaperFigure:
    """Figure 16 with one size, that which is emulated."""
    figure = _figure("16")
    return replace(figure, variants=figure.variants_in("emulated"))


SHORT = (
    Short(_figure("5.2.1"), 0.25),
    Short(_figure("4"), 0.35),
    Short(_figure("8"), 0.5),
    Short(_figure("9a"), 0.6),
    Short(_figure("9b"), 0.5),
    Short(_figure("9d"), 0.5),
    Short(_figure("10"), 0.4),
    Short(_figure("11"), 0.4),
    Short(_figure("12-13"), 0.4),
    Short(_figure("14"), 0.6),
    Short(_figure("15"), 0.28),
    Short(
        _all_reduce(),
        0.55,
        without=(
            "MRC at 1% loss, of its rate, 4 MiB",
            "RoCE with 1 QP at 1% loss, of the ports' rate, 4 MiB",
            "RoCE with 16 QPs at 1% loss, of the ports' rate, 4 MiB",
        ),
    ),
    Short(
        _incast(),
        0.6,
        without=("RoCE's victim with 1 QP", "MRC's smallest share over its largest"),
    ),
    Short(_figure("19a"), 0.5, without=("the same after healing",)),
    Short(_figure("19b"), 0.5),
    Short(_figure("19c"), 0.5),
    Short(_figure("permutation"), 0.25),
    Short(_figure("failover"), 0.5),
)
"""Those that are not here need all of their time, or far more packets than a test should send."""


def _made(variant: Variant, factor: float, directory: Path) -> Run:
    """A variant's run, so much of its time."""
    scenario = order(variant, directory, "simulated").scenario.stretched(factor)
    place = directory / variant.name
    place.mkdir()
    simulate(scenario, place)
    data = load_run(place)
    (place / SUMMARY).write_text(summarise(data, flow_tables(data)).model_dump_json())
    return Run(place)


def _checks(figure: PaperFigure, factor: float, directory: Path) -> dict[str, Check]:
    """What a figure says of short runs, by what it is; they are drawn as well."""
    runs = {
        variant.name: _made(variant, factor, directory)
        for variant in figure.variants_in("simulated")
    }
    with style():
        _ = figure.draw(runs) if figure.draw_seeds is None else figure.draw_seeds([runs])
    return {check.what: check for check in figure.measure(runs)}


@pytest.mark.parametrize("short", SHORT, ids=lambda short: str(short.figure.number))
def test_a_row_holds(short: Short, tmp_path: Path) -> None:
    checks = _checks(short.figure, short.factor, tmp_path)
    assert set(short.without) <= set(checks)
    assert not [one for what, one in checks.items() if not one.holds and what not in short.without]


BROKEN: Mapping[str, tuple[str, dict[str, Any]]] = {
    "10": (
        "t0-down",
        {
            "timeline": [
                {"kind": "cut", "target": ["p0_t0_0", "p1_t0_0"], "at": "3 s", "for": "4 s"}
            ]
        },
    ),
    "12-13": ("lossy-ev", {"transport": {"kind": "mrc", "evs": 24, "spray": "blind"}}),
    "14": ("same-ev", {"transport": {"kind": "mrc", "ecn_skip": False}}),
}
"""A run of a figure, and what takes from it what the paper saw."""


@pytest.mark.parametrize("number", BROKEN)
def test_a_row_does_not_hold_where_its_input_is_broken(number: str, tmp_path: Path) -> None:
    (short,) = (one for one in SHORT if one.figure.number == number)
    name, changes = BROKEN[number]
    variants = tuple(
        replace(one, changes={**one.changes, **changes}) if one.name == name else one
        for one in short.figure.variants
    )
    checks = _checks(replace(short.figure, variants=variants), short.factor, tmp_path)
    assert not all(check.holds for check in checks.values())
