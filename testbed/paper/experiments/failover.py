"""The same dead link under every transport: how long an application waits, how much is missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from testbed.campaign.store import Run, Runs
from testbed.paper.checks import Check, ahead
from testbed.paper.experiments.throughput import stall_rtts
from testbed.paper.figure import PaperFigure, Variant
from testbed.paper.targets import paths_in_use
from testbed.results.analysis.delivery import message_times, overdue_s
from testbed.results.analysis.estimates import estimate
from testbed.results.analysis.fault_metrics import (
    BASELINE_RTTS,
    DEFICIT_TAIL_RTTS,
    FlowTables,
    run_end,
)
from testbed.results.report.figures import style

PAIR = ("h0", "h4")
"""Who writes to whom, both ways: the scenario's."""

_NO_KERNEL = "the kernel's TCP and Multipath TCP run in the kernel's time only"
_MRC = {"kind": "mrc", "backups": 0.25}


STALL, OVERDUE, DEFICIT = "longest stall", "messages overdue", "deficit"


@dataclass(frozen=True, slots=True)
class Kind:
    """A transport that meets the dead link.

    Attributes:
        label: what it is called in the drawing.
        name: what its run is called.
        transport: the scenario's key.
        topology: the fabric: planes, or one of the same rate.
        only_emulated: why it cannot be simulated; empty if it can.
        only_simulated: why it is not emulated; empty if it is.
    """

    label: str
    name: str
    transport: Mapping[str, Any]
    topology: str = "clos-4plane"
    only_emulated: str = ""
    only_simulated: str = ""

    @property
    def variant(self) -> Variant:
        """Its run."""
        return Variant(
            f"dead-link-{self.name}",
            "dead-link",
            {"transport": dict(self.transport), "topology": self.topology},
            with_seed=_dead_link,
            only_emulated=self.only_emulated,
            only_simulated=self.only_simulated,
        )


