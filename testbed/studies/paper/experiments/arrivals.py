"""Figure 22: the flows of a 15:1 incast arrive one by one, under three tunings of DCQCN."""

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
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    legend_below,
    limit_line,
    new_panels,
)
from testbed.studies.paper.experiments.throughput import gbps, sliding
from testbed.studies.paper.fabrics import ONLY_SIMULATED, XOFF_BDP
from testbed.studies.paper.rows import row

if TYPE_CHECKING:
    from testbed.model.workload import Connections

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
WINDOW_RTTS = 10.0
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


def _draw(runs: Results) -> Figure:
    figure, (above, below) = new_panels(4.2, 2, sharex=True)
    first, *_ = runs.values()
    *_, end_s = arrivals_s(first.data.scenario)
    for run, tuning, colour in zip(runs.values(), TUNINGS, COLOURS, strict=True):
        per_ms = 1e3 / run.summary.dilation
        times, backlog = backlog_bdp(run)
        above.plot(times * per_ms, backlog, color=colour, linewidth=0.7)
        moments = np.arange(0, end_s, run.data.base_rtt_s)
        rates = sliding(run, run.flows, moments, WINDOW_RTTS * run.data.base_rtt_s)
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
    _draw,
    runs={
        f"arrivals-{tuning}": {"carries": SENDING_SHARE, "excluded": ONLY_SIMULATED}
        for tuning in TUNINGS
    },
    forms={"queue_few_bdp": "{:.2f} BDP", "queue_many_bdp": "{:.2f} BDP"},
    seeds=5,
    large=True,
)
