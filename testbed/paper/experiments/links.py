"""Figures 9a to 9d: links between NIC and T0, and between T0 and T1, go down and flap."""

import numpy as np

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
from testbed.paper.runs import Run


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
        "NIC-T0 links go down one by one",
        saw="throughput follows the remaining links; a short interruption each time (< 1 s)",
        ours="Two hosts of a rack with 8 ports each write to each other. Seven of the eight links "
        "of one of them lose carrier, one every 0.7 s, and get it back in reverse order. The paper "
        "takes minutes; here every step is five base RTTs.",
        scenario="nic-links-one-by-one",
        measure=_one_by_one,
    ),
    over_time(
        "9b",
        "Four of eight NIC-T0 links flap together",
        saw="stabilises at half, recovers",
        ours="Two hosts of a rack with 8 ports each write to each other; four links of one of them "
        "lose carrier together for 0.2 s (2 base RTTs) every 0.4 s, for 4 s.",
        scenario="nic-links-flap",
        measure=_half_flaps,
    ),
    over_time(
        "9c",
        "Twenty T0-T1 links go down, one after the other",
        saw="minimal impact",
        ours="Two hosts of different racks with 8 ports each write to each other, over 4 T1s in "
        "each plane. Twenty of the 64 T0-T1 links lose carrier, one every 0.4 s (the paper: one a "
        "second, of some thousands).",
        scenario="twenty-links-down",
        measure=_hardly_felt,
    ),
    over_time(
        "9d",
        "Eight T0-T1 links flap together",
        saw="negligible impact",
        ours="Two hosts of different racks with 8 ports each write to each other; eight T0-T1 "
        "links, one in each plane, lose carrier together for 0.2 s every 0.4 s, for 4 s.",
        scenario="fabric-links-flap",
        measure=_hardly_felt,
    ),
)
