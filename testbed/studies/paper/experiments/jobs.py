"""Figures 4 to 7: a job on a fabric that has faults from the start, or gets them."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from testbed.model.errors import RunFailedError
from testbed.results.analysis.operations import completed
from testbed.results.records import OPERATIONS
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.drawing import (
    losses,
    only,
    payload_intact,
    qps_failed,
    sliding,
    us_per_s,
)
from testbed.studies.paper.figure import Check, PaperFigure, Variant, at_most, shown
from testbed.studies.paper.rows import row

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
