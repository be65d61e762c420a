"""Figures 8 to 11 and 19a to 19c: links and switches fail, drawn as throughput over time.

Beside them a study of ours, in which uplinks of a rack slow down.
"""

from matplotlib.figure import Figure

from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import (
    draw_flows,
    legend_below,
    new_panels,
    plot_flows,
)
from testbed.studies.paper.experiments.throughput import only
from testbed.studies.paper.figure import PaperFigure
from testbed.studies.paper.rows import row


def _figure(number: str, scenario: str) -> PaperFigure:
    """A row of a single run."""
    return row(number, "over-time", lambda runs: draw_flows(only(runs)), scenarios=(scenario,))


LINKS_AND_SWITCHES: tuple[PaperFigure, ...] = (
    row(
        "8",
        "silent-t1",
        lambda runs: draw_flows(runs["t1-silent"]),
        runs={"t1-silent-many-qps": {"excluded": {"emulated": "128 T1s are too many switches"}}},
        forms={"usual_losses": "{:.1f}"},
    ),
    _figure("9a", "nic-links-one-by-one"),
    _figure("9b", "nic-links-half"),
    _figure("9c", "twenty-links-down"),
    _figure("9d", "fabric-links-flap"),
    _figure("10", "t0-down"),
    _figure("11", "t1-down"),
)
UPLINKS = (
    _figure("19a", "uplinks-fail"),
    _figure("19b", "thin-uplinks"),
    _figure("19c", "thin-uplinks-together"),
)


_UNEQUAL = ("unequal-links", "unequal-links-nscc")


def _draw_both(runs: Results) -> Figure:
    figure, panels = new_panels(4.8, 2, sharex=True, sharey=True)
    for axes, name in zip(panels, _UNEQUAL, strict=True):
        plot_flows(axes, runs[name], runs[name].flows, together=True)
    panels[0].set_xlabel("")
    legend_below(figure, 6, panels[0])
    return figure


UNEQUAL_LINKS = row("unequal-links", "over-time", _draw_both, scenarios=_UNEQUAL, is_own=True)
