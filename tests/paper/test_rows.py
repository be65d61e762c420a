"""Rows of the table, simulated in short: each comes out as the table says, unless it is broken."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.results.report.figures.style import new_figure
from testbed.studies.paper.experiments import claims
from testbed.studies.paper.experiments.paths import FORCED_RATE
from testbed.studies.paper.figure import PaperFigure

from .cases import CASES
from .short import Short, assert_row, missed_where_broken

pytestmark = [pytest.mark.simulated, pytest.mark.long]


def _shortest_and_longest(figure: PaperFigure) -> PaperFigure:
    """The shortest and the longest delay of a NIC; other runs are made up, and none is drawn."""
    made_up = CASES[figure.number].runs()
    return replace(
        figure,
        variants=(claims.SINGLE[0], claims.SINGLE[-1]),
        measure=lambda runs: figure.measure({**made_up, **runs}),
        draw=lambda _: new_figure(1.0),
    )


def _with_little_traffic(figure: PaperFigure) -> PaperFigure:
    """One packet in each round trip: what probes find does not depend on the rate."""
    (probed,) = figure.variants
    workload = {"kind": "write_bw", "pairs": [["h0", "h4"]], "message_size": "4 KiB", "depth": 1}
    return replace(figure, variants=(replace(probed, changes={"workload": workload}),))


SHORT = {
    short.number: short
    for short in (
        Short("5.2.1", 0.25),
        Short("4", 0.35),
        Short("8", 0.7),
        Short("9a", 1.0),
        Short("9b", 1.0),
        Short("9c", 1.0),
        Short("9d", 0.7),
        Short("10", 0.6),
        Short("11", 0.6),
        Short("12-13", 0.6),
        Short("14", 0.8, misses=(FORCED_RATE,)),
        Short("19a", 0.8),
        Short("19b", 1.0),
        Short("19c", 1.0),
        Short("unequal-links", 0.6),
        Short(
            "text-planes",
            1.0,
            misses=(
                "one plane has a quarter of its uplinks: throughput, of that before",
                "a flow on a single path shares one plane: throughput, of that before",
            ),
        ),
        Short("text-remap", 1.0, only=_shortest_and_longest),
        Short("text-lossy-nic", 0.6),
        Short("text-probes", 0.4, only=_with_little_traffic),
        Short("text-ecmp", 0.4, misses=("throughput over hash ECMP, of that over SRv6",)),
    )
}


@pytest.mark.parametrize("number", SHORT)
def test_a_row_is_as_the_table_has_it(number: str, tmp_path: Path) -> None:
    assert_row(SHORT[number], tmp_path)


_CUT = {"kind": "cut", "at": "2 s", "for": "4 s"}
_BLIND = {"kind": "mrc", "spray": "blind"}
BROKEN: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "9a": {
        "nic-links-one-by-one": {
            "transport": _BLIND,
            "timeline": [
                {"kind": "blackhole", "target": "h0--p0_t0_0", "at": "2 s", "for": "9 s"},
                {"kind": "cut", "target": "h0--p1_t0_0", "at": "3 s", "for": "7 s"},
            ],
        }
    },
    "10": {"t0-down": {"timeline": [{**_CUT, "target": ["p0_t0_0", "p1_t0_0"]}]}},
    "11": {"t1-down": {"transport": _BLIND}},
    "12-13": {"lossy-ev": {"transport": {"kind": "mrc", "evs": 16, "spray": "blind"}}},
    "14": {"same-ev": {"transport": {"kind": "mrc", "ecn_skip": False}}},
}
"""Runs of a figure, and what takes from them what the paper saw."""


@pytest.mark.parametrize("number", BROKEN)
def test_a_row_does_not_hold_where_its_input_is_broken(number: str, tmp_path: Path) -> None:
    assert missed_where_broken(SHORT[number], tmp_path, BROKEN[number])
