"""Figures 8 to 11 and 19a to 19c: links and switches fail, drawn as throughput over time.

Beside them a study of ours, in which uplinks of a rack slow down.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from statistics import median

from matplotlib.figure import Figure

from testbed.model.faults.kinds import Reboot
from testbed.model.units import NS_PER_S
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, at_least, at_most, between
from testbed.studies.paper.experiments import throughput
from testbed.studies.paper.experiments.drawing import (
    draw_flows,
    legend_below,
    new_panels,
    plot_flows,
)
from testbed.studies.paper.figure import PaperFigure, Variant

SILENT = Variant("t1-silent", "t1-silent")
MANY_QPS = Variant(
    "t1-silent-many-qps",
    "t1-silent",
    {
        "topology": {"base": "clos-8plane", "name": "clos-8plane-16t1", "t1_per_plane": 16},
        "transport": {"kind": "mrc", "qps": 16, "evs": 40},
        "workload": {
            "kind": "write_bw",
            "pairs": [["h0", "h2"]],
            "message_size": "64 KiB",
            "depth": 8,
        },
    },
    excluded={"emulated": "128 T1s are too many switches"},
)
"""16 queue pairs on each of two hosts, with 5 EVs in each plane, 4 of them active, on 16 T1s: a T1
carries an EV of every fourth. In the paper 64 EVs a plane, on 256 T1s, are as many. Messages are
short, so that all are delivered at the end."""

A_QUARTER = (0.15, 0.35)
"""Of 32 queue pairs by chance 8 have an EV on the T1, with a standard deviation of 2.4; a tenth to
each side is a third more than that."""

A_FEW_LOSSES = 5
"""What a queue pair loses to a silent T1 at most: figure 4 has fewer than 5 to dead paths."""

MAX_LOST_AT_REBOOT = 0.1
"""Of its losses, when it is rebooted: none would be, but a probe may find a path alive for a
moment. As in figure 4."""


def _times(run: Result) -> tuple[float, float, float]:
    """When the T1 fell silent, when its links went dark, and when it was back."""
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Reboot) or planned.silent is None:
        raise TypeError(planned)
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    return start, start + planned.silent / NS_PER_S, back


def _affected(run: Result) -> tuple[Check, ...]:
    start, dark, back = _times(run)
    lost = [throughput.losses(flow, start, dark) for flow in run.flows]
    of_those = [count for count in lost if count]
    settled = back + throughput.SETTLE_RTTS * run.data.base_rtt_s
    later = sum(throughput.losses(flow, dark, settled) for flow in run.flows)
    usual = median(of_those) if of_those else 0.0
    more = later / sum(lost) if of_those else inf
    return (
        between("share of the QPs that the T1 affects", len(of_those) / len(lost), *A_QUARTER),
        at_most("packets that an affected QP loses, the median", usual, A_FEW_LOSSES, "{:.1f}"),
        at_most("losses during and after the reboot, of those before", more, MAX_LOST_AT_REBOOT),
    )


def _silent_t1(runs: Results) -> tuple[Check, ...]:
    run = runs[SILENT.name]
    start, dark, back = _times(run)
    settle = throughput.SETTLE_RTTS * run.data.base_rtt_s
    silent = throughput.least_of_before(run, start + settle, dark)
    rebooting = throughput.least_of_before(run, dark, back + settle)
    return (
        at_least("throughput while the T1 is silent, after the dip", silent, 0.97),
        at_least("throughput from the reboot until 3 RTTs after", rebooting, 0.97),
        throughput.interruption(run),
        *(_affected(runs[MANY_QPS.name]) if MANY_QPS.name in runs else ()),
    )


def _t0_down(run: Result) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    planes = run.data.topology.planes
    remaining = (planes - 1) / planes
    what = f"throughput without the T0 ({planes - 1} of {planes} planes are {remaining:.1%})"
    return (
        between(what, during, remaining - 0.03, remaining + 0.01),
        at_least("throughput when it is back", after, 0.97),
    )


def _t1_down(run: Result) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    return (
        at_least("throughput without the T1", during, 0.98),
        at_least("throughput when it is back", after, 0.98),
    )


def _links_in_turn(run: Result) -> tuple[Check, ...]:
    what = "share of what the remaining links allow, the least of any step"
    return (
        at_least(what, throughput.least_of_phases(run), throughput.LEAST_OF_A_STEP),
        at_least("throughput when all links are back", throughput.during_and_after(run)[1], 0.95),
        throughput.interruption(run),
    )


def _half_down(run: Result) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    return (
        between("throughput while half of the links are down", during, 0.48, 0.52),
        at_least("throughput when they are back", after, 0.97),
        throughput.interruption(run),
    )


def _hardly_affected(run: Result) -> tuple[Check, ...]:
    during, _ = throughput.during_and_after(run, settle_rtts=0.0)
    return (
        at_least("throughput from the first failure to the last healing", during, 0.95),
        throughput.interruption(run),
    )


def _figure(
    number: str,
    scenario: str,
    measure: Callable[[Result], tuple[Check, ...]],
) -> PaperFigure:
    """A figure of a single run."""
    return PaperFigure(
        number,
        (Variant(scenario, scenario),),
        lambda runs: measure(throughput.only(runs)),
        lambda runs: draw_flows(throughput.only(runs)),
    )


LINKS_AND_SWITCHES: tuple[PaperFigure, ...] = (
    PaperFigure("8", (SILENT, MANY_QPS), _silent_t1, lambda runs: draw_flows(runs[SILENT.name])),
    _figure("9a", "nic-links-one-by-one", _links_in_turn),
    _figure("9b", "nic-links-half", _half_down),
    _figure("9c", "twenty-links-down", _hardly_affected),
    _figure("9d", "fabric-links-flap", _hardly_affected),
    _figure("10", "t0-down", _t0_down),
    _figure("11", "t1-down", _t1_down),
)


UPLINKS_SETTLE_RTTS = 8.0
"""Here the window must shrink and grow with the capacity, which takes more than a path's death."""

