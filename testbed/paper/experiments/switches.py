"""Figures 8, 10 and 11: a T0 or a T1 goes down, loudly or silently, and comes back."""

from testbed.campaign.store import Run
from testbed.model.faults.kinds import Reboot
from testbed.paper.checks import Check, at_least, between
from testbed.paper.experiments.throughput import (
    SETTLE_RTTS,
    before_faults,
    during_and_after,
    interruption,
    least_of_before,
    over_time,
)
from testbed.paper.figure import PaperFigure


def _silent_t1(run: Run) -> tuple[Check, ...]:
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Reboot) or planned.silent is None:
        raise TypeError(planned)
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    dark = start + planned.silent / 1e9
    settle = SETTLE_RTTS * run.data.base_rtt_s
    steady = before_faults(run)
    return (
        at_least(
            "throughput while the T1 is silent, after the dip",
            least_of_before(run, steady, (start + settle, dark)),
            0.97,
        ),
        at_least(
            "throughput from the reboot until 3 RTTs after",
            least_of_before(run, steady, (dark, back + settle)),
            0.97,
        ),
        interruption(run),
    )


def _t0_down(run: Run) -> tuple[Check, ...]:
    during, after = during_and_after(run)
    planes = run.data.topology.planes
    left = (planes - 1) / planes
    return (
        between(
            f"throughput without the T0 ({planes - 1} of {planes} planes are {left:.1%})",
            during,
            left - 0.03,
            left + 0.01,
        ),
        at_least("throughput when it is back", after, 0.97),
    )


def _t1_down(run: Run) -> tuple[Check, ...]:
    during, after = during_and_after(run)
    return (
        at_least("throughput without the T1", during, 0.98),
        at_least("throughput when it is back", after, 0.98),
    )


SWITCHES: tuple[PaperFigure, ...] = (
    over_time(
        "8",
        scenario="t1-silent",
        measure=_silent_t1,
    ),
    over_time(
        "10",
        scenario="t0-down",
        measure=_t0_down,
    ),
    over_time(
        "11",
        scenario="t1-down",
        measure=_t1_down,
    ),
)
