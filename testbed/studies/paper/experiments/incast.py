"""Figures 18, 21 and 22: seven hosts write to one beside a victim; an incast grows flow by flow."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.records import LINKS
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    gbps,
    legend_below,
    limit_line,
    new_panels,
    sliding,
    total_bps,
)
from testbed.studies.paper.figure import (
    RATIO,
    Check,
    PaperFigure,
    Variant,
    at_least,
    at_most,
    between,
)
from testbed.studies.paper.rows import ONLY_SIMULATED, XOFF_BDP, row, without_pause

if TYPE_CHECKING:
    from testbed.model.workload import Connections

VICTIM = ("h11", "h1")
BEGIN_RTTS = 20.0
"""Base RTTs until dips and shares are measured: the first bursts are over by then."""

STEADY_SHARE = 0.25
"""The part of a run, at its end, in which rates are measured."""

MRC_SECONDS, MRC_EMULATED_SECONDS = 60, 24
"""Emulated seconds of MRC's run. Its shares vary by a tenth within tens of round trips, and are
compared over nearly the whole run, so the longer the better (docs/paper/studies.md)."""

MRC_8_EMULATED_SECONDS = 12
"""The same with 8 QPs, whose shares even one another out."""

DCQCN_SECONDS = 200
"""Emulated seconds of RoCE's runs. The first bursts reduce the victim's rate, too, and with one QP
DCQCN needs up to 15 ms of real time to restore it (docs/paper/studies.md)."""

UNPAUSED_SECONDS, UNPAUSED_8_SECONDS = 60, 12
"""The same without pauses, which cause most of that reduction, with 1 QP and with 8."""

SEEDS = 5
"""With one QP the seed decides, by the hash, how many senders share a link with the victim."""

EMULATED_SEED = 4
"""The first seed with which two of the seven share it, which is closest to the average."""

WINDOW_RTTS = 5.0
"""Base RTTs over which rates are averaged."""

PANELS = {
    "incast-mrc": "MRC, 1 QP",
    "incast-roce-1": "RoCE with DCQCN, 1 QP",
    "incast-roce-8": "RoCE with DCQCN, 8 QPs",
}
PFC_PANELS = {
    "incast-mrc-8": "MRC, 8 QPs",
    "incast-pfc-1": "RoCE with PFC only, 1 QP",
    "incast-pfc-8": "RoCE with PFC only, 8 QPs",
}

PAUSED = 0.25
"""100 of 400 Gb/s: what the paper's victim has for seconds, and in figure 21 at most."""

_SHALLOW = {
    "kind": "incast",
    "senders": [f"h{i}" for i in range(4, 11)],
    "target": "h0",
    "victim": list(VICTIM),
    "message_size": "32 KiB",
    "depth": 4,
}
"""The workload for 8 QPs: together they have as much outstanding as one QP has otherwise."""


def _flows(run: Result, src: str, dst: str) -> list[FlowTables]:
    return [flow for flow in run.flows if (flow.flow.src, flow.flow.dst) == (src, dst)]


def _senders(run: Result) -> list[str]:
    """The senders of the incast, in order."""
    return list(dict.fromkeys(f.flow.src for f in run.flows if f.flow.src != VICTIM[0]))


def _mean_gbps(run: Result, flows: Sequence[FlowTables], begin: float) -> float:
    """The rate of flows together from a time to the run's end, in Gb/s at full speed."""
    return gbps(run, total_bps(flows, begin, run.data.end_s))


def _over_time(run: Result, flows: Sequence[FlowTables], moments: Floats) -> Floats:
    """The rate of flows together around some times, in Gb/s at full speed."""
    return sliding(run, flows, moments, WINDOW_RTTS * run.data.base_rtt_s)


def _port_gbps(run: Result) -> float:
    """What a host's port carries of payload, at full speed."""
    topology = run.data.topology
    payload = run.data.scenario.transport.payload_share
    return topology.planes * topology.port_rate * payload / 1e9


def victim(run: Result) -> float:
    """What the victim has at the end of the run, of its port's payload."""
    begin = (1 - STEADY_SHARE) * run.data.end_s
    return _mean_gbps(run, _flows(run, *VICTIM), begin) / _port_gbps(run)


