"""Figures 19a to 19c: a rack sends at full rate, and its uplinks fail or slow down."""

from testbed.paper.figure import Check, PaperFigure, at_least
from testbed.paper.runs import Run
from testbed.paper.throughput import last_healed_s, over_time, phases, share_of_all
from testbed.results.fault_metrics import run_end

SETTLE_RTTS = 8.0
"""Here the window must shrink and grow with the capacity, which takes more than a path's death."""

LEAST = 0.85
"""Throughput "follows" the capacity at this share of it or more, in every step."""


def _follows(run: Run) -> tuple[Check, ...]:
    steps = [share_of_all(run, *phase) for phase in phases(run, SETTLE_RTTS)]
    healed = last_healed_s(run) + SETTLE_RTTS * run.data.base_rtt_s
    after = share_of_all(run, healed, run_end(run.data))
    return (
        at_least("share of what the uplinks allow, the least of any step", min(steps), LEAST),
        at_least("the same after healing", after, LEAST),
    )


_SETTING = (
    "One plane of 400 Gb/s ports, 4 T1s, two racks of 4 hosts; each host of one writes to one of "
    "the other, which fills the four uplinks. "
)

UPLINKS: tuple[PaperFigure, ...] = (
    over_time(
        "19a",
        "Three of four T0-T1 links fail in sequence",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Three of the uplinks lose carrier, one every 2.5 s.",
        scenario="uplinks-fail",
        measure=_follows,
        together=True,
    ),
    over_time(
        "19b",
        "T0-T1 links at a quarter of their speed",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Three of the uplinks fall to a quarter of their speed, one every 2.5 s. "
        "32 EVs a QP, a fixed window.",
        scenario="uplinks-slow",
        measure=_follows,
        together=True,
        cannot_show="it with NSCC: there the marks of the slow links shrink the window too, and "
        "60% of what the links allow is left.",
    ),
    over_time(
        "19c",
        "Two T0-T1 links fail at once",
        saw="throughput follows the remaining capacity",
        ours=_SETTING + "Two of the uplinks lose carrier together for 4 s.",
        scenario="uplinks-fail-together",
        measure=_follows,
        together=True,
    ),
)