def _dead_link(data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The fault: an uplink that the pair's first direction uses, another one with each seed."""
    topology, used = paths_in_use(data, *PAIR, seed)
    path = used[(seed * _STRIDE) % len(used)]
    link = topology.fabric_link(path.plane, topology.rack(topology.nodes[PAIR[0]]), path.t1 or 0)
    (fault,) = data["timeline"]
    return {"timeline": [{**fault, "target": link.name}]}


_STRIDE = 5
"""Between the paths that die with one seed and with the next: in other planes, too."""

RTO_MIN = "100 us"
"""TCP's least retransmission timeout, scaled with the fabric: 1 s of emulated time. A real kernel,
whose timers tick every millisecond, would wait ten times as long at best."""

MRC = Kind("MRC", "mrc", _MRC)
BLIND = Kind("blind spraying", "blind", {"kind": "mrc", "spray": "blind"})
GO_BACK = Kind("go-back-N under spraying", "go-back", _MRC | {"repair": "go-back"})
"""MRC with one mechanism less: drawn here, judged with the others of its kind (`ablation.py`)."""

OTHERS = (
    BLIND,
    Kind(
        "RoCE, routing converges in 50 us",
        "roce-50us",
        {"kind": "roce", "convergence": "50 us"},
        "clos-1plane-roce",
    ),
    Kind("RoCE, no convergence", "roce", {"kind": "roce"}, "clos-1plane-roce"),
    Kind("TCP, cubic", "tcp", {"kind": "tcp"}, "clos-1plane", only_emulated=_NO_KERNEL),
    Kind(
        "TCP, timeout 100 us at least",
        "tcp-scaled",
        {"kind": "tcp", "rto_min": RTO_MIN},
        "clos-1plane",
        only_emulated=_NO_KERNEL,
    ),
    Kind("Multipath TCP, cubic", "mptcp", {"kind": "mptcp"}, only_emulated=_NO_KERNEL),
    Kind(
        "Multipath TCP, timeout 100 us at least",
        "mptcp-scaled",
        {"kind": "mptcp", "rto_min": RTO_MIN},
        only_emulated=_NO_KERNEL,
    ),
)


"""What MRC should be ahead of: transports that do without EV states."""

_DRAWN = (MRC, BLIND, GO_BACK, *OTHERS[1:])


def stall(run: Run) -> float:
    """The longest that a flow delivered nothing in order, in base RTTs."""
    (fault,) = run.summary.faults
    return stall_rtts(fault)


def _overdue(run: Run) -> float:
    """How long a message of the worst flow was overdue, in base RTTs."""
    return max(_overdue_of(run, flow) for flow in run.flows)


def _overdue_of(run: Run, flow: FlowTables) -> float:
    (fault,) = run.summary.faults
    rtt, start = run.data.base_rtt_s, fault.effective_s or 0.0
    begun, done = message_times(run.data.table("completions", flow.flow.flow), flow.transmissions)
    took = done - begun[: len(done)]
    before = (begun[: len(done)] >= BASELINE_RTTS * rtt) & (done <= start)
    end = min((fault.healed_s or start) + DEFICIT_TAIL_RTTS * rtt, run_end(run.data))
    if not before.any():
        return (end - start) / rtt
    usual = max(np.median(took[before]) + OVERDUE_RTTS * rtt, np.max(took[before]))
    return overdue_s(begun, done, float(usual), start, end) / rtt


OVERDUE_RTTS = 0.5
"""A message is overdue that takes so much longer than the median one before the fault, and longer
than any of them."""


def deficit(run: Run) -> float:
    """What the worst flow delivered less than the links allowed, in base RTTs of its rate."""
    (fault,) = run.summary.faults
    return inf if fault.deficit is None else fault.deficit.rtt


_MEASURES: Mapping[str, Callable[[Run], float]] = {
    STALL: stall,
    OVERDUE: _overdue,
    DEFICIT: deficit,
}


FEW_TENS_US = 50.0
"""Within "a few tens of microseconds" paths are bypassed in the paper; so many are ours."""


def _measure(seeds: Sequence[Runs]) -> tuple[Check, ...]:
    """Hold MRC's stall against the paper's words, and compare each transport with it."""
    stalls_us = tuple(_stall_us(runs[MRC.variant.name]) for runs in seeds)
    return (
        Check("MRC's longest stall, as at full speed", stalls_us, -inf, FEW_TENS_US, "{:.0f} us"),
        *(
            _ahead(kind, name, seeds)
            for kind in OTHERS
            if kind.variant.name in seeds[0]
            for name in _MEASURES
        ),
    )


def _stall_us(run: Run) -> float:
    (fault,) = run.summary.faults
    return inf if fault.stall is None else fault.stall.real_us


def _ahead(kind: Kind, name: str, seeds: Sequence[Runs]) -> Check:
    mrc, other = (
        [_MEASURES[name](runs[one.variant.name]) for runs in seeds] for one in (MRC, kind)
    )
    what = f"{name}, over MRC's: {kind.label}"
    return ahead(what, mrc, other, unit="RTT")


def _draw(seeds: Sequence[Runs]) -> Figure:
    """Draw bars with the median of all seeds, and how sure it is."""
    kinds = [kind for kind in _DRAWN if kind.variant.name in seeds[0]][::-1]
    figure = style.new_figure(0.9 + 0.26 * len(kinds))
    panels = figure.subplots(1, len(_MEASURES), sharey=True)
    for axes, (name, value) in zip(panels, _MEASURES.items(), strict=True):
        found = [estimate([value(runs[kind.variant.name]) for runs in seeds]) for kind in kinds]
        medians = [one.median for one in found]
        colours = [style.BLUE if kind is MRC else style.GREY for kind in kinds]
        axes.barh([kind.label for kind in kinds], medians, color=colours, height=0.6)
        for place, one in enumerate(found):
            style.whisker(axes, place, one.low, one.high)
            axes.annotate(
                f"{one.median:.2g}",
                (one.high, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
        axes.set_xlabel(f"{name} (base RTTs)")
        axes.set_xlim(0, 1.3 * max(one.high for one in found))
        axes.spines["top"].set_visible(False)
    return figure


FAILOVER = PaperFigure(
    number="failover",
    variants=tuple(kind.variant for kind in _DRAWN),
    measure=lambda runs: _measure([runs]),
    measure_seeds=_measure,
    draw=lambda runs: _draw([runs]),
    draw_seeds=_draw,
    seeds=6,
    emulated_seeds=(1, 2, 3),
)