def _worst_dip(run: Result) -> float:
    rtt = run.data.base_rtt_s
    moments = np.arange(BEGIN_RTTS * rtt, run.data.end_s, rtt)
    return float(_over_time(run, _flows(run, *VICTIM), moments).min()) / _port_gbps(run)


def smallest_of_largest(run: Result) -> float:
    """How evenly the senders share: the smallest share over the largest, after the first bursts.

    Shares vary by a tenth within tens of round trips, where the paper's figure shows seconds: so
    the whole run counts.
    """
    begin = BEGIN_RTTS * run.data.base_rtt_s
    shares = [_mean_gbps(run, _flows(run, src, "h0"), begin) for src in _senders(run)]
    return min(shares) / max(shares)


def _measure(runs: Results) -> tuple[Check, ...]:
    mrc, roce_1, roce_8 = (runs[name] for name in PANELS)
    evenness, dip = smallest_of_largest(mrc), _worst_dip(roce_8)
    paused = (
        at_most("RoCE's victim with 8 QPs, at its lowest", dip, PAUSED, "{:.0%}"),
        at_least(
            "RoCE's victim, mean with 8 QPs over that with 1",
            victim(roce_8) / victim(roce_1),
            1.0,
            RATIO,
        ),
        at_most(
            "RoCE's smallest share over its largest, with 8 QPs over that with 1",
            smallest_of_largest(roce_8) / smallest_of_largest(roce_1),
            1.0,
            RATIO,
        ),
    )
    return (
        at_least("MRC's victim, of its port's rate", victim(mrc), 0.95, "{:.0%}"),
        at_least("MRC's smallest share over its largest", evenness, 0.8, RATIO),
        between("RoCE's victim with 1 QP", victim(roce_1), 0.6, 0.9, "{:.0%}"),
        *(paused if roce_8.data.topology.pause is not None else ()),
    )


def _draw(runs: Results, titles: Mapping[str, str]) -> Figure:
    shown = {name: title for name, title in titles.items() if name in runs}
    figure, panels = new_panels(2.9, columns=len(shown), sharey=True)
    for axes, (name, title) in zip(panels, shown.items(), strict=True):
        run = runs[name]
        moments = np.arange(0, run.data.end_s, run.data.base_rtt_s / 2)
        real_ms = moments * 1e3 / run.summary.dilation
        for i, src in enumerate(_senders(run)):
            label = None if i else "the seven of the incast"
            rates = _over_time(run, _flows(run, src, "h0"), moments)
            axes.plot(real_ms, rates, color=style.SKY, linewidth=0.8, label=label)
        victim = _over_time(run, _flows(run, *VICTIM), moments)
        axes.plot(real_ms, victim, color=style.VERMILLION, label="the victim")
        attainable = _port_gbps(run)
        limit_line(axes, attainable, "a port's, for payload")
        axes.set_xlim(0, real_ms[-1])
        axes.set_ylim(0, 1.15 * attainable)
        axes.set_title(title)
        axes.set_xlabel("time (ms, real-equivalent)")
    panels[0].set_ylabel(RATE_LABEL)
    legend_below(figure, 3, panels[0])
    return figure


INCAST = PaperFigure(
    number="18",
    variants=(
        Variant(
            "incast-mrc",
            "incast-victim",
            {"duration": f"{MRC_SECONDS} s"},
            emulated=lambda _: {"duration": f"{MRC_EMULATED_SECONDS} s"},
        ),
        Variant(
            "incast-roce-1",
            "incast-victim-roce",
            {"duration": f"{DCQCN_SECONDS} s"},
            emulated=lambda data: without_pause(data) | {"duration": f"{UNPAUSED_SECONDS} s"},
        ),
        Variant(
            "incast-roce-8",
            "incast-victim-roce",
            {
                "duration": f"{DCQCN_SECONDS} s",
                "transport": {"kind": "roce", "qps": 8},
                "workload": _SHALLOW,
            },
            emulated=lambda data: without_pause(data) | {"duration": f"{UNPAUSED_8_SECONDS} s"},
        ),
    ),
    seeds=SEEDS,
    emulated_seeds=(EMULATED_SEED,),
    measure=_measure,
    draw=partial(_draw, titles=PANELS),
)


