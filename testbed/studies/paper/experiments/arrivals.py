"""Figure 22: the flows of a 15:1 incast arrive one by one, under three tunings of DCQCN."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results.analysis.delivery import Floats
from testbed.results.records import LINKS
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, at_least, at_most, between
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    legend_below,
    limit_line,
    new_panels,
)
from testbed.studies.paper.experiments.throughput import gbps, sliding, total_bps
from testbed.studies.paper.fabrics import ONLY_SIMULATED, PFC, XOFF_BDP
from testbed.studies.paper.figure import PaperFigure, Variant

if TYPE_CHECKING:
    from testbed.model.workload import Connections

RECEIVER = "h0"
CROWDED = 10
"""So many flows the default tuning no longer controls: priority flow control does (the paper)."""

SETTLED = 0.5
"""The part of the time between two arrivals, at its end, that is judged: rates have settled."""

LINE_RATE = 0.95
"""The paper's "at line rate": its curve lies within a twentieth of it."""

TEN_PERCENT_LESS, TWENTY_PERCENT_LESS = (0.85, 0.95), (0.75, 0.85)
"""Of the rate with the default tuning: the paper's 10% and 20% less, half a step to each side."""

MIN_EMPTY_SHARE = 0.01
"""The least share of samples in which a queue that is "sometimes empty" is."""

SENDING_SHARE = 0.4
"""The part of a run in which the flows have sent everything at line rate; the rest is for slow
ones."""

TUNINGS = ("default", "aggressive", "most-aggressive")
COLOURS = (style.BLUE, style.ORANGE, style.VERMILLION)
WINDOW_RTTS = 10.0
"""Base RTTs over which rates are averaged in the drawing."""

VARIANTS = tuple(
    Variant(
        f"arrivals-{tuning}",
        "incast-arrivals",
        {"topology": dict(PFC), "transport": {"kind": "roce", "dcqcn": tuning}},
        carries=SENDING_SHARE,
        excluded=ONLY_SIMULATED,
    )
    for tuning in TUNINGS
)


def arrivals_s(scenario: Scenario) -> list[float]:
    """When each flow begins, and when the next one would, in seconds of the run."""
    matrix = cast("Connections", scenario.workload).matrix
    starts_ns = [transfer.start for transfer in matrix]
    next_ns = 2 * starts_ns[-1] - starts_ns[-2]
    return [start_ns / NS_PER_S * scenario.topology.dilation for start_ns in (*starts_ns, next_ns)]


def _settled(run: Result) -> list[tuple[float, float]]:
    """For each number of flows, from one on: the time in which that many have settled."""
    arrivals = pairwise(arrivals_s(run.data.scenario))
    return [(end - SETTLED * (end - start), end) for start, end in arrivals]


def _share(run: Result, spans: Sequence[tuple[float, float]]) -> float:
    """What the receiver got in some spans of time, of what its port carries of payload."""
    carried = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    seconds = sum(end - start for start, end in spans)
    bits = sum(total_bps(run.flows, start, end) * (end - start) for start, end in spans)
    return bits / seconds / carried


def _backlog_bdp(run: Result) -> tuple[Floats, Floats]:
    """When the queue to the receiver was sampled, and how full it was."""
    to_receiver = pl.col("direction").str.ends_with(f">{RECEIVER}")
    samples = run.data.tables[LINKS].filter(to_receiver).sort("t")
    backlog = samples["backlog_bytes"].to_numpy() / run.data.topology.bdp_bytes
    return samples["t"].to_numpy(), backlog


def _backlogs_in(run: Result, spans: Sequence[tuple[float, float]]) -> Floats:
    times, backlog = _backlog_bdp(run)
    within = np.zeros(len(times), dtype=bool)
    for start, end in spans:
        within |= (times >= start) & (times < end)
    return backlog[within]


def _measure(runs: Results) -> tuple[Check, ...]:
    default, aggressive, most = (runs[variant.name] for variant in VARIANTS)
    spans = _settled(default)
    few, many = spans[: CROWDED - 1], spans[CROWDED - 1 :]
    p99_few = float(np.percentile(_backlogs_in(default, few), 99))
    p99_many = float(np.percentile(_backlogs_in(default, many), 99))
    rate = _share(default, many)
    empty = float(np.mean(_backlogs_in(aggressive, many) == 0))
    return (
        at_most("default: p99 of the queue below 10 flows", p99_few, XOFF_BDP, "{:.2f} BDP"),
        at_least("default: p99 of the queue from 10 flows on", p99_many, XOFF_BDP, "{:.2f} BDP"),
        at_least("default: rate from 10 flows on, of the port's", rate, LINE_RATE),
        at_least("aggressive: share of samples with an empty queue", empty, MIN_EMPTY_SHARE),
        between(
            "aggressive: rate, of the default's", _share(aggressive, many) / rate, *TEN_PERCENT_LESS
        ),
        between(
            "most aggressive: rate, of the default's",
            _share(most, many) / rate,
            *TWENTY_PERCENT_LESS,
        ),
    )


def _draw(runs: Results) -> Figure:
    figure, (above, below) = new_panels(4.2, 2, sharex=True)
    *_, end_s = arrivals_s(runs[VARIANTS[0].name].data.scenario)
    for run, tuning, colour in zip(runs.values(), TUNINGS, COLOURS, strict=True):
        per_ms = 1e3 / run.summary.dilation
        times, backlog = _backlog_bdp(run)
        above.plot(times * per_ms, backlog, color=colour, linewidth=0.7)
        moments = np.arange(0, end_s, run.data.base_rtt_s)
        rates = sliding(run, run.flows, moments, WINDOW_RTTS * run.data.base_rtt_s)
        below.plot(moments * per_ms, rates, color=colour, linewidth=0.7, label=tuning)
    run = runs[VARIANTS[0].name]
    per_ms = 1e3 / run.summary.dilation
    crowded_ms = _settled(run)[CROWDED - 2][1] * per_ms
    for axes in (above, below):
        axes.axvline(crowded_ms, color=style.GREY, linewidth=0.8)
    limit_line(above, XOFF_BDP, "")
    payload_bps = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    limit_line(below, gbps(run, payload_bps), "the port's rate, for payload")
    above.set_ylabel("last hop's queue (BDP)")
    above.set_ylim(bottom=0)
    below.set_ylabel(RATE_LABEL)
    below.set_ylim(bottom=0)
    below.set_xlim(0, end_s * per_ms)
    below.set_xlabel("time (ms, real-equivalent)")
    legend_below(figure, 4, below)
    return figure


ARRIVALS = PaperFigure("22", VARIANTS, _measure, _draw, seeds=5, large=True)
