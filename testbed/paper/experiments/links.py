"""Figures 9a to 9d: links between NIC and T0, and between T0 and T1, go down and flap."""

import numpy as np

from testbed.campaign.store import Run
from testbed.model.faults.kinds import Flap
from testbed.paper.checks import Check, at_least, between
from testbed.paper.experiments.throughput import (
    SETTLE_RTTS,
    during_and_after,
    interruption,
    last_healed_s,
    over_time,
    phases,
    share,
)
from testbed.paper.figure import PaperFigure


def _one_by_one(run: Run) -> tuple[Check, ...]:
    shares = [share(flow, *phase) for flow in run.flows for phase in phases(run)]
    return (
        at_least(
            "share of what the remaining links allow, the least of any step", min(shares), 0.9
        ),
        at_least("throughput when all links are back", during_and_after(run)[1], 0.95),
        interruption(run),
    )


def _half_flaps(run: Run) -> tuple[Check, ...]:
    during, after = during_and_after(run)
    return (
        between("throughput while half of the links flap", during, 0.42, 0.58),
        at_least("the least of any flap's, of their mean", _steadiness(run), 0.8, "{:.0%}"),
        at_least("throughput after the flaps", after, 0.95),
    )


def _steadiness(run: Run) -> float:
    """What the worst flow placed in the worst period of a flap, over the mean of all of them."""
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Flap):
        raise TypeError(planned)
    start = (fault.effective_s or 0.0) + SETTLE_RTTS * run.data.base_rtt_s
    edges = np.arange(start, last_healed_s(run), planned.period / 1e9)
    placed = [np.diff(flow.delivery.bytes_until(edges)) for flow in run.flows]
    return min(float(one.min() / one.mean()) for one in placed)


def _hardly_felt(run: Run) -> tuple[Check, ...]:
    during, _ = during_and_after(run, settle_rtts=0.0)
    return (
        at_least("throughput from the first failure to the last healing", during, 0.95),
        interruption(run),
    )


LINKS: tuple[PaperFigure, ...] = (
    over_time(
        "9a",
        scenario="nic-links-one-by-one",
        measure=_one_by_one,
    ),
    over_time(
        "9b",
        scenario="nic-links-flap",
        measure=_half_flaps,
    ),
    over_time(
        "9c",
        scenario="twenty-links-down",
        measure=_hardly_felt,
    ),
    over_time(
        "9d",
        scenario="fabric-links-flap",
        measure=_hardly_felt,
    ),
)
