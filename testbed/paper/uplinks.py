"""Figures 19a to 19c: a rack sends at full rate, and its uplinks fail or slow down."""

import numpy as np
from matplotlib.figure import Figure

from testbed.paper.figure import Check, PaperFigure, Runs, Variant, at_least
from testbed.paper.runs import Run
from testbed.paper.throughput import (
    BIN_RTTS,
    COLOURS,
    TIME,
    gbps,
    only,
    phases,
    shade_faults,
    sliding,
)
from testbed.results.fault_metrics import run_end
from testbed.results.figures import style

SETTLE_RTTS = 8.0
"""Here the window must shrink and grow with the capacity, which takes more than a path's death."""

LEAST = 0.85
"""Throughput "follows" the capacity at this share of it or more, in every step."""


def _follows(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    steps = [_share_of_all(run, *phase) for phase in phases(run, SETTLE_RTTS)]
    healed = max(f.healed_s or 0.0 for f in run.summary.faults)
    end = run_end(run.data)
    after = _share_of_all(run, healed + SETTLE_RTTS * run.data.base_rtt_s, end)
    return (
        at_least("share of what the uplinks allow, the least of any step", min(steps), LEAST),
        at_least("the same after healing", after, LEAST),
    )


def _share_of_all(run: Run, start: float, end: float) -> float:
    """What all flows placed, as a share of what the links in service allowed them."""
    span = np.array([start, end])
    placed = sum(8 * float(np.diff(f.delivery.bytes_until(span))[0]) for f in run.flows)
    allowed = sum(float(f.attainable.bits(span[:1], span[1:])[0]) for f in run.flows)
    return placed / allowed


def _draw(runs: Runs) -> Figure:
    run = only(runs)
    figure = style.new_figure(2.9)
    axes = figure.subplots()
    rtt, end = run.data.base_rtt_s, run_end(run.data)
    moments = np.arange(0, end, rtt / 4)
    rates = [sliding(run, flow, moments, 2 * BIN_RTTS * rtt) for flow in run.flows]
    for flow, one, colour in zip(run.flows, rates, COLOURS, strict=False):
        axes.plot(moments, one, color=colour, linewidth=0.8, label=flow.flow.name)
    axes.plot(moments, np.sum(rates, axis=0), color=style.BLACK, linewidth=1.5, label="together")
    allowed = [gbps(run, sum(f.attainable.at(t) for f in run.flows)) for t in moments]
    axes.plot(moments, allowed, color=style.BLACK, linestyle=(0, (4, 2)), label="links allow")
    shade_faults(axes, run, end)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.25 * max(allowed))
    axes.spines["top"].set_visible(False)
    style.rtt_axis(axes, 0, rtt, "base RTTs")
    axes.set_xlabel(TIME)
    axes.set_ylabel("throughput (Gb/s, real-equivalent)")
    figure.legend(loc="outside lower center", ncols=6)
    return figure


_SETTING = (
    "One plane of 400 Gb/s ports, 4 T1s, two racks of 4 hosts; each host of one writes to one of "
    "the other, which fills the four uplinks. "
)
_READING = (
    "Throughput of each flow and of all together, averaged over the two base RTTs before each "
    "point; dashed: what the links in service allow."
)

UPLINKS: tuple[PaperFigure, ...] = (
    PaperFigure(
        number="19a",
        title="Three of four T0-T1 links fail in sequence",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Three of the uplinks lose carrier, one every 2.5 s.",
        variants=(Variant("uplinks-fail", "uplinks-fail"),),
        measure=_follows,
        draw=_draw,
        caption=_READING,
    ),
    PaperFigure(
        number="19b",
        title="T0-T1 links at a quarter of their speed",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Three of the uplinks fall to a quarter of their speed, one every 2.5 s. "
        "32 EVs a QP, a fixed window.",
        variants=(Variant("uplinks-slow", "uplinks-slow"),),
        measure=_follows,
        draw=_draw,
        caption=_READING,
        cannot_show="it with NSCC: there the marks of the slow links shrink the window too, and "
        "60% of what the links allow is left.",
    ),
    PaperFigure(
        number="19c",
        title="Two T0-T1 links fail at once",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Two of the uplinks lose carrier together for 4 s.",
        variants=(Variant("uplinks-fail-together", "uplinks-fail-together"),),
        measure=_follows,
        draw=_draw,
        caption=_READING,
    ),
)
