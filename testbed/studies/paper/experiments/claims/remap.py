"""What a delay costs with which NICs leave a port that has lost carrier (section 3)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from testbed.campaign.store import Runs
from testbed.model.units import NS_PER_S
from testbed.results.report.figures import style
from testbed.studies.paper.checks import Check, at_least, at_most, between
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.claims.claim import claim
from testbed.studies.paper.experiments.jobs import (
    FLAPPING_JOB,
    JOB_IN_FLAPS,
    SEVEN_UNDISTURBED,
    steps_during_and_after,
)
from testbed.studies.paper.experiments.throughput import (
    LEAST_OF_A_STEP,
    MAX_STALL_RTTS,
    SETTLE_RTTS,
    least_of_phases,
    longest_stall_rtts,
    qps_failed,
    share,
    stall_rtts,
)
from testbed.studies.paper.figure import Variant

DELAYS_RTTS = (0, 10, 30, 100)
"""Base RTTs that the NIC needs. The paper's seconds would be some hundred thousand."""


def _four_qps(rtts: int) -> Mapping[str, Any]:
    """The transport of a pair whose NICs need so many base RTTs."""
    return {"kind": "mrc", "qps": 4, "remap_delay": f"{rtts} RTT"}


def _single(rtts: int) -> Variant:
    return Variant(f"port-remap-{rtts}", "port-remap", {"transport": _four_qps(rtts)})


SINGLE = tuple(map(_single, DELAYS_RTTS))

NIC_LINKS = 7
STEP_RTTS = 10
"""Base RTTs between the end of the delay and the next step. In scenarios base RTTs are those
between racks; results are given in those of the run's flows, which stay in one rack here."""


def _in_steps(rtts: int) -> Variant:
    """Figure 9a: links fail one after another, and come back in the reverse order."""
    step, begin = rtts + STEP_RTTS, 20
    timeline = [
        {
            "kind": "cut",
            "target": f"h0--p{number}_t0_0",
            "at": f"{begin + step * number} RTT",
            "for": f"{step * (2 * (NIC_LINKS - number) - 1)} RTT",
        }
        for number in range(NIC_LINKS)
    ]
    return Variant(
        f"steps-remap-{rtts}",
        "nic-links-one-by-one",
        {
            "transport": _four_qps(rtts),
            "timeline": timeline,
            "duration": f"{2 * (begin + step * NIC_LINKS)} RTT",
        },
        excluded={"emulated": "a seed takes five minutes; one step of each is emulated"},
    )


IN_STEPS = tuple(map(_in_steps, DELAYS_RTTS))


LONG_FLAPS: Mapping[str, Any] = {
    "duration": "77 s",
    "timeline": [
        {
            "kind": "flap",
            "target": "p0_t0_0-d0..3",
            "period": "32 s",
            "at": "4 s",
            "for": "64 s",
        }
    ],
}
"""Each link is down for 122 base RTTs, longer than any of the delays; in figure 6 for 6."""


def _in_job(rtts: int, flaps: str, changes: Mapping[str, Any]) -> Variant:
    return replace(
        FLAPPING_JOB,
        name=f"job-remap-{rtts}{flaps}",
        changes={"transport": {"kind": "mrc", "remap_delay": f"{rtts} RTT"}, **changes},
        excluded={"emulated": "in 6-7 the job is emulated, with a NIC that needs no time"},
    )


IN_JOB = tuple(_in_job(rtts, "", {}) for rtts in DELAYS_RTTS)
IN_LONG_FLAPS = tuple(_in_job(rtts, "-long-flaps", LONG_FLAPS) for rtts in DELAYS_RTTS)
CALM_JOB = replace(SEVEN_UNDISTURBED, excluded=IN_JOB[0].excluded)

JOBS = {"the job of figure 6": IN_JOB, "the job, flaps of 122 RTT": IN_LONG_FLAPS}

VARIANTS = (*SINGLE, *IN_STEPS, CALM_JOB, *IN_JOB, *IN_LONG_FLAPS)

BARS_IN = 2.2
"""Height of the bars for the steps and the job, in inches."""


