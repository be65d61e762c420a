"""The round trips around a fault, packet by packet."""

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from testbed.model.summary import FaultSummary, FlowFault
from testbed.results.analysis.delivery import delivered_point
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.records import ARRIVALS
from testbed.results.report.figures import fault_rows, style
from testbed.results.report.figures.goodput import marks, zoom
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

MAX_EV_ROWS = 12


def draw(data: RunData, flow: FlowTables, fault: FaultSummary, effect: FlowFault) -> Drawn:
    """Draw `failover_fault<n>`: one flow, from shortly before a fault until it is over."""
    start, healed = fault_rows.in_force(fault)
    rtt = data.base_rtt_s
    begin, end = (start + rtts * rtt for rtts in zoom(effect.detection_last, effect.stall))
    unit = style.time_unit(end - start)
    per_s = unit.per_s
    evs = _rows(data, flow, fault.places)
    figure = style.new_figure(4.3 + 0.24 * len(evs))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.0, 0.35 + 0.24 * len(evs)])
    packets = _packets(data, flow, (begin, end), start, per_s)
    for axes in (upper, lower):
        axes.set_xlim((begin - start) * per_s, (end - start) * per_s)
        style.shade(axes, 0, (min(healed, end) - start) * per_s)
        axes.spines["top"].set_visible(False)
    _sequence(upper, data, flow, packets, start, per_s)
    marks(upper, effect, per_s, height=0.93, step=0.12)
    _rotation(lower, data, flow, packets, evs, fault, per_s)
    for time in (effect.detection, effect.detection_last):
        if time is not None:
            lower.axvline(
                time.ms / 1e3 * per_s, color=style.BLUE, linewidth=1.1, linestyle=(0, (1, 1))
            )
    style.rtt_axis(upper, 0, rtt * per_s, "base RTTs from the fault")
    title = f"{fault_rows.name(fault)}: {flow.flow.name}, every packet"
    style.title(upper, title, over_axis=True)
    lower.set_xlabel(f"time from the fault ({unit.symbol})")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4)
    stem = f"failover_fault{fault.index}"
    title = f"Failover, packet by packet: {fault.kind} of {fault.target}"
    return figure, Drawing(stem, title, _caption(fault, effect))


def _caption(fault: FaultSummary, effect: FlowFault) -> str:
    departures = (
        f"{effect.evs_detected} of them left the active set and send no more until probes are "
        "answered; a backup of the plane takes the place of each, while there are any."
        if effect.evs_detected
        else "None of them left the active set."
    )
    return (
        "Above: each packet of one flow by its sequence number. Dots on the left edge of the band "
        "are packets being sent, dots on the right edge the same packets being placed, half a "
        "round trip later. A cross is a packet that was lost; a thin line leads to its "
        "retransmission (triangle), and on to its placement. The black line is the end of the "
        "data that is in order: while it is flat the application waits, although bytes may still "
        "be placed. Below: the same packets by EV, for the planes of the faulty link; "
        f"▶ marks paths through {fault.target}. {departures} {effect.packets_exposed} packets "
        f"were sent into the fault; {effect.packets_lost} were lost to it, including those that "
        "were in flight when it began."
    )


def _rows(data: RunData, flow: FlowTables, places: Collection[str]) -> list[int]:
    """The EVs through the faulty link, and others of the same planes."""
    paths = {ev: data.path_of(flow.flow, ev) for ev in flow.spans}
    through = {ev for ev in paths if data.crosses(flow.flow, ev, places)}
    planes = {paths[ev].plane for ev in through} or {0}
    evs = [ev for ev, path in paths.items() if path.plane in planes]
    chosen = sorted(evs, key=lambda ev: ev not in through)[:MAX_EV_ROWS]
    return sorted(chosen, key=lambda ev: (paths[ev].plane, paths[ev].t1 or 0, ev))


def _packets(
    data: RunData,
    flow: FlowTables,
    shown: tuple[float, float],
    start: float,
    per_s: float,
) -> pl.DataFrame:
    """The transmissions of a time, with what became of each; times from `start`, in the axis' unit.

    Columns beside those of the table: `placed_t`, when its packet was first placed; `lost`, whether
    the transmission was lost; `next_t`, when the same packet was sent again.
    """
    sent = flow.transmissions.with_columns(next_t=pl.col("t").shift(-1).over("seq")).sort("t")
    lost = flow.losses.filter(~pl.col("spurious")).select("seq", "ev", t="sent_t", lost=True)
    placed = (
        data.table(ARRIVALS, flow.flow.flow)
        .filter(pl.col("bytes") > 0)
        .group_by("seq")
        .agg(placed_t=pl.col("t").min())
    )
    return (
        sent.filter(pl.col("t").is_between(*shown))
        # The core records `sent_t` a moment before the packet is handed to the socket.
        .join_asof(
            lost.sort("t"),
            on="t",
            by=["seq", "ev"],
            strategy="nearest",
            tolerance=data.base_rtt_s / 4,
            check_sortedness=False,
        )
        .join(placed, on="seq", how="left")
        .with_columns(
            pl.col("lost").fill_null(value=False),
            (pl.col("t", "placed_t", "next_t") - start) * per_s,
        )
    )


