"""Figures 8 to 11, 19a and 19c: links and switches fail, drawn as throughput over time."""

from collections.abc import Callable

import numpy as np

from testbed.campaign.store import Run
from testbed.model.faults.kinds import Flap, Reboot
from testbed.paper.checks import Check, at_least, between
from testbed.paper.experiments import throughput
from testbed.paper.experiments.drawing import draw_flows
from testbed.paper.experiments.uplinks import SLOW_UPLINKS, follows
from testbed.paper.figure import PaperFigure, Variant


def _silent_t1(run: Run) -> tuple[Check, ...]:
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Reboot) or planned.silent is None:
        raise TypeError(planned)
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    dark = start + planned.silent / 1e9
    settle = throughput.SETTLE_RTTS * run.data.base_rtt_s
    silent = throughput.least_of_before(run, start + settle, dark)
    rebooting = throughput.least_of_before(run, dark, back + settle)
    return (
        at_least("throughput while the T1 is silent, after the dip", silent, 0.97),
        at_least("throughput from the reboot until 3 RTTs after", rebooting, 0.97),
        throughput.interruption(run),
    )


def _t0_down(run: Run) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    planes = run.data.topology.planes
    remaining = (planes - 1) / planes
    what = f"throughput without the T0 ({planes - 1} of {planes} planes are {remaining:.1%})"
    return (
        between(what, during, remaining - 0.03, remaining + 0.01),
        at_least("throughput when it is back", after, 0.97),
    )


def _t1_down(run: Run) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    return (
        at_least("throughput without the T1", during, 0.98),
        at_least("throughput when it is back", after, 0.98),
    )


def _links_in_turn(run: Run) -> tuple[Check, ...]:
    least = min(
        throughput.share([flow], *phase) for flow in run.flows for phase in throughput.phases(run)
    )
    return (
        at_least("share of what the remaining links allow, the least of any step", least, 0.9),
        at_least("throughput when all links are back", throughput.during_and_after(run)[1], 0.95),
        throughput.interruption(run),
    )


def _half_flaps(run: Run) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    return (
        between("throughput while half of the links flap", during, 0.42, 0.58),
        at_least("the least of any flap's, of their mean", _steadiness(run), 0.8, "{:.0%}"),
        at_least("throughput after the flaps", after, 0.95),
    )


def _steadiness(run: Run) -> float:
    """What the worst flow placed in the worst period of a flap, over its mean of all periods."""
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Flap):
        raise TypeError(planned)
    start = (fault.effective_s or 0.0) + throughput.SETTLE_RTTS * run.data.base_rtt_s
    edges = np.arange(start, throughput.last_healed_s(run), planned.period / 1e9)
    placed = [np.diff(flow.delivery.bytes_until(edges)) for flow in run.flows]
    return min(float(periods.min() / periods.mean()) for periods in placed)


def _hardly_affected(run: Run) -> tuple[Check, ...]:
    during, _ = throughput.during_and_after(run, settle_rtts=0.0)
    return (
        at_least("throughput from the first failure to the last healing", during, 0.95),
        throughput.interruption(run),
    )


def _figure(
    number: str,
    scenario: str,
    measure: Callable[[Run], tuple[Check, ...]],
    *,
    together: bool = False,
) -> PaperFigure:
    """A figure of a single run; with `together` the sum of its flows is drawn as well."""
    return PaperFigure(
        number,
        (Variant(scenario, scenario),),
        lambda runs: measure(throughput.only(runs)),
        lambda runs: draw_flows(throughput.only(runs), together=together),
    )


LINKS_AND_SWITCHES: tuple[PaperFigure, ...] = (
    _figure("8", "t1-silent", _silent_t1),
    _figure("9a", "nic-links-one-by-one", _links_in_turn),
    _figure("9b", "nic-links-flap", _half_flaps),
    _figure("9c", "twenty-links-down", _hardly_affected),
    _figure("9d", "fabric-links-flap", _hardly_affected),
    _figure("10", "t0-down", _t0_down),
    _figure("11", "t1-down", _t1_down),
)

UPLINKS: tuple[PaperFigure, ...] = (
    _figure("19a", "uplinks-fail", follows, together=True),
    SLOW_UPLINKS,
    _figure("19c", "uplinks-fail-together", follows, together=True),
)