def _measure(runs: Runs) -> tuple[Check, ...]:
    """How long a NIC's delay interrupts a pair; simulated also in the steps of 9a, and in a job."""
    checks: list[Check] = []
    for rtts, variant in zip(DELAYS_RTTS, SINGLE, strict=True):
        run = runs[variant.name]
        (fault,) = run.summary.faults
        settled = (fault.effective_s or 0.0) + (rtts + SETTLE_RTTS) * run.data.base_rtt_s
        after = share(run.flows, settled, fault.healed_s or 0.0)
        delay = f"{rtts} RTT"
        stall, most = stall_rtts(fault), rtts + MAX_STALL_RTTS
        checks += (
            at_most(f"interruption, the NIC needs {delay}", stall, most, "{:.1f} RTT"),
            at_least(f"share of what is left, after {delay}", after, 0.95),
        )
    if CALM_JOB.name in runs:
        checks += (*_measure_in_steps(runs), *_measure_in_job(runs))
    return tuple(checks)


def _measure_in_steps(runs: Runs) -> Iterator[Check]:
    """What the delay costs in the steps of figure 9a."""
    for rtts, variant in zip(DELAYS_RTTS, IN_STEPS, strict=True):
        run = runs[variant.name]
        delay, most = f"the steps of figure 9a, {rtts} RTT", rtts + MAX_STALL_RTTS
        stall = longest_stall_rtts(run)
        yield at_most(f"{delay}: longest interruption", stall, most, "{:.1f} RTT")
        delay_s = rtts * run.data.topology.propagation_rtt_ns / NS_PER_S
        least = least_of_phases(run, delay_s / run.data.base_rtt_s + SETTLE_RTTS)
        what = f"{delay}: share of what is left after it, the least of any step"
        yield at_least(what, least, LEAST_OF_A_STEP)


def _measure_in_job(runs: Runs) -> Iterator[Check]:
    """What the delay costs the job of figures 6 and 7, with their bounds."""
    for job, variants in JOBS.items():
        for rtts, variant in zip(DELAYS_RTTS, variants, strict=True):
            run = runs[variant.name]
            during, after = steps_during_and_after(run, runs[CALM_JOB.name])
            delay = f"{job}, {rtts} RTT"
            yield between(f"{delay}: steps per time during the flaps", during, *JOB_IN_FLAPS)
            yield at_least(f"{delay}: steps per time right after them", after, 0.95)
            failed = qps_failed(run)
            yield replace(failed, what=f"{delay}: {failed.what}")


def _draw(runs: Runs) -> Figure:
    """The pair over time, a panel for each delay; below, if simulated, the steps and the job."""
    height_in = drawing.stacked_height_in(len(SINGLE))
    figure = style.new_figure(height_in)
    over_time: FigureBase = figure
    if CALM_JOB.name in runs:
        figure.set_figheight(height_in + BARS_IN)
        grid = figure.add_gridspec(2, 1, height_ratios=[height_in, BARS_IN])
        over_time = figure.add_subfigure(grid[0])
        _draw_steps_and_job(
            runs, *drawing.panels_in(figure.add_subfigure(grid[1]), columns=1 + len(JOBS))
        )
    titles = (f"{rtts} base RTTs" for rtts in DELAYS_RTTS)
    singles = (runs[variant.name] for variant in SINGLE)
    drawing.draw_stacked(over_time, dict(zip(titles, singles, strict=True)))
    return figure


def _draw_steps_and_job(runs: Runs, steps: Axes, *jobs: Axes) -> None:
    places, width = np.arange(len(DELAYS_RTTS)), 0.4
    stalls = [longest_stall_rtts(runs[variant.name]) for variant in IN_STEPS]
    steps.bar(places, stalls, width, color=style.BLUE)
    steps.set_title("all steps of figure 9a")
    steps.set_ylabel("longest interruption\n(base RTTs)")
    for axes, (title, variants) in zip(jobs, JOBS.items(), strict=True):
        rates = [steps_during_and_after(runs[run.name], runs[CALM_JOB.name]) for run in variants]
        during, after = zip(*rates, strict=True)
        axes.bar(places - width / 2, during, width, color=style.ORANGE, label="during the flaps")
        axes.bar(places + width / 2, after, width, color=style.GREEN, label="right after them")
        drawing.limit_line(axes, 1.0, "without flaps")
        axes.set_ylim(0, 1.2)
        axes.set_title(title)
        axes.set_ylabel("steps per time")
    drawing.legend_below(steps.figure, 3, jobs[0])
    for axes in (steps, *jobs):
        axes.set_xticks(places, [f"{rtts}" for rtts in DELAYS_RTTS])
        axes.set_xlabel("the NIC's delay (base RTTs)")


REMAP = claim("text-remap", VARIANTS, _measure, _draw)
