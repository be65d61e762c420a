"""Figures 8 to 11: links and switches fail, drawn as throughput over time."""

from collections.abc import Callable

from testbed.campaign.store import Run
from testbed.model.faults.kinds import Reboot
from testbed.model.units import NS_PER_S
from testbed.paper.checks import Check, at_least, between
from testbed.paper.experiments import throughput
from testbed.paper.experiments.drawing import draw_flows
from testbed.paper.figure import PaperFigure, Variant


def _silent_t1(run: Run) -> tuple[Check, ...]:
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Reboot) or planned.silent is None:
        raise TypeError(planned)
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    dark = start + planned.silent / NS_PER_S
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
        throughput.share(qps, *phase)
        for qps in throughput.by_direction(run.flows)
        for phase in throughput.phases(run)
    )
    return (
        at_least("share of what the remaining links allow, the least of any step", least, 0.9),
        at_least("throughput when all links are back", throughput.during_and_after(run)[1], 0.95),
        throughput.interruption(run),
    )


def _half_down(run: Run) -> tuple[Check, ...]:
    during, after = throughput.during_and_after(run)
    return (
        between("throughput while half of the links are down", during, 0.48, 0.52),
        at_least("throughput when they are back", after, 0.97),
        throughput.interruption(run),
    )


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
) -> PaperFigure:
    """A figure of a single run."""
    return PaperFigure(
        number,
        (Variant(scenario, scenario),),
        lambda runs: measure(throughput.only(runs)),
        lambda runs: draw_flows(throughput.only(runs)),
    )


LINKS_AND_SWITCHES: tuple[PaperFigure, ...] = (
    _figure("8", "t1-silent", _silent_t1),
    _figure("9a", "nic-links-one-by-one", _links_in_turn),
    _figure("9b", "nic-links-half", _half_down),
    _figure("9c", "twenty-links-down", _hardly_affected),
    _figure("9d", "fabric-links-flap", _hardly_affected),
    _figure("10", "t0-down", _t0_down),
    _figure("11", "t1-down", _t1_down),
)
