"""Figures 4 to 7: a job on a fabric that has faults from the start, or gets them."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from testbed.model.errors import RunFailedError
from testbed.results.analysis.operations import completed
from testbed.results.records import OPERATIONS
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, at_least, at_most, between, shown
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.throughput import (
    losses,
    only,
    payload_intact,
    qps_failed,
    sliding,
    us_per_s,
)
from testbed.studies.paper.figure import PaperFigure, Variant

UNDISTURBED = Variant("job-undisturbed", "job-undisturbed")
FABRIC_FLAPS = Variant("job-fabric-flaps", "job-fabric-flaps", slowed=3.0)
"""Links flap so often that a fault is measured in almost every second, and in each of them eight
endpoints must be on time. At twice the dilation neither of two attempts was trusted."""

FLAPPING_JOB = Variant("job-transceiver-flaps", "job-transceiver-flaps")
OF_SEVEN = {
    "workload": {
        "kind": "training",
        "hosts": ["h0", "h4", "h1", "h5", "h2", "h6", "h7"],
        "compute": "100 ms",
        "size": "4 MiB",
        "slices": 4,
    }
}
"""The job of figures 6 and 7: three of the four NICs whose links flap are in it."""

JOB_IN_FLAPS = (0.65, 0.95)
"""The paper: about a quarter less during the flaps."""

SEVEN_UNDISTURBED = Variant("job-of-seven-undisturbed", "job-undisturbed", OF_SEVEN)
UNKNOWN = Variant("unknown-dead-paths", "unknown-dead-paths")

STARTUP_RTTS = 10.0
"""Base RTTs in place of the paper's first minute: every EV has carried data by then."""

MAX_LOSSES = 5
"""In the paper a queue pair has fewer losses in the first minute."""

_LOSS_BIN_RTTS = 2.0


def _dead_paths(runs: Results) -> tuple[Check, ...]:
    run = only(runs)
    border, end = STARTUP_RTTS * run.data.base_rtt_s, run.data.end_s
    first = [losses(flow, 0.0, border) for flow in run.flows]
    later = [losses(flow, border, end) for flow in run.flows]
    at_first, afterwards = sum(first) / border, sum(later) / (end - border)
    what = f"packets lost by the worst QP in the first {STARTUP_RTTS:g} RTTs"
    decay = afterwards / at_first if at_first else inf
    nics = len({flow.flow.src for flow in run.flows})
    per_nic = afterwards * run.summary.dilation / nics
    return (
        # At least one loss: otherwise no packet ever took the dead link.
        between(what, max(first), 1, MAX_LOSSES - 1, "{:.0f}"),
        at_most("losses per time afterwards, over those of the start", decay, 0.1),
        at_most("losses per NIC and second afterwards, at full speed", per_nic, 1.0, "{:.0f}"),
        shown(
            "losses per QP and second at the start, at full speed",
            _per_second(run, first),
            "{:.0f}",
        ),
    )


def _per_second(run: Result, first: Sequence[int]) -> float:
    """What a queue pair lost per second of the start, as it would be at full speed."""
    border = STARTUP_RTTS * run.data.base_rtt_s
    return float(np.mean(first)) / border * run.summary.dilation


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


def _transceiver(runs: Results) -> tuple[Check, ...]:
    run, calm = runs[FLAPPING_JOB.name], runs[SEVEN_UNDISTURBED.name]
    during, after = steps_during_and_after(run, calm)
    return (
        between("steps per time during the flaps, over those without", during, *JOB_IN_FLAPS),
        at_least("steps per time right after them", after, 0.95),
        payload_intact(run),
        qps_failed(run),
    )


def steps_during_and_after(run: Result, undisturbed: Result) -> tuple[float, float]:
    """Steps of a job per time while its only fault is in force and after it, over those without."""
    (fault,) = run.summary.faults
    us, steps = us_per_s(run), _steps(run)
    start, end = us * (fault.effective_s or 0.0), us * (fault.healed_s or 0.0)
    during = [step for step in steps if step[1] > start and step[0] < end]
    after = [step for step in steps if step[0] >= end]
    calm = _mean_us(_steps(undisturbed), "without faults")
    during_us = _mean_us(during, "during the fault")
    return calm / during_us, calm / _mean_us(after, "after the fault")


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


JOBS = (
    PaperFigure("4", (UNKNOWN,), _dead_paths, _draw_losses),
    PaperFigure("5", (UNDISTURBED, FABRIC_FLAPS), _constant_flaps, _draw_job),
    PaperFigure("6-7", (SEVEN_UNDISTURBED, FLAPPING_JOB), _transceiver, _draw_job),
)
