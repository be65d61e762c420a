"""Links and switches fail: throughput over time, and a dead link under every transport.

Figures 8 to 11 and 19a to 19c, a study of ours in which uplinks of a rack slow down, and one of how
long an application waits and what is not delivered.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from testbed.model.errors import RunFailedError
from testbed.results.analysis.delivery import message_times, overdue_s
from testbed.results.analysis.estimates import estimate
from testbed.results.analysis.fault_metrics import BASELINE_RTTS, TAIL_RTTS, FlowTables
from testbed.results.records import COMPLETIONS
from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import (
    draw_flows,
    legend_below,
    measured,
    new_panels,
    only,
    plot_flows,
    stall_rtts,
)
from testbed.studies.paper.fabrics import paths_in_use
from testbed.studies.paper.figure import Check, PaperFigure, Variant, costs_less
from testbed.studies.paper.rows import row


def _figure(number: str, scenario: str) -> PaperFigure:
    """A row of a single run."""
    return row(number, "over-time", lambda runs: draw_flows(only(runs)), scenarios=(scenario,))


LINKS_AND_SWITCHES: tuple[PaperFigure, ...] = (
    row(
        "8",
        "silent-t1",
        lambda runs: draw_flows(runs["t1-silent"]),
        runs={"t1-silent-many-qps": {"excluded": {"emulated": "128 T1s are too many switches"}}},
        forms={"usual_losses": "{:.1f}"},
    ),
    _figure("9a", "nic-links-one-by-one"),
    _figure("9b", "nic-links-half"),
    _figure("9c", "twenty-links-down"),
    _figure("9d", "fabric-links-flap"),
    _figure("10", "t0-down"),
    _figure("11", "t1-down"),
)
UPLINKS = (
    _figure("19a", "uplinks-fail"),
    _figure("19b", "thin-uplinks"),
    _figure("19c", "thin-uplinks-together"),
)


_UNEQUAL = ("unequal-links", "unequal-links-nscc")


def _draw_both(runs: Results) -> Figure:
    figure, panels = new_panels(4.8, 2, sharex=True, sharey=True)
    for axes, name in zip(panels, _UNEQUAL, strict=True):
        plot_flows(axes, runs[name], runs[name].flows, together=True)
    panels[0].set_xlabel("")
    legend_below(figure, 6, panels[0])
    return figure


UNEQUAL_LINKS = row("unequal-links", "over-time", _draw_both, scenarios=_UNEQUAL, is_own=True)


PAIR = ("h0", "h4")
"""The hosts that write to each other in the scenario."""

_KERNEL: Mapping[Form, str] = {
    "simulated": "the kernel's TCP and Multipath TCP run in the kernel's time only"
}
_MRC = {"kind": "mrc", "backups": 0.25}


Cost = Callable[[Result], float]
"""What a run costs an application: the less the better."""

STALL, OVERDUE, SHORTFALL = "longest stall", "messages overdue", "not delivered"


def dead_link(
    name: str,
    transport: Mapping[str, Any],
    topology: str = "clos-4plane",
    excluded: Mapping[Form, str] = MappingProxyType({}),
) -> Variant:
    """The run of a transport that meets the dead link.

    Args:
        name: the run's.
        transport: the scenario's key.
        topology: the fabric: of four planes, or of one of the same rate.
        excluded: the forms in which it is not made, each with the reason.
    """
    changes = {"transport": dict(transport), "topology": topology}
    return Variant(
        f"dead-link-{name}", "dead-link", changes, with_seed=on_a_path_in_use, excluded=excluded
    )


def on_a_path_in_use(data: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The fault: an uplink that the pair's first direction uses, another one with each seed."""
    topology, used = paths_in_use(data, *PAIR, seed)
    path = used[(seed * _STRIDE) % len(used)]
    link = topology.fabric_link(path.plane, topology.rack(topology.nodes[PAIR[0]]), path.t1 or 0)
    (fault,) = data["timeline"]
    return {"timeline": [{**fault, "target": link.name}]}


_STRIDE = 5
"""Distance between the paths that die with one seed and with the next: the plane changes, too."""

RTO_MIN = "100 us"
"""TCP's least retransmission timeout, scaled with the fabric: 1 s of emulated time. A real kernel,
whose timers tick every millisecond, would wait ten times as long at best."""

MRC = dead_link("mrc", _MRC)
BLIND = dead_link("blind", {"kind": "mrc", "spray": "blind"})
GO_BACK = dead_link("go-back", _MRC | {"repair": "go-back"})
"""MRC without one mechanism: drawn here, judged with the others of its kind (`ablation.py`)."""