def _sequence(
    axes: Axes, data: RunData, flow: FlowTables, packets: pl.DataFrame, start: float, per_s: float
) -> None:
    first = packets.filter((pl.col("t") >= 0) & ~pl.col("retransmitted"))["seq"].min()
    zero = first if isinstance(first, int) else 0
    packets = packets.with_columns(pl.col("seq") - zero)
    fine, lost, resent = _fates(packets)

    def dots(shown: pl.DataFrame, time: str, marker: str, **look: Any) -> None:
        axes.plot(shown[time], shown["seq"], marker, linestyle="none", **look)

    many = packets.height > style.RASTER_ABOVE
    dots(fine, "t", ".", ms=1.6, color=style.GREY, rasterized=many)
    dots(fine, "placed_t", ".", ms=1.6, color=style.SKY, rasterized=many)
    point = delivered_point(data.table(ARRIVALS, flow.flow.flow))
    times, in_place = (point["delivered"] - start) * per_s, point["seq"] - zero
    axes.step(times, in_place, where="post", color=style.BLACK, linewidth=1.1)
    faint = min(0.8, 20 / max(lost.height, 1))
    again = packets.filter("retransmitted")
    lines = (lost, "next_t", style.VERMILLION), (resent, "placed_t", style.PURPLE)
    for shown, until, colour in lines:
        later = shown.filter(pl.col(until) > pl.col("t"))
        axes.hlines(
            later["seq"], later["t"], later[until], colors=colour, linewidth=0.5, alpha=faint
        )
    dots(lost, "t", "x", ms=4, mew=1.1, color=style.VERMILLION, zorder=4)
    dots(again, "t", "^", ms=3.6, color=style.PURPLE, mec="white", mew=0.3, zorder=4)
    dots(again, "placed_t", ".", ms=3, color=style.BLUE, zorder=4)
    if packets["seq"].n_unique() > 1:
        seqs = packets["seq"].to_numpy()
        axes.set_ylim(int(seqs.min()), int(seqs.max()))
    axes.set_ylabel("PSN, from the first one\nsent after the fault")


def _fates(packets: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Packets that arrived and were sent once, that were lost, that arrived and were sent again."""
    lost, arrived = packets.filter("lost"), packets.filter(~pl.col("lost"))
    return arrived.filter(~pl.col("retransmitted")), lost, arrived.filter("retransmitted")


def _rotation(
    axes: Axes,
    data: RunData,
    flow: FlowTables,
    packets: pl.DataFrame,
    evs: Sequence[int],
    fault: FaultSummary,
    per_s: float,
) -> None:
    start = fault.effective_s or 0.0
    looks = (
        ("|", 6, 0.9, style.GREY),
        ("x", 4.5, 1.2, style.VERMILLION),
        ("^", 4, 0.3, style.PURPLE),
    )
    active = [
        (row, (span.start - start) * per_s, (span.end - start) * per_s)
        for row, ev in enumerate(evs)
        for span in flow.spans[ev]
        if span.active
    ]
    style.bars(axes, active, facecolor=style.SKY, alpha=0.28, linewidth=0)
    rows = pl.DataFrame(
        {"ev": evs, "row": range(len(evs))}, schema_overrides={"ev": packets.schema["ev"]}
    )
    fates = _fates(packets.join(rows, on="ev", maintain_order="left"))
    for sent, (marker, size, edge, colour) in zip(fates, looks, strict=True):
        axes.plot(sent["t"], sent["row"], marker, ms=size, mew=edge, color=colour)
    names = [data.path_of(flow.flow, ev).name for ev in evs]
    crossing = [data.crosses(flow.flow, ev, fault.places) for ev in evs]
    style.label_paths(axes, names, crossing, fontsize=7)
    axes.set_ylim(len(evs) - 0.4, -0.6)
    axes.set_ylabel("EV's path")


def _legend() -> list[Line2D | Patch]:
    def dot(marker: str, colour: str, label: str, size: float = 4) -> Line2D:
        return Line2D([], [], marker=marker, ls="none", ms=size, color=colour, label=label)

    return [
        dot(".", style.GREY, "sent"),
        dot(".", style.SKY, "placed", 6),
        dot("x", style.VERMILLION, "sent and lost"),
        dot("^", style.PURPLE, "sent again"),
        dot(".", style.BLUE, "placed after all", 6),
        Line2D([], [], color=style.BLACK, label="delivered in order"),
        Patch(facecolor=style.SKY, alpha=0.28, label="EV in the active set"),
        Patch(facecolor=style.VERMILLION, alpha=0.10, label="fault in force"),
    ]
