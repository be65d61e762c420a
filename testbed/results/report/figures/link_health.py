"""The health of links over time, as the Clustermapper saw it: a row for each link."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import Patch

from testbed.model.fabric.names import link_of
from testbed.results.analysis.link_metrics import Accusation, accusations, faulty_links
from testbed.results.records import PROBES
from testbed.results.report.figures import style
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

MAX_ROWS = 48
"""Most rows: links that failed or were accused, then those with most losses."""

_LOSS = LinearSegmentedColormap.from_list("loss", ["#fbe3b0", style.ORANGE, style.VERMILLION])
_SCALE = LogNorm(1e-3, 1.0)


def draw(data: RunData) -> Drawn:
    """Draw `link_health`."""
    raised = accusations(data)
    lost = _lost_probes(data)
    rows = _rows(data, raised, lost)
    figure = style.new_figure(max(0.15 * len(rows) + 1.9, 2.6))
    axes, scale = figure.subplots(1, 2, width_ratios=[1, 0.03])
    place = {link: row for row, link in enumerate(rows)}
    end = data.end_s
    _draw_accusations(axes, raised, place)
    _draw_losses(axes, lost, place)
    _draw_faults(axes, data, place, end)
    axes.set_yticks(range(len(rows)), rows, fontsize=6)
    axes.set_xlim(0, end)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("time from the start of the run (s)")
    axes.tick_params(axis="y", length=0)
    between = [row - 0.5 for row in range(1, len(rows))]
    axes.hlines(between, 0, end, colors=style.LIGHT, linewidth=0.3, zorder=0)
    loss = ScalarMappable(norm=_SCALE, cmap=_LOSS)
    label = "estimated loss of the accused"
    figure.colorbar(loss, cax=scale, label=label)
    scale.tick_params(labelsize=7)
    handles = [
        Patch(facecolor="none", edgecolor=style.BLACK, label="fault in force"),
        Patch(facecolor=style.ORANGE, edgecolor="none", label="accused"),
        Patch(facecolor=style.BLUE, edgecolor="none", label="a lost probe crossed it"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure, Drawing("link_health", "Health of links, by probes", _caption(data, rows))


def _lost_probes(data: RunData) -> pl.DataFrame:
    """A row for every link that a lost probe crossed: `t`, `link`."""
    lost = data.tables[PROBES].filter("lost")
    nodes = lost["path"].str.split(":").list.last().str.split(">").to_list()
    pairs = [
        (t, link_of(f"{near}>{far}"))
        for t, path in zip(lost["t"], nodes, strict=True)
        for near, far in pairwise(path)
    ]
    return pl.DataFrame(pairs, schema={"t": pl.Float64, "link": pl.String}, orient="row").unique(
        maintain_order=True
    )


def _rows(data: RunData, raised: Sequence[Accusation], lost: pl.DataFrame) -> list[str]:
    """The links to show, in the fabric's order."""
    by_importance = dict.fromkeys(
        (
            *(link for fault in data.faults for link in faulty_links(fault)),
            *(link for accusation in raised for link in sorted(accusation.links)),
            *(link for link, _ in Counter(lost["link"]).most_common()),
            *data.topology.links,
        )
    )
    shown = set(list(by_importance)[:MAX_ROWS])
    return [link for link in data.topology.links if link in shown]


def _draw_accusations(axes: Axes, raised: Sequence[Accusation], place: Mapping[str, int]) -> None:
    bars, colours = list[style.Bar](), list[Any]()
    for accusation in raised:
        for link in sorted(accusation.links & place.keys()):
            bars.append((place[link], accusation.start, accusation.end))
            colours.append(_LOSS(_SCALE(max(accusation.loss, 1e-3))))
    style.bars(axes, bars, facecolors=colours, linewidth=0, zorder=2)


def _draw_losses(axes: Axes, lost: pl.DataFrame, place: Mapping[str, int]) -> None:
    shown = lost.filter(pl.col("link").is_in(list(place)))
    rows = [place[link] for link in shown["link"]]
    axes.scatter(shown["t"], rows, marker="|", s=9, linewidths=0.5, color=style.BLUE, zorder=3)


def _draw_faults(axes: Axes, data: RunData, place: Mapping[str, int], end: float) -> None:
    frames = [
        (place[link], start, data.seconds(fault.healed_ns) or end)
        for fault in data.faults
        if (start := data.seconds(fault.effective_ns)) is not None
        for link in sorted(faulty_links(fault) & place.keys())
    ]
    look = {"facecolor": "none", "edgecolor": style.BLACK, "linewidth": 0.9}
    style.bars(axes, frames, height=0.92, zorder=4, **look)


def _caption(data: RunData, rows: Sequence[str]) -> str:
    text = (
        "Each row is a link. A blue tick: a probe whose path crosses the link was lost. A coloured "
        "bar: the Clustermapper accuses the link, a direction of it or its switch; the colour is "
        "the loss that it estimates. A black frame: a fault was in force. Bars should fill the "
        "frames, begin soon after them, and be nowhere else."
    )
    if len(rows) < len(data.topology.links):
        text += f" {len(rows)} of {len(data.topology.links)} links: faulty and accused ones first."
    return text
