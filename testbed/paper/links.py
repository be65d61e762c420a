"""Figures 9a to 9d: links between NIC and T0, and between T0 and T1, go down and flap."""

from itertools import pairwise

from matplotlib.figure import Figure

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least, at_most, between
from testbed.paper.runs import Run
from testbed.paper.throughput import (
    before_faults,
    draw_flows,
    longest_stall_s,
    share,
)
from testbed.results.fault_metrics import FlowTables

SETTLE_RTTS = 3.0
"""After a change the throughput is taken from so long on: what was in flight has then arrived, and
the dead path is out of service. The paper's seconds hide hundreds of thousands of RTTs."""

MAX_STALL_S = 1.0
"""The paper's own bound on an interruption (figure 9a: < 1 s): of real time there, here of emulated
time, which is four orders of magnitude stricter."""

READING = (
    "Throughput of each flow, averaged over the base RTT before each point, as it would be at full "
    "speed; dashed: what the links in service allow. Shaded: when a fault was in force."
)


def _only(runs: Runs) -> Run:
    (run,) = runs.values()
    return run


def _draw(runs: Runs) -> Figure:
    return draw_flows(_only(runs))


def _phases(run: Run) -> list[tuple[float, float]]:
    """The times between one change of the links and the next, settled."""
    changes = {f.effective_s for f in run.summary.faults} | {f.healed_s for f in run.summary.faults}
    times = sorted(t for t in changes if t is not None)
    settle = SETTLE_RTTS * run.data.base_rtt_s
    return [(start + settle, end) for start, end in pairwise(times) if end - start > settle]


def _one_by_one(runs: Runs) -> tuple[Check, ...]:
    run = _only(runs)
    shares = [share(flow, *phase) for flow in run.flows for phase in _phases(run)]
    return (
        at_least(
            "share of what the remaining links allow, the least of any step", min(shares), 0.9
        ),
        at_most("longest interruption, emulated", longest_stall_s(run), MAX_STALL_S, "{:.2f} s"),
    )


def _during_and_after(run: Run, flow: FlowTables, settle_rtts: float) -> tuple[float, float]:
    """A flow's goodput during the fault and after it, as shares of what it was before."""
    begin, until = before_faults(run)
    steady = flow.delivery.goodput_bps(begin, until)
    start = min(f.effective_s or 0.0 for f in run.summary.faults)
    end = max(f.healed_s or 0.0 for f in run.summary.faults)
    settle = settle_rtts * run.data.base_rtt_s
    during = flow.delivery.goodput_bps(start + settle, end) / steady
    after = flow.delivery.goodput_bps(end + settle, run.summary.duration_s) / steady
    return during, after


def _half_flaps(runs: Runs) -> tuple[Check, ...]:
    run = _only(runs)
    found = [_during_and_after(run, flow, SETTLE_RTTS) for flow in run.flows]
    return (
        between("throughput while half of the links flap", min(d for d, _ in found), 0.45, 0.8),
        at_least("throughput after the flaps", min(a for _, a in found), 0.95),
    )


def _hardly_felt(runs: Runs) -> tuple[Check, ...]:
    run = _only(runs)
    found = [_during_and_after(run, flow, 0.0) for flow in run.flows]
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
        draw=_draw,
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
        draw=_draw,
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
        draw=_draw,
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
        draw=_draw,
        caption=READING,
    ),
)
