"""Table 5.2.1, figures 15 and 20: what hosts get out of a fabric without faults."""

import numpy as np
from matplotlib.figure import Figure

from testbed.results.analysis.delivery import message_times
from testbed.results.records import COMPLETIONS
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import (
    PORTS_GBPS,
    RATE_LABEL,
    bus_gbps,
    gbps,
    hosts_bps,
    legend_below,
    limit_line,
    new_panels,
    only,
)
from testbed.studies.paper.rows import ONLY_SIMULATED, row

NIC_GBPS = 800.0
"""What a host's ports carry together on eight planes, in real Gb/s, headers included."""

PAPER_SEND_RECEIVE = 0.92
"""Of the ports' rate: 92 of 100 GB/s."""

PAPER_US = {"local": 5.09, "cross": 6.54}
PAPER_GBPS = 770.0

PLACES = {"local": "T0-local", "cross": "cross-T1"}
"""Where the two hosts of a write are: below one T0, or in two racks."""

SLOWED = {"local": 3.0, "cross": 1.0}
"""Below one T0 a round trip takes a third of one between racks: a moment in which the machine is
late weighs three times as much, so it is made as long."""


def one_way_us(run: Result) -> float:
    """Median latency of a message, in real us."""
    (flow,) = run.summary.flows
    return flow.latency.median.ms * 1e3 / run.summary.dilation if flow.latency else float("nan")


def half_round_trip_us(run: Result) -> float:
    """Half of the median time from a message to the next, in real us.

    The next one is posted when the one before it is complete at the sender. This is how the paper
    measures latency (perftest).
    """
    (flow,) = run.flows
    completions = run.data.table(COMPLETIONS, flow.flow.flow)
    begun, _ = message_times(completions, flow.transmissions)
    return float(np.median(np.diff(begun))) / 2 * 1e6 / run.summary.dilation


def bandwidth_gbps(run: Result) -> float:
    """What the receiver of a write gets, in real Gb/s."""
    return gbps(run, sum(flow.goodput_run_bps for flow in run.summary.flows))


def _draw_writes(runs: Results) -> Figure:
    figure, (left, right) = new_panels(2.4, columns=2)
    places, width = np.arange(len(PLACES)), 0.3
    for shift, measure, label, colour in (
        (-width / 2, half_round_trip_us, "half of posting to completion", style.BLUE),
        (width / 2, one_way_us, "one way", style.SKY),
    ):
        latencies_us = [measure(runs[f"write-lat-{place}"]) for place in PLACES]
        left.bar(places + shift, latencies_us, width, color=colour, label=label)
    left.set_xticks(places, [*PLACES.values()])
    left.set_xlim(-0.6, 1.6)
    left.set_ylabel("latency of 2 B\n(us, real-equivalent)")
    left.hlines([*PAPER_US.values()], [-0.4, 0.6], [0.4, 1.4], color=style.VERMILLION)
    bandwidths_gbps = [bandwidth_gbps(runs[f"write-bw-{place}"]) for place in PLACES]
    right.bar([*PLACES.values()], bandwidths_gbps, color=style.BLUE, width=0.5)
    right.set_xlim(-0.6, 1.6)
    right.set_ylabel("bandwidth at 32 KiB\n(Gb/s, real-equivalent)")
    right.hlines(
        [PAPER_GBPS] * 2, [-0.4, 0.6], [0.4, 1.4], color=style.VERMILLION, label="the paper"
    )
    limit_line(right, NIC_GBPS, "the ports' rate")
    legend_below(figure, 4, left, right)
    return figure


def _draw_send_receive(runs: Results) -> Figure:
    run = only(runs)
    figure, (axes,) = new_panels(2.4)
    into = {flow.dst: gbps(run, flow.goodput_run_bps) / 8 for flow in run.summary.flows}
    hosts = sorted(into)
    axes.bar(hosts, [into[host] for host in hosts], color=style.BLUE, width=0.6)
    axes.axhline(bus_gbps(run) / 8, color=style.VERMILLION, label="bus bandwidth, which is judged")
    paper = PAPER_SEND_RECEIVE * PORTS_GBPS / 8
    axes.axhline(paper, color=style.ORANGE, linestyle=(0, (1, 1)), label="the paper's 92%")
    limit_line(axes, PORTS_GBPS / 8, "ports' rate")
    axes.set_ylabel("received\n(GB/s, real-equivalent)")
    legend_below(figure, 3)
    return figure


TABLE = row(
    "5.2.1",
    "rates",
    _draw_writes,
    scenarios=tuple(f"write-{what}-{place}" for what in ("lat", "bw") for place in PLACES),
    runs={
        f"write-{what}-{place}": {"slowed": slowed}
        for what in ("lat", "bw")
        for place, slowed in SLOWED.items()
    },
)
SEND_RECEIVE = row("15", "rates", _draw_send_receive, scenarios=("send-receive",))


LOOKS = {
    "permutation-mrc-1": ("MRC, 1 QP", style.BLUE),
    "permutation-mrc-8": ("MRC, 8 QPs", style.SKY),
    "permutation-pfc-1": ("RoCE, PFC, 1 QP", style.ORANGE),
    "permutation-pfc-8": ("RoCE, PFC, 8 QPs", style.VERMILLION),
    "permutation-dcqcn-8": ("RoCE, DCQCN, 8 QPs", style.PURPLE),
}
_ROCE = [name for name in LOOKS if "mrc" not in name]


def _draw(runs: Results) -> Figure:
    figure, (axes,) = new_panels(2.6)
    width = 0.8 / len(runs)
    for number, (name, run) in enumerate(runs.items()):
        rates = sorted(gbps(run, rate) for rate in hosts_bps(run).values())
        label, colour = LOOKS[name]
        shift = (number - (len(runs) - 1) / 2) * width
        places = [i + 1 + shift for i in range(len(rates))]
        axes.bar(places, rates, width=0.95 * width, color=colour, label=label)
    limit_line(axes, PORTS_GBPS, "the ports' rate")
    axes.set_ylim(0, 1.1 * PORTS_GBPS)
    axes.set_xlabel("host, from the slowest")
    axes.set_ylabel(RATE_LABEL)
    legend_below(figure, 3)
    return figure


PERMUTATION = row(
    "20", "permutation", _draw, runs={name: {"excluded": ONLY_SIMULATED} for name in _ROCE}
)