UNIMPAIRED = 0.97
""""No discernible impact": 3% can still be discerned in the paper's figure, less cannot."""

TRACKED = 0.9
"""Throughput "tracks" the capacity at this share of it or more, in every step. The paper's curves
lie within a tenth of the steps of 100 Gb/s."""

FOLLOWED = 0.85
"""The same in our study."""


def follows(run: Result, least: float, to: str = "") -> tuple[Check, ...]:
    """Check that throughput follows what the uplinks allow, and returns with them.

    Args:
        run: the run.
        least: the bound of both shares.
        to: to what they allow it, where an even split over the uplinks is less than all of them.
    """
    steps = [
        throughput.share(run.flows, *phase) for phase in throughput.phases(run, UPLINKS_SETTLE_RTTS)
    ]
    healed = throughput.last_healed_s(run) + UPLINKS_SETTLE_RTTS * run.data.base_rtt_s
    after = throughput.share(run.flows, healed, run.data.end_s)
    return (
        at_least(f"share of what the uplinks allow{to}, the least of any step", min(steps), least),
        at_least("the same after healing", after, least),
    )


FIXED = Variant("unequal-links", "unequal-links")
_NSCC = {"kind": "mrc", "evs": 32, "congestion": "nscc"}
NSCC = Variant("unequal-links-nscc", "unequal-links", {"transport": _NSCC})


def _both_follow(runs: Results) -> tuple[Check, ...]:
    return tuple(
        replace(check, what=f"{check.what}, {window}")
        for window, variant in (("a fixed window", FIXED), ("NSCC", NSCC))
        for check in follows(runs[variant.name], FOLLOWED, " to an even spread")
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
    _figure("19a", "uplinks-fail", partial(follows, least=UNIMPAIRED)),
    _figure("19b", "thin-uplinks", partial(follows, least=TRACKED)),
    _figure("19c", "thin-uplinks-together", partial(follows, least=TRACKED)),
)
UNEQUAL_LINKS = PaperFigure(
    "unequal-links", (FIXED, NSCC), measure=_both_follow, draw=_draw_both, is_own=True
)
