"""Figure 20: a permutation that fills the uplinks of the T0s, by MRC and by RoCE."""

from matplotlib.figure import Figure

from testbed.results.report.figures import style
from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    legend_below,
    limit_line,
    new_panels,
)
from testbed.studies.paper.experiments.throughput import PORTS_GBPS, gbps, hosts_bps
from testbed.studies.paper.fabrics import ONLY_SIMULATED
from testbed.studies.paper.rows import row

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
