"""Table 5.2.1, figure 15 and the permutation: what hosts get out of a fabric without faults."""

from matplotlib.figure import Figure

from testbed.campaign.store import Run, Runs
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.paper.checks import Check, at_least, at_most, between
from testbed.paper.experiments.throughput import PORTS_GBPS, bus_gbps, gbps, only
from testbed.paper.figure import PaperFigure, Variant
from testbed.results.report.figures import style

LOCAL, CROSS = [["h0", "h1"]], [["h0", "h2"]]
NIC_GBPS = 800.0
"""What a host's ports carry together on eight planes, in real Gb/s, headers included."""

PAPER_SEND_RECEIVE = 0.92
"""Of the ports' rate: 92 of 100 GB/s."""

PAPER_US = {"local": 5.09, "cross": 6.54}
PAPER_GBPS = 770.0
PAPER_LINE_GBPS = 390.0
"""Of 400: 97.5%, more than is payload in our packets (96.6%), so that it counts headers."""

PLACES = {"local": "T0-local", "cross": "cross-T1"}
"""Where the two hosts of a write are: below one T0, or in two racks."""

SLOWED = {"local": 3.0, "cross": 1.0}
"""Below one T0 a round trip takes a third of one between racks: a moment in which the machine is
late weighs three times as much, so it is made as long."""


def _write(place: str, what: str) -> Variant:
    small = what == "lat"
    workload = {
        "kind": "write_bw",
        "pairs": LOCAL if place == "local" else CROSS,
        "bidirectional": False,
        "message_size": "2 B" if small else "32 KiB",
        "depth": 1 if small else 64,
    }
    changes = {"workload": workload}
    return Variant(f"write-{what}-{place}", "write", changes, slowed=SLOWED[place])


def _latency_us(run: Run) -> float:
    """Median latency of a message, in real us."""
    (flow,) = run.summary.flows
    return flow.latency.median.ms * 1e3 / run.summary.dilation if flow.latency else float("nan")


def _bandwidth_gbps(run: Run) -> float:
    (flow,) = run.summary.flows
    return gbps(run, flow.goodput_bps)


def _writes(runs: Runs) -> tuple[Check, ...]:
    latencies = (
        between(
            f"latency of 2 B, {where}",
            _latency_us(runs[f"write-lat-{place}"]),
            0.95 * PAPER_US[place],
            1.1 * PAPER_US[place],
            "{:.2f} us",
        )
        for place, where in PLACES.items()
    )
    bandwidths = (
        at_least(
            f"bandwidth at 32 KiB, {where}, of the ports' rate",
            _bandwidth_gbps(runs[f"write-bw-{place}"]) / NIC_GBPS,
            0.95,
        )
        for place, where in PLACES.items()
    )
    return (*latencies, *bandwidths)


def _draw_writes(runs: Runs) -> Figure:
    figure = style.new_figure(2.4)
    left, right = figure.subplots(1, 2)
    where = list(PLACES.values())
    left.bar(
        where, [_latency_us(runs[f"write-lat-{p}"]) for p in PLACES], color=style.BLUE, width=0.5
    )
    for i, latency_us in enumerate(PAPER_US.values()):
        left.hlines(latency_us, i - 0.4, i + 0.4, color=style.VERMILLION)
    left.set_ylabel("latency of 2 B\n(us, real-equivalent)")
    right.bar(
        where, [_bandwidth_gbps(runs[f"write-bw-{p}"]) for p in PLACES], color=style.BLUE, width=0.5
    )
    right.hlines(
        [PAPER_GBPS] * 2, [-0.4, 0.6], [0.4, 1.4], color=style.VERMILLION, label="the paper"
    )
    right.axhline(NIC_GBPS, color=style.BLACK, linestyle=(0, (4, 2)), label="the ports' rate")
    right.set_ylabel("bandwidth at 32 KiB\n(Gb/s, real-equivalent)")
    figure.legend(loc="outside lower center", ncols=2)
    for axes in (left, right):
        axes.spines["top"].set_visible(False)
        axes.set_xlim(-0.6, 1.6)
    return figure