INCAST_WITHOUT_DCQCN = row(
    "21",
    "incast",
    partial(_draw, titles=PFC_PANELS),
    runs={
        "incast-mrc-8": {"emulated": lambda _: {"duration": f"{MRC_8_EMULATED_SECONDS} s"}},
        "incast-pfc-1": {"excluded": ONLY_SIMULATED},
        "incast-pfc-8": {"excluded": ONLY_SIMULATED},
    },
    forms={"victim_fraction": "{:.0%}", "evenness": RATIO},
    seeds=SEEDS,
    emulated_seeds=(EMULATED_SEED,),
)


RECEIVER = "h0"
CROWDED = 10
"""So many flows the default tuning no longer controls: priority flow control does (the paper)."""

SETTLED = 0.5
"""The part of the time between two arrivals, at its end, that is judged: rates have settled."""

SENDING_SHARE = 0.4
"""The part of a run in which the flows have sent everything at line rate; the rest is for slow
ones."""

TUNINGS = ("default", "aggressive", "most-aggressive")
COLOURS = (style.BLUE, style.ORANGE, style.VERMILLION)
ARRIVALS_WINDOW_RTTS = 10.0
"""Base RTTs over which rates are averaged in the drawing."""


def arrivals_s(scenario: Scenario) -> list[float]:
    """When each flow begins, and when the next one would, in seconds of the run."""
    matrix = cast("Connections", scenario.workload).matrix
    starts_ns = [transfer.start for transfer in matrix]
    next_ns = 2 * starts_ns[-1] - starts_ns[-2]
    return [start_ns / NS_PER_S * scenario.topology.dilation for start_ns in (*starts_ns, next_ns)]


def settled(run: Result) -> list[tuple[float, float]]:
    """For each number of flows, from one on: the time in which that many have settled."""
    arrivals = pairwise(arrivals_s(run.data.scenario))
    return [(end - SETTLED * (end - start), end) for start, end in arrivals]


def backlog_bdp(run: Result) -> tuple[Floats, Floats]:
    """When the queue to the receiver was sampled, and how full it was."""
    to_receiver = pl.col("direction").str.ends_with(f">{RECEIVER}")
    samples = run.data.tables[LINKS].filter(to_receiver).sort("t")
    backlog = samples["backlog_bytes"].to_numpy() / run.data.topology.bdp_bytes
    return samples["t"].to_numpy(), backlog


def _draw_arrivals(runs: Results) -> Figure:
    figure, (above, below) = new_panels(4.2, 2, sharex=True)
    first, *_ = runs.values()
    *_, end_s = arrivals_s(first.data.scenario)
    for run, tuning, colour in zip(runs.values(), TUNINGS, COLOURS, strict=True):
        per_ms = 1e3 / run.summary.dilation
        times, backlog = backlog_bdp(run)
        above.plot(times * per_ms, backlog, color=colour, linewidth=0.7)
        moments = np.arange(0, end_s, run.data.base_rtt_s)
        rates = sliding(run, run.flows, moments, ARRIVALS_WINDOW_RTTS * run.data.base_rtt_s)
        below.plot(moments * per_ms, rates, color=colour, linewidth=0.7, label=tuning)
    per_ms = 1e3 / first.summary.dilation
    crowded_ms = settled(first)[CROWDED - 2][1] * per_ms
    for axes in (above, below):
        axes.axvline(crowded_ms, color=style.GREY, linewidth=0.8)
    limit_line(above, XOFF_BDP, "")
    payload_bps = first.data.topology.port_rate_bps * first.data.scenario.transport.payload_share
    limit_line(below, gbps(first, payload_bps), "the port's rate, for payload")
    above.set_ylabel("last hop's queue (BDP)")
    above.set_ylim(bottom=0)
    below.set_ylabel(RATE_LABEL)
    below.set_ylim(bottom=0)
    below.set_xlim(0, end_s * per_ms)
    below.set_xlabel("time (ms, real-equivalent)")
    legend_below(figure, 4, below)
    return figure


ARRIVALS = row(
    "22",
    "arrivals",
    _draw_arrivals,
    runs={
        f"arrivals-{tuning}": {"carries": SENDING_SHARE, "excluded": ONLY_SIMULATED}
        for tuning in TUNINGS
    },
    forms={"queue_few_bdp": "{:.2f} BDP", "queue_many_bdp": "{:.2f} BDP"},
    seeds=5,
    large=True,
)