OTHERS = {
    "blind spraying": BLIND,
    "RoCE, routing converges in 50 us": dead_link(
        "roce-50us", {"kind": "roce", "convergence": "50 us"}, "clos-1plane-roce"
    ),
    "RoCE, no convergence": dead_link("roce", {"kind": "roce"}, "clos-1plane-roce"),
    "TCP, cubic": dead_link("tcp", {"kind": "tcp"}, "clos-1plane", _KERNEL),
    "TCP, timeout 100 us at least": dead_link(
        "tcp-scaled", {"kind": "tcp", "rto_min": RTO_MIN}, "clos-1plane", _KERNEL
    ),
    "Multipath TCP, cubic": dead_link("mptcp", {"kind": "mptcp"}, excluded=_KERNEL),
    "Multipath TCP, timeout 100 us at least": dead_link(
        "mptcp-scaled", {"kind": "mptcp", "rto_min": RTO_MIN}, excluded=_KERNEL
    ),
}
"""Transports without EV states, by their labels: MRC should be ahead of each."""

_DRAWN = {"MRC": MRC, "blind spraying": BLIND, "go-back-N under spraying": GO_BACK, **OTHERS}


def stall(run: Result) -> float:
    """The longest time that a flow delivered nothing in order, in base RTTs."""
    (fault,) = run.summary.faults
    return stall_rtts(fault)


def _overdue(run: Result) -> float:
    """How long messages of the worst flow were overdue, in base RTTs."""
    return max(_overdue_of(run, flow) for flow in run.flows)


def _overdue_of(run: Result, flow: FlowTables) -> float:
    (fault,) = run.summary.faults
    rtt, start = run.data.base_rtt_s, fault.effective_s or 0.0
    begun, done = message_times(run.data.table(COMPLETIONS, flow.flow.flow), flow.transmissions)
    took = done - begun[: len(done)]
    before = (begun[: len(done)] >= BASELINE_RTTS * rtt) & (done <= start)
    end = min((fault.healed_s or start) + TAIL_RTTS * rtt, run.data.end_s)
    if not before.any():
        return (end - start) / rtt
    usual = max(np.median(took[before]) + OVERDUE_RTTS * rtt, np.max(took[before]))
    return overdue_s(begun, done, float(usual), start, end) / rtt


OVERDUE_RTTS = 0.5
"""A message is overdue if it takes so much longer than the median before the fault, and longer than
any message before the fault."""


def shortfall(run: Result) -> float:
    """How much less than with all links the worst flow delivered, in base RTTs of its rate.

    It is the capacity lost and the deficit together, from the fault's effect to 10 base RTTs after
    its healing: what the link took, and what the transport added.

    Raises:
        RunFailedError: no flow had an active EV through the link.
    """
    (fault,) = run.summary.faults
    affected = [flow for flow in fault.flows if flow.affected]
    if not affected:
        raise RunFailedError(f"no flow crossed {fault.target}")
    return max(
        measured(flow.deficit, "deficit").rtt + measured(flow.capacity_lost, "capacity lost").rtt
        for flow in affected
    )


_COSTS: Mapping[str, Cost] = {STALL: stall, OVERDUE: _overdue, SHORTFALL: shortfall}


FEW_TENS_US = 50.0
"""What counts as the "few tens of microseconds" within which the paper bypasses dead paths."""


def _measure(*seeds: Results) -> tuple[Check, ...]:
    """Check MRC's stall against the paper's words, and compare each transport with MRC."""
    stalls_us = tuple(_stall_us(runs[MRC.name]) for runs in seeds)
    return (
        Check("MRC's longest stall, as at full speed", stalls_us, -inf, FEW_TENS_US, "{:.0f} us"),
        *(
            costs_less(
                f"{name}, over MRC's: {label}",
                [cost(runs[MRC.name]) for runs in seeds],
                [cost(runs[variant.name]) for runs in seeds],
                unit="RTT",
            )
            for label, variant in OTHERS.items()
            if variant.name in seeds[0]
            for name, cost in _COSTS.items()
        ),
    )


def _stall_us(run: Result) -> float:
    (fault,) = run.summary.faults
    return measured(fault.stall, "the stall").real_us


def _draw(*seeds: Results) -> Figure:
    """Draw bars with the median of all seeds, and its interval."""
    drawn = {label: variant for label, variant in _DRAWN.items() if variant.name in seeds[0]}
    labels = [*drawn][::-1]
    colours = [style.BLUE if drawn[label] is MRC else style.GREY for label in labels]
    beside: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
    figure, panels = new_panels(0.9 + 0.26 * len(labels), columns=len(_COSTS), sharey=True)
    for axes, (name, value) in zip(panels, _COSTS.items(), strict=True):
        estimates = [
            estimate([value(runs[drawn[label].name]) for runs in seeds]) for label in labels
        ]
        axes.barh(labels, [cost.median for cost in estimates], color=colours, height=0.6)
        for place, cost in enumerate(estimates):
            style.whisker(axes, place, cost.low, cost.high)
            axes.annotate(f"{cost.median:.2g}", (cost.high, place), **beside)
        axes.set_xlabel(f"{name} (base RTTs)")
        axes.set_xlim(0, 1.3 * max(cost.high for cost in estimates))
    return figure


FAILOVER = PaperFigure(
    "failover",
    tuple(_DRAWN.values()),
    _measure,
    _draw,
    compares_seeds=True,
    seeds=6,
    emulated_seeds=(1, 2, 3),
    is_own=True,
)
