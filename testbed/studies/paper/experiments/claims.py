"""Claims of the paper's text that no figure shows, each with runs, checks and a drawing."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from testbed.model.units import NS_PER_S
from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import drawing
from testbed.studies.paper.experiments.drawing import (
    LEAST_OF_A_STEP,
    MAX_STALL_RTTS,
    RATE_LABEL,
    SETTLE_RTTS,
    draw_stacked,
    least_of_phases,
    legend_below,
    longest_stall_rtts,
    new_panels,
    only,
    qps_failed,
    shade_faults,
    share,
    sliding,
    stacked_height_in,
    stall_rtts,
    time_axes,
    total_bps,
    us_per_s,
)
from testbed.studies.paper.experiments.failover import (
    FLAPPING_JOB,
    JOB_IN_FLAPS,
    SEVEN_UNDISTURBED,
    on_a_path_in_use,
    steps_during_and_after,
)
from testbed.studies.paper.figure import (
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    between,
    shown,
)
from testbed.studies.paper.rows import row

# --------------------------------------------------------------------------------------------------
# What the claims have in common: with how many seeds they are made, and their usual drawing.


_MADE: Any = {"seeds": 5, "emulated_seeds": (1, 2, 3), "large": True}
"""Made only by their number, or with everything."""


def _studied(
    number: str, titles: Mapping[str, str], runs: Mapping[str, Mapping[str, Any]] | None = None
) -> PaperFigure:
    """A claim of scenarios of the study of all claims, drawn over time, each with a title."""
    return row(
        number,
        "claims",
        partial(_draw_over_time, titles=titles),
        scenarios=(*titles,),
        runs=runs or {},
        forms={"clustermapper.exact": "{:.1%}"},
        **_MADE,
    )


def _draw_over_time(runs: Results, titles: Mapping[str, str]) -> Figure:
    figure = style.new_figure(stacked_height_in(len(titles)))
    draw_stacked(figure, {title: runs[name] for name, title in titles.items()})
    return figure


# --------------------------------------------------------------------------------------------------
# Switches that hash EVs to paths (section 2.3).


ONLY_SIMULATED: Mapping[Form, str] = {"emulated": "the fabric's switches route by SRv6 alone"}

ECMP = _studied(
    "text-ecmp",
    {
        "hash-ecmp-srv6": "SRv6: the sender names the path",
        "hash-ecmp-ecmp": "hash ECMP",
        "dead-link-ecmp": "hash ECMP, a link dies silently",
    },
    {
        "hash-ecmp-srv6": {"excluded": ONLY_SIMULATED},
        "hash-ecmp-ecmp": {"excluded": ONLY_SIMULATED},
        "dead-link-ecmp": {"excluded": ONLY_SIMULATED, "with_seed": on_a_path_in_use},
    },
)


# --------------------------------------------------------------------------------------------------
# A lossy link between NIC and T0, which the Clustermapper and a deny list find (section 4).


LOSSY_NIC = _studied(
    "text-lossy-nic", {"nic-lossy": "MRC alone", "nic-lossy-located": "with a deny list"}
)


# --------------------------------------------------------------------------------------------------
# Planes are kept equal, as the slowest one limits all (section 4).


HALF = Variant("plane-half", "plane-half")
THIN = Variant("plane-thin", "plane-thin")
SHARED = Variant("plane-shared", "plane-shared")

SINGLE_PATH_FLOW = "h1"
"""The sender of the flow that has one path, to the receiver of the flow that has all."""

SLOWEST_PLANE = 0.15
"""How far throughput may be from that of the slowest plane, times the number of planes: a plane of
four, whose rate is not counted four times, would make a difference of 37% and 56%."""

LAST_QUARTER = 0.75
"""From when on throughput is shown as well: it has not settled after SETTLE_RTTS."""


def _in_force(run: Result) -> tuple[float, float]:
    """Throughput while the fault is in force, over that before it: settled, and at its end."""
    (fault,) = run.summary.faults
    rtt = run.data.base_rtt_s
    start, healed = fault.effective_s or 0.0, fault.healed_s or 0.0
    before = total_bps(run.flows, 5 * rtt, start)
    settled, late = (
        total_bps(run.flows, begin, healed) / before
        for begin in (start + SETTLE_RTTS * rtt, start + LAST_QUARTER * (healed - start))
    )
    return settled, late


def _beside_single_path(run: Result) -> tuple[tuple[float, float], tuple[float, float]]:
    """While a flow on a single path writes to the same receiver: settled, and at its end.

    Returns:
        The throughput of the flow on all paths, over that before, and the share of a port that the
        other flow gets.
    """
    one_path = next(flow for flow in run.flows if flow.flow.src == SINGLE_PATH_FLOW)
    all_paths = next(flow for flow in run.flows if flow is not one_path)
    rtt, first = run.data.base_rtt_s, float(one_path.delivery.times[0])
    last = min(float(flow.delivery.times[-1]) for flow in (one_path, all_paths))
    before = all_paths.delivery.goodput_bps(5 * rtt, first)
    port_bps = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    settled, late = (
        (
            all_paths.delivery.goodput_bps(start, last) / before,
            one_path.delivery.goodput_bps(start, last) / port_bps,
        )
        for start in (first + SETTLE_RTTS * rtt, first + LAST_QUARTER * (last - first))
    )
    return settled, late


def _measure_planes(runs: Results) -> tuple[Check, ...]:
    """What is left of throughput where one plane is slower than the others."""
    (limited, got), (limited_late, got_late) = _beside_single_path(runs[SHARED.name])
    measured = (
        ("one plane has half its rate", _in_force(runs[HALF.name]), 1 / 2),
        ("one plane has a quarter of its uplinks", _in_force(runs[THIN.name]), 1 / 4),
        ("a flow on a single path shares one plane", (limited, limited_late), 1 / 2),
    )
    checks = []
    for what, (settled, late), expected in measured:
        bounds = expected - SLOWEST_PLANE, expected + SLOWEST_PLANE
        checks += [
            between(f"{what}: throughput, of that before", settled, *bounds),
            shown(f"{what}: the same, in the last quarter", late, "{:.1%}"),
        ]
    return (
        *checks,
        shown("the flow on a single path, of its port", got, "{:.1%}"),
        shown("the same, in the last quarter", got_late, "{:.1%}"),
    )


PLANES = PaperFigure(
    "text-planes",
    (HALF, THIN, SHARED),
    _measure_planes,
    partial(
        _draw_over_time,
        titles={
            HALF.name: "one plane with half its rate",
            THIN.name: "one plane with a quarter of its uplinks",
            SHARED.name: "beside a flow on a single path",
        },
    ),
    **_MADE,
)


# --------------------------------------------------------------------------------------------------
# Every link is probed once a millisecond (section 3).


PROBES = _studied("text-probes", {"probe-each-ms": "two silent links"})


# --------------------------------------------------------------------------------------------------
# What a delay costs with which NICs leave a port that has lost carrier (section 3).


DELAYS_RTTS = (0, 10, 30, 100)
"""Base RTTs that the NIC needs. The paper's seconds would be some hundred thousand."""


