"""Figure 20: a permutation that fills the uplinks of the T0s, by MRC and by RoCE."""

from statistics import mean
from typing import Any

from matplotlib.figure import Figure

from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import RATIO, Check, at_least, at_most, between
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    legend_below,
    limit_line,
    new_panels,
)
from testbed.studies.paper.experiments.throughput import PORTS_GBPS, gbps, hosts_bps
from testbed.studies.paper.fabrics import ONLY_SIMULATED, PFC
from testbed.studies.paper.figure import PaperFigure, Variant

SECONDS, ROCE_SECONDS = "4 s", "60 s"
"""Emulated seconds. DCQCN needs 6 ms of real time to settle."""

ROCE_DRAIN = "20 s"
"""A queue pair whose rate DCQCN has cut needs long for its last messages."""

PAPER_LINE_GBPS = 390.0
"""Of 400: 97.5%, more than is payload in our packets (96.6%), so that it counts headers."""

LINE_RATE = 0.98
"""Of a port's payload: two points in a hundred are the width of a line in the paper's figure."""

MARGINALLY = 1.25
""""Only marginally better": 8 queue pairs have no more than this of what one has."""


def _roce(name: str, qps: int, dcqcn: str) -> Variant:
    transport = {"kind": "roce", "qps": qps, "dcqcn": dcqcn}
    changes: dict[str, Any] = {
        "topology": dict(PFC),
        "transport": transport,
        "duration": ROCE_SECONDS,
        "drain": ROCE_DRAIN,
    }
    return Variant(name, "full-permutation", changes, excluded=ONLY_SIMULATED)


def _mrc(name: str, qps: int) -> Variant:
    transport = {"kind": "mrc", "congestion": "nscc", "qps": qps}
    return Variant(name, "full-permutation", {"transport": transport, "duration": SECONDS})


MRC_1, MRC_8 = _mrc("permutation-mrc-1", 1), _mrc("permutation-mrc-8", 8)
PFC_1 = _roce("permutation-pfc-1", 1, "off")
PFC_8 = _roce("permutation-pfc-8", 8, "off")
DCQCN_8 = _roce("permutation-dcqcn-8", 8, "default")

LOOKS = {
    MRC_1.name: ("MRC, 1 QP", style.BLUE),
    MRC_8.name: ("MRC, 8 QPs", style.SKY),
    PFC_1.name: ("RoCE, PFC, 1 QP", style.ORANGE),
    PFC_8.name: ("RoCE, PFC, 8 QPs", style.VERMILLION),
    DCQCN_8.name: ("RoCE, DCQCN, 8 QPs", style.PURPLE),
}


def _shares(run: Result) -> list[float]:
    """What each host sent, all its queue pairs together, of what its port carries of payload."""
    of_port = run.data.topology.port_rate_bps * run.data.scenario.transport.payload_share
    return sorted(rate / of_port for rate in hosts_bps(run).values())


def _measure(runs: Results) -> tuple[Check, ...]:
    (slowest_1, *_), (slowest_8, *_) = (_shares(runs[variant.name]) for variant in (MRC_1, MRC_8))
    line = slowest_1 * PORTS_GBPS
    checks = [
        at_least("MRC's slowest host, 1 QP, in Gb/s of 400", line, PAPER_LINE_GBPS, "{:.0f}"),
        at_least("MRC's slowest host, 8 QPs, of its port", slowest_8, LINE_RATE),
    ]
    if PFC_1.name in runs:
        pfc_1, pfc_8, dcqcn_8 = (_shares(runs[variant.name]) for variant in (PFC_1, PFC_8, DCQCN_8))
        more, react = mean(pfc_8) / mean(pfc_1), mean(dcqcn_8) / mean(pfc_8)
        checks += [
            at_most("RoCE's slowest host, PFC, 1 QP, of its port", pfc_1[0], 0.55),
            at_least("RoCE's fastest host, PFC, 1 QP, of its port", pfc_1[-1], 0.9),
            between("RoCE with PFC, 8 QPs over 1, mean of hosts", more, 1.0, MARGINALLY, RATIO),
            at_least("RoCE with 8 QPs, DCQCN over PFC, mean of hosts", react, 1.0, RATIO),
        ]
    return tuple(checks)


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


PERMUTATION = PaperFigure("20", (MRC_1, MRC_8, PFC_1, PFC_8, DCQCN_8), _measure, _draw)
