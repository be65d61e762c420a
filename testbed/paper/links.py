"""Figures 9a to 9d: links between NIC and T0, and between T0 and T1, go down and flap."""

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least, at_most, between
from testbed.paper.throughput import (
    READING,
    SETTLE_RTTS,
    draw_only,
    during_and_after,
    longest_stall_s,
    only,
    phases,
    share,
)

MAX_STALL_S = 1.0
"""The paper's own bound on an interruption (figure 9a: < 1 s): of real time there, here of emulated
time, which is four orders of magnitude stricter."""


def _one_by_one(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    shares = [share(flow, *phase) for flow in run.flows for phase in phases(run)]
    return (
        at_least(
            "share of what the remaining links allow, the least of any step", min(shares), 0.9
        ),
        at_most("longest interruption, emulated", longest_stall_s(run), MAX_STALL_S, "{:.2f} s"),
    )


def _half_flaps(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    found = [during_and_after(run, flow, SETTLE_RTTS) for flow in run.flows]
    return (
        between("throughput while half of the links flap", min(d for d, _ in found), 0.45, 0.8),
        at_least("throughput after the flaps", min(a for _, a in found), 0.95),
    )


def _hardly_felt(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    found = [during_and_after(run, flow, 0.0) for flow in run.flows]
    return (
        at_least("throughput from the first failure to the last healing", min(found)[0], 0.95),
        at_most("longest interruption, emulated", longest_stall_s(run), MAX_STALL_S, "{:.2f} s"),
    )


LINKS: tuple[PaperFigure, ...] = (
    PaperFigure(
        number="9a",
        title="NIC-T0 links go down one by one",
        saw="throughput follows the remaining links; a short interruption each time (< 1 s)",
        ours="Two hosts of a rack with 8 ports each write to each other. Seven of the eight links "
        "of one of them lose carrier, one every 0.7 s, and get it back in reverse order. The paper "
        "takes minutes; here every step is five base RTTs.",
        variants=(Variant("nic-links-one-by-one", "nic-links-one-by-one"),),
        measure=_one_by_one,
        draw=draw_only,
        caption=READING,
    ),
    PaperFigure(
        number="9b",
        title="Four of eight NIC-T0 links flap together",
        saw="stabilises at half, recovers",
        ours="Two hosts of a rack with 8 ports each write to each other; four links of one of them "
        "lose carrier together for 0.2 s (2 base RTTs) every 0.4 s, for 4 s.",
        variants=(Variant("nic-links-flap", "nic-links-flap"),),
        measure=_half_flaps,
        draw=draw_only,
        caption=READING,
    ),
    PaperFigure(
        number="9c",
        title="Twenty T0-T1 links go down, one after the other",
        saw="minimal impact",
        ours="Two hosts of different racks with 8 ports each write to each other, over 4 T1s in "
        "each plane. Twenty of the 64 T0-T1 links lose carrier, one every 0.4 s (the paper: one a "
        "second, of some thousands).",
        variants=(Variant("twenty-links-down", "twenty-links-down"),),
        measure=_hardly_felt,
        draw=draw_only,
        caption=READING,
    ),
    PaperFigure(
        number="9d",
        title="Eight T0-T1 links flap together",
        saw="negligible impact",
        ours="Two hosts of different racks with 8 ports each write to each other; eight T0-T1 "
        "links, one in each plane, lose carrier together for 0.2 s every 0.4 s, for 4 s.",
        variants=(Variant("fabric-links-flap", "fabric-links-flap"),),
        measure=_hardly_felt,
        draw=draw_only,
        caption=READING,
    ),
)
