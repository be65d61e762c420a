"""Bars of several seeds have their spread drawn on them, those of one seed do not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.results.report.figures.style import style
from testbed.studies.paper.experiments.ablation import ABLATION
from testbed.studies.paper.experiments.failover import FAILOVER
from testbed.studies.paper.figure import PaperFigure

from .cases import CASES

COSTLY: Mapping[str, Mapping[str, Any]] = {
    "failover": dict.fromkeys(("mrc", "blind", "roce"), (9.0, 20.0, 9.0)),
    "ablation": dict.fromkeys(("dead-link-mrc", "same-ev", "ablation-incast"), 2.0),
}
"""Runs of a seed with which they cost more."""


@pytest.mark.parametrize("figure", [FAILOVER, ABLATION], ids=lambda figure: str(figure.number))
def test_the_spread_of_seeds_is_drawn(figure: PaperFigure) -> None:
    usual, costly = (CASES[figure.number].runs(**wrong) for wrong in ({}, COSTLY[figure.number]))
    with style():
        alike, spread = (figure.draw(*seeds) for seeds in ([usual], [usual, costly]))
    assert not _whiskers(alike)
    found = _whiskers(spread)
    assert found
    assert all(low < high <= axes.get_xlim()[1] for axes, low, high in found)


def _whiskers(drawing: Figure) -> list[tuple[Axes, float, float]]:
    """From where to where horizontal lines go."""
    drawn = [(axes, line.get_xydata()) for axes in drawing.axes for line in axes.lines]
    ends = [(axes, np.asarray(xy)) for axes, xy in drawn if len(np.asarray(xy)) == 2]
    return [(axes, xy[0, 0], xy[1, 0]) for axes, xy in ends if xy[0, 1] == xy[1, 1]]
