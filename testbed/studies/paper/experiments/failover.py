"""Links and switches fail: under a job, as throughput over time, and under every transport."""

from collections.abc import Callable, Iterator, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from testbed.model.errors import RunFailedError
from testbed.results.analysis.delivery import message_times, overdue_s
from testbed.results.analysis.estimates import estimate
from testbed.results.analysis.fault_metrics import BASELINE_RTTS, TAIL_RTTS, FlowTables
from testbed.results.analysis.operations import completed
from testbed.results.records import COMPLETIONS, OPERATIONS
from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.drawing import (
    draw_flows,
    legend_below,
    losses,
    measured,
    new_panels,
    only,
    payload_intact,
    plot_flows,
    qps_failed,
    sliding,
    stall_rtts,
    us_per_s,
)
from testbed.studies.paper.figure import Check, PaperFigure, Variant, at_most, costs_less, shown
from testbed.studies.paper.rows import paths_in_use, row

UNDISTURBED = Variant("job-undisturbed", "job-undisturbed")
FABRIC_FLAPS = Variant("job-fabric-flaps", "job-fabric-flaps", slowed=3.0)
"""Links flap so often that a fault is measured in almost every second, and in each of them eight
endpoints must be on time. At twice the dilation neither of two attempts was trusted."""

JOB_IN_FLAPS = (0.65, 0.95)
"""The paper: about a quarter less during the flaps."""


STARTUP_RTTS = 10.0
"""Base RTTs in place of the paper's first minute: every EV has carried data by then."""

MAX_LOSSES = 5
"""In the paper a queue pair has fewer losses in the first minute."""

_LOSS_BIN_RTTS = 2.0


def _draw_losses(runs: Results) -> Figure:
    run = only(runs)
    figure, (axes,) = drawing.new_panels(2.9)
    us, rtt = us_per_s(run), run.data.base_rtt_s
    width = _LOSS_BIN_RTTS * rtt
    edges = np.arange(0, run.data.end_s + width, width)
    counts = np.array([np.histogram(flow.losses["t"].to_numpy(), edges)[0] for flow in run.flows])
    x = us * edges
    axes.stairs(counts.max(axis=0), x, color=style.VERMILLION, label="the worst QP")
    axes.stairs(counts.mean(axis=0), x, color=style.BLUE, fill=True, label="mean of all QPs")
    in_all = counts.cumsum(axis=1).max(axis=0)
    axes.plot(x, [0, *in_all], color=style.BLACK, label="the worst QP, from the start")
    look: Any = {"color": style.GREY, "linestyle": drawing.DASHED, "label": "the paper: fewer"}
    axes.hlines(MAX_LOSSES, 0, us * STARTUP_RTTS * rtt, **look)
    drawing.time_axes(axes, run)
    axes.set_ylabel(f"losses per QP in {_LOSS_BIN_RTTS:g} RTTs")
    drawing.legend_below(figure, 4)
    return figure


# --- a synchronous job -------------------------------------------------------------------------


def _steps(run: Result) -> list[tuple[float, float]]:
    """When each training step that all hosts finished began and ended, in real us.

    Runs that are compared may be slowed down differently.
    """
    us = us_per_s(run)
    table = completed(run.data.tables[OPERATIONS])
    return [(us * start, us * end) for start, end in table.select("start", "end").iter_rows()]


def _mean_us(steps: list[tuple[float, float]], when: str) -> float:
    """The mean length of training steps.

    Raises:
        RunFailedError: there is none.
    """
    if not steps:
        raise RunFailedError(f"no training step was finished {when}: make the run longer")
    return float(np.mean([end - start for start, end in steps]))


def _constant_flaps(runs: Results) -> tuple[Check, ...]:
    run = runs[FABRIC_FLAPS.name]
    calm = _mean_us(_steps(runs[UNDISTURBED.name]), "without faults")
    flapping = _mean_us(_steps(run), "with faults")
    faults = [f.effective_s for f in run.summary.faults if f.effective_s is not None]
    interval = (faults[-1] - faults[0]) / (len(faults) - 1)
    lost = (1 - calm / flapping) * interval
    lost_rtts = lost / run.data.base_rtt_s
    return (
        at_most("time of the job lost to each flap", lost_rtts, MAX_LOST_RTTS, "{:.1f} RTT"),
        payload_intact(run),
        qps_failed(run),
        *_losses_of_flaps(run, len(faults)),
    )


