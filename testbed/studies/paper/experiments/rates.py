"""Table 5.2.1 and figure 15: what hosts get out of a fabric without faults."""

import numpy as np
from matplotlib.figure import Figure

from testbed.results.analysis.delivery import message_times
from testbed.results.records import COMPLETIONS
from testbed.results.report.figures import style
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, at_least, between
from testbed.studies.paper.experiments.drawing import legend_below, limit_line, new_panels
from testbed.studies.paper.experiments.throughput import PORTS_GBPS, bus_gbps, gbps, only
from testbed.studies.paper.figure import PaperFigure, Variant

NIC_GBPS = 800.0
"""What a host's ports carry together on eight planes, in real Gb/s, headers included."""

PAPER_SEND_RECEIVE = 0.92
"""Of the ports' rate: 92 of 100 GB/s."""

PAPER_US = {"local": 5.09, "cross": 6.54}
PAPER_GBPS = 770.0

BANDWIDTH_QPS = 4
"""With which the paper measures bandwidth; latency with one."""

PLACES = {"local": "T0-local", "cross": "cross-T1"}
"""Where the two hosts of a write are: below one T0, or in two racks."""

_PAIRS = {"local": [["h0", "h1"]], "cross": [["h0", "h2"]]}

SLOWED = {"local": 3.0, "cross": 1.0}
"""Below one T0 a round trip takes a third of one between racks: a moment in which the machine is
late weighs three times as much, so it is made as long."""


def _write(place: str, what: str) -> Variant:
    small = what == "lat"
    workload = {
        "kind": "write_bw",
        "pairs": _PAIRS[place],
        "bidirectional": False,
        "message_size": "2 B" if small else "32 KiB",
        "depth": 1 if small else 64,
    }
    transport = {"kind": "mrc", "qps": 1 if small else BANDWIDTH_QPS}
    changes = {"workload": workload, "transport": transport}
    return Variant(f"write-{what}-{place}", "write", changes, slowed=SLOWED[place])


def _latency_us(runs: Results, place: str) -> float:
    """Median latency of a message, in real us."""
    run = runs[f"write-lat-{place}"]
    (flow,) = run.summary.flows
    return flow.latency.median.ms * 1e3 / run.summary.dilation if flow.latency else float("nan")


def _half_round_trip_us(runs: Results, place: str) -> float:
    """Half of the median time from a message to the next, in real us.

    The next one is posted when the one before it is complete at the sender. This is how the paper
    measures latency (perftest).
    """
    run = runs[f"write-lat-{place}"]
    (flow,) = run.flows
    completions = run.data.table(COMPLETIONS, flow.flow.flow)
    begun, _ = message_times(completions, flow.transmissions)
    return float(np.median(np.diff(begun))) / 2 * 1e6 / run.summary.dilation


def _bandwidth_gbps(runs: Results, place: str) -> float:
    run = runs[f"write-bw-{place}"]
    return gbps(run, sum(flow.goodput_run_bps for flow in run.summary.flows))


def _measure_writes(runs: Results) -> tuple[Check, ...]:
    latencies, bandwidths = [], []
    for place, where in PLACES.items():
        share = _bandwidth_gbps(runs, place) / NIC_GBPS
        bounds = 0.95 * PAPER_US[place], 1.1 * PAPER_US[place]
        us, half_us = _latency_us(runs, place), _half_round_trip_us(runs, place)
        latencies += [
            between(f"latency of 2 B, one way, {where}", us, *bounds, "{:.2f} us"),
            between(
                f"half of the time until 2 B are complete, {where}", half_us, *bounds, "{:.2f} us"
            ),
        ]
        bandwidths.append(
            at_least(f"bandwidth at 32 KiB, {where}, of the ports' rate", share, 0.95)
        )
    return (*latencies, *bandwidths)


def _draw_writes(runs: Results) -> Figure:
    figure, (left, right) = new_panels(2.4, columns=2)
    places, width = np.arange(len(PLACES)), 0.3
    for shift, measure, label, colour in (
        (-width / 2, _half_round_trip_us, "half of posting to completion", style.BLUE),
        (width / 2, _latency_us, "one way", style.SKY),
    ):
        latencies_us = [measure(runs, place) for place in PLACES]
        left.bar(places + shift, latencies_us, width, color=colour, label=label)
    left.set_xticks(places, [*PLACES.values()])
    left.set_xlim(-0.6, 1.6)
    left.set_ylabel("latency of 2 B\n(us, real-equivalent)")
    left.hlines([*PAPER_US.values()], [-0.4, 0.6], [0.4, 1.4], color=style.VERMILLION)
    bandwidths_gbps = [_bandwidth_gbps(runs, place) for place in PLACES]
    right.bar([*PLACES.values()], bandwidths_gbps, color=style.BLUE, width=0.5)
    right.set_xlim(-0.6, 1.6)
    right.set_ylabel("bandwidth at 32 KiB\n(Gb/s, real-equivalent)")
    right.hlines(
        [PAPER_GBPS] * 2, [-0.4, 0.6], [0.4, 1.4], color=style.VERMILLION, label="the paper"
    )
    limit_line(right, NIC_GBPS, "the ports' rate")
    legend_below(figure, 4, left, right)
    return figure


def _measure_send_receive(runs: Results) -> tuple[Check, ...]:
    rate = bus_gbps(only(runs))
    return (at_least("rate of a host, of its ports'", rate / PORTS_GBPS, 0.9),)


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


_WRITES = tuple(_write(place, what) for what in ("lat", "bw") for place in PLACES)
_SEND_RECEIVE = Variant("send-receive", "send-receive")

TABLE = PaperFigure("5.2.1", _WRITES, _measure_writes, _draw_writes)
SEND_RECEIVE = PaperFigure("15", (_SEND_RECEIVE,), _measure_send_receive, _draw_send_receive)