def _send_receive(runs: Runs) -> tuple[Check, ...]:
    rate = bus_gbps(only(runs))
    return (at_least("rate of a host, of its ports'", rate / PORTS_GBPS, 0.9),)


def _draw_send_receive(runs: Runs) -> Figure:
    run = only(runs)
    figure = style.new_figure(2.4)
    axes = figure.subplots()
    into = {flow.dst: gbps(run, flow.goodput_run_bps) / 8 for flow in run.summary.flows}
    hosts = sorted(into)
    axes.bar(hosts, [into[host] for host in hosts], color=style.BLUE, width=0.6)
    axes.axhline(
        bus_gbps(run) / 8, color=style.VERMILLION, label="while sending, the median: what is judged"
    )
    paper = PAPER_SEND_RECEIVE * PORTS_GBPS / 8
    axes.axhline(paper, color=style.ORANGE, linestyle=(0, (1, 1)), label="the paper's 92%")
    axes.axhline(PORTS_GBPS / 8, color=style.BLACK, linestyle=(0, (4, 2)), label="ports' rate")
    axes.set_ylabel("received\n(GB/s, real-equivalent)")
    figure.legend(loc="outside lower center", ncols=3)
    axes.spines["top"].set_visible(False)
    return figure


def _shares(run: Run) -> list[float]:
    return sorted(flow.attainable_fraction for flow in run.summary.flows)


def _line_gbps(run: Run) -> float:
    """What the slowest flow takes of its host's ports with its headers, in real Gb/s."""
    payload = min(gbps(run, flow.goodput_bps) for flow in run.summary.flows)
    return payload * run.data.topology.wire_bytes / PAYLOAD_MTU


def _permutation(runs: Runs) -> tuple[Check, ...]:
    mrc = runs["permutation-mrc"]
    return (
        at_least("MRC's slowest flow, of attainable", _shares(mrc)[0], 0.97),
        at_least(
            "the same in Gb/s of 400, with headers", _line_gbps(mrc), PAPER_LINE_GBPS, "{:.0f}"
        ),
        at_most("RoCE's slowest flow, of attainable", _shares(runs["permutation-roce"])[0], 0.5),
    )


def _draw_permutation(runs: Runs) -> Figure:
    figure = style.new_figure(2.4)
    axes = figure.subplots()
    for name, label, colour, shift in (
        ("permutation-mrc", "MRC, 1 QP", style.BLUE, -0.2),
        ("permutation-roce", "RoCE, 1 QP", style.ORANGE, 0.2),
    ):
        run = runs[name]
        rates = sorted(gbps(run, flow.goodput_bps) for flow in run.summary.flows)
        places = [i + 1 + shift for i in range(len(rates))]
        axes.bar(places, rates, width=0.38, color=colour, label=label)
    axes.axhline(PORTS_GBPS, color=style.BLACK, linestyle=(0, (4, 2)), label="the ports' rate")
    axes.set_ylim(0, 1.1 * PORTS_GBPS)
    axes.set_xlabel("flow, from the slowest")
    axes.set_ylabel("throughput\n(Gb/s, real-equivalent)")
    axes.spines["top"].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


TABLE = PaperFigure(
    number="5.2.1",
    variants=tuple(_write(place, what) for what in ("lat", "bw") for place in PLACES),
    measure=_writes,
    draw=_draw_writes,
)

SEND_RECEIVE = PaperFigure(
    number="15",
    variants=(Variant("send-receive", "send-receive"),),
    measure=_send_receive,
    draw=_draw_send_receive,
)

PERMUTATION = PaperFigure(
    number="permutation",
    variants=(
        Variant("permutation-mrc", "full-permutation"),
        Variant(
            "permutation-roce",
            "full-permutation",
            {"topology": "clos-1plane-roce", "transport": {"kind": "roce"}},
        ),
    ),
    measure=_permutation,
    draw=_draw_permutation,
)
