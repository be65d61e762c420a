"""Figures 19a to 19c: T0-T1 links of a rack fail; and a study of ours, in which they slow down."""

from dataclasses import replace

from matplotlib.figure import Figure

from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, at_least
from testbed.studies.paper.experiments.drawing import (
    draw_flows,
    legend_below,
    new_panels,
    plot_flows,
)
from testbed.studies.paper.experiments.throughput import last_healed_s, only, phases, share
from testbed.studies.paper.figure import PaperFigure, Variant

SETTLE_RTTS = 8.0
"""Here the window must shrink and grow with the capacity, which takes more than a path's death."""

UNIMPAIRED = 0.97
""""No discernible impact": 3% can still be discerned in the paper's figure, less cannot."""

TRACKED = 0.9
"""Throughput "tracks" the capacity at this share of it or more, in every step. The paper's curves
lie within a tenth of the steps of 100 Gb/s."""

FOLLOWED = 0.85
"""The same in our study."""


def follows(run: Result, least: float) -> tuple[Check, ...]:
    """Check that throughput follows what the uplinks allow, and returns with them."""
    steps = [share(run.flows, *phase) for phase in phases(run, SETTLE_RTTS)]
    healed = last_healed_s(run) + SETTLE_RTTS * run.data.base_rtt_s
    after = share(run.flows, healed, run.data.end_s)
    return (
        at_least("share of what the uplinks allow, the least of any step", min(steps), least),
        at_least("the same after healing", after, least),
    )


def _figure(number: str, scenario: str, least: float) -> PaperFigure:
    return PaperFigure(
        number,
        (Variant(scenario, scenario),),
        lambda runs: follows(only(runs), least),
        lambda runs: draw_flows(only(runs)),
    )


FIXED = Variant("unequal-links", "unequal-links")
_NSCC = {"kind": "mrc", "evs": 32, "congestion": "nscc"}
NSCC = Variant("unequal-links-nscc", "unequal-links", {"transport": _NSCC})


def _both_follow(runs: Results) -> tuple[Check, ...]:
    return tuple(
        replace(check, what=f"{check.what}, {window}")
        for window, variant in (("a fixed window", FIXED), ("NSCC", NSCC))
        for check in follows(runs[variant.name], FOLLOWED)
    )


def _draw_both(runs: Results) -> Figure:
    figure, panels = new_panels(4.8, 2, sharex=True, sharey=True)
    for axes, variant in zip(panels, (FIXED, NSCC), strict=True):
        run = runs[variant.name]
        plot_flows(axes, run, run.flows, together=True)
    panels[0].set_xlabel("")
    legend_below(figure, 6, panels[0])
    return figure


UPLINKS = (
    _figure("19a", "uplinks-fail", UNIMPAIRED),
    _figure("19b", "thin-uplinks", TRACKED),
    _figure("19c", "thin-uplinks-together", TRACKED),
)
UNEQUAL_LINKS = PaperFigure(
    "unequal-links", (FIXED, NSCC), measure=_both_follow, draw=_draw_both, is_own=True
)