def _four_qps(rtts: int) -> Mapping[str, Any]:
    """The transport of a pair whose NICs need so many base RTTs."""
    return {"kind": "mrc", "qps": 4, "remap_delay": f"{rtts} RTT"}


SINGLE = tuple(
    Variant(f"port-remap-{rtts}", "port-remap", {"transport": _four_qps(rtts)})
    for rtts in DELAYS_RTTS
)

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


def _measure_remap(runs: Results) -> tuple[Check, ...]:
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


def _measure_in_steps(runs: Results) -> Iterator[Check]:
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


def _measure_in_job(runs: Results) -> Iterator[Check]:
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


def _draw_remap(runs: Results) -> Figure:
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


def _draw_steps_and_job(runs: Results, steps: Axes, *jobs: Axes) -> None:
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


REMAP = PaperFigure("text-remap", VARIANTS, _measure_remap, _draw_remap, **_MADE)


# --------------------------------------------------------------------------------------------------
# The transceiver of a NIC flaps, and its queue pairs fail (section 5.1).


FLAPPING_NIC = "h0"


def _draw_transceiver(runs: Results) -> Figure:
    """Throughput of the flows of the NIC, and of all others, over the run."""
    run = only(runs)
    figure, (axes,) = new_panels(2.6)
    its = [flow for flow in run.flows if FLAPPING_NIC in (flow.flow.src, flow.flow.dst)]
    others = [flow for flow in run.flows if flow not in its]
    rtt, us = run.data.base_rtt_s, us_per_s(run)
    moments = np.arange(0, run.data.end_s, rtt)
    for flows, label, colour in (
        (others, "flows of other NICs", style.BLUE),
        (its, f"flows of {FLAPPING_NIC}", style.VERMILLION),
    ):
        rates = sliding(run, flows, moments, 8 * rtt)
        axes.plot(us * moments, rates, color=colour, label=label)
    shade_faults(axes, run)
    time_axes(axes, run)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(RATE_LABEL)
    legend_below(figure, 2)
    return figure


TRANSCEIVER = row(
    "text-transceiver", "claims", _draw_transceiver, scenarios=("nic-transceiver",), **_MADE
)