def _losses_of_flaps(run: Result, flaps: int) -> Iterator[Check]:
    """What flaps cost queue pairs. The paper: often just one packet."""
    duration = run.data.end_s
    lost = [losses(flow, 0.0, duration) for flow in run.flows]
    per_flap = float(np.mean(lost)) / flaps
    yield shown("packets lost by a QP to a flap, the mean", per_flap, "{:.2f}")
    per_second = float(np.mean(lost)) / duration * run.summary.dilation
    yield shown("losses per QP and second, at full speed", per_second, "{:.0f}")


MAX_LOST_RTTS = 10.0
"""A loss, its detection and its repair take two round trips; that may happen to each of the ring's
hosts in turn, as all wait for all. The paper only says "almost no impact"."""


def steps_during_and_after(run: Result, undisturbed: Result) -> tuple[float, float]:
    """Steps of a job per time while its only fault is in force and after it, over those without."""
    calm = mean_step_us(undisturbed)
    return calm / mean_step_us(run, "during"), calm / mean_step_us(run, "after")


def mean_step_us(run: Result, when: Literal["during", "after"] | None = None) -> float:
    """The mean length of steps during a run's only fault, or after it; without one of all.

    Raises:
        RunFailedError: there is none.
    """
    steps = _steps(run)
    if when is None or not run.summary.faults:
        return _mean_us(steps, "without faults")
    (fault,) = run.summary.faults
    us = us_per_s(run)
    start, end = us * (fault.effective_s or 0.0), us * (fault.healed_s or 0.0)
    if when == "after":
        return _mean_us([step for step in steps if step[0] >= end], "after the fault")
    during = [step for step in steps if step[1] > start and step[0] < end]
    return _mean_us(during, "during the fault")


def _draw_job(runs: Results) -> Figure:
    """Throughput of the job over time, and the time of each step, beside the undisturbed ones."""
    figure, (upper, lower) = drawing.new_panels(4.2, 2, sharex=True, height_ratios=[1.6, 1])
    peaks, lengths = [], []
    for run in runs.values():
        disturbed = bool(run.summary.faults)
        colour = style.BLUE if disturbed else style.GREY
        label = "with faults" if disturbed else "undisturbed"
        us, rtt = us_per_s(run), run.data.base_rtt_s
        moments = np.arange(0, run.data.end_s, rtt / 2)
        total = sliding(run, run.flows, moments, 4 * drawing.AVERAGED_RTTS * rtt)
        per_host = total / len(run.data.topology.hosts)
        peaks.append(float(per_host.max()))
        upper.plot(us * moments, per_host, color=colour, label=label)
        for start, until in _steps(run):
            lower.plot([start, until], [until - start] * 2, color=colour, linewidth=2)
            lower.plot(until, until - start, "|", color=colour, markersize=7)
            lengths.append(until - start)
        if run.summary.faults:
            for axes in (upper, lower):
                drawing.shade_faults(axes, run, named=False)
            drawing.time_axes(upper, run)
    upper.set_xlabel("")
    upper.set_ylabel("throughput per host\n(Gb/s, real-equivalent)")
    lower.set_ylabel("time of the step\n(us, real-equivalent)")
    upper.set_ylim(0, 1.2 * max(peaks))
    lower.set_ylim(0, 1.25 * max(lengths))
    lower.set_xlabel(drawing.TIME_LABEL)
    drawing.legend_below(figure, 2, upper)
    return figure


TRANSCEIVER_JOB = row("6-7", "flapping-job", _draw_job)
SEVEN_UNDISTURBED, FLAPPING_JOB = TRANSCEIVER_JOB.variants
JOBS = (
    row("4", "dead-paths", _draw_losses),
    PaperFigure("5", (UNDISTURBED, FABRIC_FLAPS), _constant_flaps, _draw_job),
    TRANSCEIVER_JOB,
)


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
