"""Figures 8, 10 and 11: a T0 or a T1 goes down, loudly or silently, and comes back."""

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least, at_most, between
from testbed.paper.throughput import (
    READING,
    SETTLE_RTTS,
    draw_only,
    during_and_after,
    longest_stall_s,
    only,
)

STEP = "{:.2f} s"


def _silent_t1(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    (fault,) = run.summary.faults
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    dark = start + (back - start) * SILENT_SHARE
    settle = SETTLE_RTTS * run.data.base_rtt_s
    steady = [flow.delivery.goodput_bps(start - 2.0, start) for flow in run.flows]

    def least(begin: float, end: float) -> float:
        rates = [flow.delivery.goodput_bps(begin, end) for flow in run.flows]
        return min(rate / before for rate, before in zip(rates, steady, strict=True))

    return (
        at_least(
            "throughput while the T1 is silent, after the dip", least(start + settle, dark), 0.97
        ),
        at_least(
            "throughput from the reboot until 3 RTTs after",
            least(dark, back + settle),
            0.97,
        ),
        at_most("longest interruption, emulated", longest_stall_s(run), 1.0, STEP),
    )


SILENT_SHARE = 2 / 3
"""Of the fault's time the T1 is silent for this share, then dark: as its scenario says."""


def _t0_down(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    found = [during_and_after(run, flow, SETTLE_RTTS) for flow in run.flows]
    planes = run.data.topology.planes
    left = (planes - 1) / planes
    return (
        between(
            f"throughput without the T0 ({planes - 1} of {planes} planes are {left:.1%})",
            min(during for during, _ in found),
            left - 0.03,
            left + 0.01,
        ),
        at_least("throughput when it is back", min(after for _, after in found), 0.97),
    )


def _t1_down(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    found = [during_and_after(run, flow, SETTLE_RTTS) for flow in run.flows]
    return (
        at_least("throughput without the T1", min(during for during, _ in found), 0.98),
        at_least("throughput when it is back", min(after for _, after in found), 0.98),
    )


_SETTING = (
    "Two hosts of different racks with 8 ports each write to each other, over 4 T1s in each plane. "
)

SWITCHES: tuple[PaperFigure, ...] = (
    PaperFigure(
        number="8",
        title="A T1 stops forwarding silently, and is rebooted later",
        saw="a dip, then unaffected; the reboot itself has no impact",
        ours=_SETTING + "A T1 swallows everything for 4 s while its links stay up; then it is "
        "rebooted: its links are dark for 2 s. The paper's took minutes.",
        variants=(Variant("t1-silent", "t1-silent"),),
        measure=_silent_t1,
        draw=draw_only,
        caption=READING,
    ),
    PaperFigure(
        number="10",
        title="A T0 goes down",
        saw="loses exactly that plane's share (100 of 800 Gb/s)",
        ours=_SETTING + "All links of the T0 of one plane of one rack lose carrier for 4 s.",
        variants=(Variant("t0-down", "t0-down"),),
        measure=_t0_down,
        draw=draw_only,
        caption=READING,
    ),
    PaperFigure(
        number="11",
        title="A T1 goes down and is restored",
        saw="no steady-state loss",
        ours=_SETTING + "All links of a T1 lose carrier for 4 s.",
        variants=(Variant("t1-down", "t1-down"),),
        measure=_t1_down,
        draw=draw_only,
        caption=READING,
    ),
)
