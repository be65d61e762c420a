"""The fullest queues of the switches over time, with their thresholds, marks and trims."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Queue, Topology
from testbed.model.summary import LinkSummary, Summary
from testbed.model.units import NS_PER_S, show_duration
from testbed.results.records import QUEUES
from testbed.results.report.figures import style
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

ZOOM_RTTS = 6.0
"""Width of the right panels; the fullest moment is a third from the left."""

_HOPS = ((Tier.T0, Tier.T1), (Tier.T1, Tier.T0), (Tier.T0, Tier.HOST))
_EVENTS = (
    ("marked", "marked", style.ORANGE),
    ("trimmed", "trimmed", style.PURPLE),
    ("dropped", "dropped", style.VERMILLION),
)


def draw(data: RunData, summary: Summary) -> Drawn | None:
    """Draw `queues`: a row for each kind of port; None where nothing ever waited."""
    samples = data.tables[QUEUES].filter(pl.col("t").is_between(0, data.end_s))
    shown = _busiest(data.topology, summary, set(samples["direction"].unique()))
    if not shown:
        return None
    figure = style.new_figure(2.0 * len(shown) + 0.7)
    grid = figure.subplots(len(shown), 2, squeeze=False, sharey="row", width_ratios=[1.5, 1])
    for row, link in enumerate(shown):
        of_link = samples.filter(pl.col("direction") == link.direction)
        _whole_run(grid[row][0], data, link, of_link)
        _fullest(grid[row][1], data, link, of_link)
    grid[-1][0].set_xlabel("time from the start of the run (s)")
    grid[-1][1].set_xlabel("time (s)")
    style.rtt_axis(grid[0][1], grid[0][1].get_xlim()[0], data.base_rtt_s, "base RTTs")
    legend = {
        label: handle
        for axes in grid.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if legend:
        figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend))
    return figure, Drawing("queues", "Queues of the switches", _caption(data, shown))


def _busiest(topology: Topology, summary: Summary, sampled: set[str]) -> list[LinkSummary]:
    """The busiest queue at a T0 upwards, at a T1 downwards and at a T0 to a host."""
    busiest: dict[tuple[Tier, Tier], LinkSummary] = {}
    for link in sorted(summary.links, key=lambda link: link.congestion, reverse=True):
        if link.direction in sampled:
            sender, receiver = (topology.nodes[name] for name in link.direction.split(">"))
            busiest.setdefault((sender.tier, receiver.tier), link)
    return [busiest[hop] for hop in _HOPS if hop in busiest]


def _caption(data: RunData, shown: Sequence[LinkSummary]) -> str:
    rtt = show_duration(data.base_rtt_s * NS_PER_S)
    counts = "; ".join(
        f"{link.direction}: {link.offered} packets, {link.marked} marked, "
        f"{link.trimmed} trimmed, {link.full} dropped"
        for link in shown
    )
    return (
        "Backlog of the busiest port of each kind (T0 to T1, T1 to T0, T0 to host), in "
        "bandwidth-delay products of its link. Dotted lines: the backlogs from which packets are "
        "marked at random, from which all are marked, and from which they are trimmed. Dots: "
        "packets were marked, trimmed or dropped since the previous sample. Right: around the "
        f"greatest backlog; a base RTT is {rtt}. In the whole run: {counts}."
    )


def _whole_run(axes: Axes, data: RunData, link: LinkSummary, samples: pl.DataFrame) -> None:
    _queue(axes, data, link, samples)
    axes.set_xlim(0, data.end_s)
    axes.set_ylim(0, None)
    axes.set_ylabel("backlog (BDP)")
    style.title(axes, link.direction)


def _fullest(axes: Axes, data: RunData, link: LinkSummary, samples: pl.DataFrame) -> None:
    _queue(axes, data, link, samples)
    peak = samples["t"][int(np.argmax(samples["backlog_bytes"].to_numpy()))]
    start = max(peak - ZOOM_RTTS / 3 * data.base_rtt_s, 0)
    axes.set_xlim(start, start + ZOOM_RTTS * data.base_rtt_s)
    axes.spines["top"].set_visible(False)


def _queue(axes: Axes, data: RunData, link: LinkSummary, samples: pl.DataFrame) -> None:
    queue, bdp = _port(data.topology, link.direction)
    t, backlog = samples["t"].to_numpy(), samples["backlog_bytes"].to_numpy() / bdp
    axes.fill_between(t, backlog, step="post", color=style.SKY, alpha=0.45, linewidth=0)
    axes.step(t, backlog, where="post", color=style.BLUE, linewidth=0.8)
    for name, depth in queue.depths().items():
        if name != "limit":
            axes.axhline(depth.in_bytes(bdp) / bdp, color=style.GREY, linestyle=":", linewidth=0.8)
    for column, label, colour in _EVENTS:
        happened = np.diff(samples[column].to_numpy(), prepend=samples[column][0]) > 0
        if happened.any():
            axes.plot(t[happened], backlog[happened], ".", color=colour, markersize=3, label=label)


def _port(topology: Topology, direction: str) -> tuple[Queue, int]:
    """The queue of the switch's port that sends, and its link's BDP in bytes."""
    sender, receiver = (topology.nodes[name] for name in direction.split(">"))
    for near, far, link in topology.adjacency[sender]:
        queue = topology.queue_of(link, near)
        if far.node == receiver and queue is not None:
            return queue, topology.link_bdp_bytes(link)
    raise LookupError(f"{direction} is not the queue of a switch")
