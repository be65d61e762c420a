"""What is measured of a flow over the whole run."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import polars as pl

from testbed.model.checks import victim_of
from testbed.model.run_files.content import FlowRecord
from testbed.model.summary import EvSummary, FlowSummary, Latency, NodeSummary
from testbed.results.analysis.attainable import AttainableRate
from testbed.results.analysis.delivery import ByFlow, Floats, reordering, union
from testbed.results.analysis.estimates import Percentiles
from testbed.results.analysis.fault_metrics import FlowTables, fraction, shortfall, time_in_force
from testbed.results.records import ARRIVALS, COMPLETIONS, LOSSES, TRANSMISSIONS
from testbed.results.run_data import RunData

WARM_UP_RTTS = 10.0
"""Time left out of the steady goodput: windows open, and the first SACKs come back."""

MAX_WARM_UP_SHARE = 0.3
"""No more than this share of the fault-free time is left out."""


class FlowCounts:
    """What is counted in the records of all flows at once.

    Attributes:
        steady: by flow its steady window, in seconds of the run.
        by_plane: by flow the bytes that it placed over each plane in that window.
        by_ev: by flow its EVs, each with the bytes placed over it in that window, and the packets
            sent and lost on it in the whole run.
        spurious: by flow the transmissions declared lost that had arrived.
        lost_elsewhere: by flow the transmissions that were lost and not sent into a fault.
        reordered: by flow the packets overtaken on their own path, and the greatest depth.
    """

    def __init__(self, data: RunData, tables: Sequence[FlowTables]) -> None:
        """Count by columns: there may be tens of thousands of flows."""
        arrivals, losses = data.tables[ARRIVALS], data.tables[LOSSES]
        of_flow = {table.flow.flow: table.flow for table in tables}
        lost = losses.filter(~pl.col("spurious") & pl.col("flow").is_in([*of_flow]))
        last = dict(arrivals.group_by("flow").agg(pl.col("t").max()).iter_rows())
        self.steady = {
            table.flow.flow: _steady_window(data, table, last.get(table.flow.flow))
            for table in tables
        }
        windows = pl.DataFrame(
            [(number, *window) for number, window in self.steady.items()],
            schema={"flow": pl.Int32, "start": pl.Float64, "end": pl.Float64},
            orient="row",
        )
        within = (pl.col("t") > pl.col("start")) & (pl.col("t") <= pl.col("end"))
        steady = arrivals.join(windows, on="flow").filter(within)
        placed = pl.col("bytes").cast(pl.Int64).sum()
        self.by_plane: dict[int, dict[int, int]] = defaultdict(dict)
        for flow, plane, size in steady.group_by("flow", "plane").agg(placed).sort("plane").rows():
            self.by_plane[flow][plane] = size
        evs = (
            data.tables[TRANSMISSIONS]
            .group_by("flow", "ev")
            .agg(sent=pl.len())
            .join(
                steady.group_by("flow", "ev").agg(placed),
                on=["flow", "ev"],
                how="full",
                coalesce=True,
            )
            .join(lost.group_by("flow", "ev").agg(lost=pl.len()), on=["flow", "ev"], how="left")
            .fill_null(0)
        )
        self.by_ev: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
        for flow, *of_ev in evs.select("flow", "ev", "bytes", "sent", "lost").iter_rows():
            self.by_ev[flow].append((*of_ev,))
        self.spurious: Mapping[int, int] = Counter(losses.filter("spurious")["flow"])
        self.lost_elsewhere: Mapping[int, int] = Counter(_elsewhere(data, of_flow, lost)["flow"])
        self.reordered: dict[int, tuple[int, int]] = {
            flow: (count, depth) for flow, count, depth in reordering(arrivals).iter_rows()
        }
        begun = data.tables[COMPLETIONS].filter(pl.col("start_t") >= 0)
        self._latencies = ByFlow(begun.select("flow", seconds=pl.col("t") - pl.col("start_t")))

    def latencies_s(self, flow: int) -> Floats:
        """The latency of each message of a flow that was completed, in seconds.

        The packet that a queue pair sends before the run begins is no message of it.
        """
        (seconds,) = self._latencies.columns(flow)
        return seconds


def _steady_window(data: RunData, tables: FlowTables, last: float | None) -> tuple[float, float]:
    """The fault-free time after warming up, in seconds; `last` is the flow's last arrival."""
    first, until = tables.lasted
    first = max(first, 0.0)
    effects = [t for f in data.faults if (t := data.seconds(f.effective_ns)) is not None]
    end = min([data.end_s, until, *effects])
    start = first + min(WARM_UP_RTTS * data.base_rtt_s, MAX_WARM_UP_SHARE * (end - first))
    killed = any(f.kind == "kill" and tables.flow.dst in f.places for f in data.faults)
    if killed and last is not None:
        end = min(end, last)  # what it received in its last moments it could not write down
    return start, end


def _elsewhere(
    data: RunData, of_flow: Mapping[int, FlowRecord], lost: pl.DataFrame
) -> pl.DataFrame:
    """Those of some lost transmissions that were not sent into a fault."""
    for fault in data.faults:
        start, healed = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
        if start is None:
            continue
        evs = lost.select("flow", "ev").unique()
        crosses = [data.crosses(of_flow[flow], ev, fault.places) for flow, ev in evs.iter_rows()]
        through = evs.with_columns(pl.Series("through", crosses, dtype=pl.Boolean))
        during = pl.col("sent_t").is_between(
            start - data.base_rtt_s, np.inf if healed is None else healed
        )
        lost = lost.join(through, on=["flow", "ev"]).filter(~(pl.col("through") & during))
        lost = lost.drop("through")
    return lost


class FlowMetrics:
    """Computes each metric of `FlowSummary`, from a flow's tables and counts."""

    def __init__(self, data: RunData, tables: FlowTables, counts: FlowCounts) -> None:
        """Compare what came with what was allowed."""
        self.data, self.tables, self.flow = data, tables, tables.flow
        self._counts, number = counts, tables.flow.flow
        start, end = counts.steady[number]
        self.bps_of_byte = 8 / (end - start) if end > start else 0.0  # a fault from the start on
        """Bits per second for each byte that was placed in the steady window."""

        delivery = tables.delivery
        ideal, even = tables.ideal, tables.attainable
        begin, finish = tables.measured(data.base_rtt_s, data.end_s)
        self.undamaged_bps = ideal.undamaged_bps
        self.goodput_run_bps = delivery.goodput_bps(begin, finish)
        self.goodput_before_bps = delivery.goodput_bps(start, end) if end > start else None
        healed = self._healed()
        self.goodput_healed_bps = None if healed is None else delivery.goodput_bps(healed, finish)
        self.ports_bps = self.flow.ports_bps
        self.ports_fraction = self.goodput_run_bps / self.ports_bps
        self.ideal_run_bps = ideal.mean_bps(begin, finish)
        self.attainable_run_bps = even.mean_bps(begin, finish)

        def of(rate: AttainableRate, since: float | None, until: float) -> float | None:
            if self.flow.flow in data.idle or since is None or since >= until:
                return None
            return fraction(delivery, rate, since, until)

        self.ideal_fraction, self.run_fraction = of(ideal, begin, finish), of(even, begin, finish)
        self.ideal_before_fraction = of(ideal, start, end)
        self.before_fraction = of(even, start, end)
        self.ideal_healed_fraction = of(ideal, healed, finish)
        self.healed_fraction = of(even, healed, finish)
        self.ideal_in_force_fraction = self._in_force_fraction(ideal)
        self.in_force_fraction = self._in_force_fraction(even)
        missing = shortfall(tables.course, begin, finish)
        self.capacity_lost, self.deficit = missing.capacity_lost_s, missing.deficit_s
        self.capacity_lost_bytes = missing.capacity_lost_bytes
        self.deficit_bytes = missing.deficit_bytes
        delays = tables.in_order.delays(-np.inf, 0.0, finish, max(finish, data.run.duration_s))
        percentiles = Percentiles(delays) if delays.size else None
        self.in_order_delay_p99 = percentiles.p99 if percentiles else None
        self.in_order_delay_max = percentiles.max if percentiles else None
        self.packets_sent = self.flow.packets_sent
        self.packets_lost = self.flow.packets_lost
        self.packets_retransmitted = self.flow.packets_retransmitted
        self.packets_spurious = counts.spurious.get(number, 0)
        self.packets_lost_elsewhere = counts.lost_elsewhere.get(number, 0)
        self.packets_reordered, self.reorder_depth_max = counts.reordered.get(number, (0, 0))

    def _in_force_fraction(self, rate: AttainableRate) -> float | None:
        times = [t for fault in self.data.faults if (t := time_in_force(self.data, fault))]
        first, last = self.tables.lasted
        spans = union((max(w.start, first), min(w.end, last)) for w in times)
        if not spans or self.flow.flow in self.data.idle:
            return None
        starts, ends = np.array(spans).T
        placed = self.tables.delivery.bytes_until(ends) - self.tables.delivery.bytes_until(starts)
        allowed_bits = float(rate.bits(starts, ends).sum())
        return float(placed.sum()) * 8 / allowed_bits if allowed_bits else None

    def _healed(self) -> float | None:
        """When the last fault had healed and the flow had time to come back, in seconds.

        None if not all faults healed, or if the run ended before.
        """
        data = self.data
        times = [data.seconds(fault.healed_ns) for fault in data.faults]
        if not times or None in times:
            return None
        first, last = self.tables.lasted
        healed = max(t for t in times if t is not None)
        since = max(healed, first) + WARM_UP_RTTS * data.base_rtt_s
        return since if since < min(data.end_s, last) else None

    @property
    def goodput_by_plane_bps(self) -> dict[int, float]:
        """The steady goodput over each plane that carried some."""
        placed = self._counts.by_plane.get(self.flow.flow, {})
        return {plane: size * self.bps_of_byte for plane, size in placed.items()}

    @property
    def evs(self) -> tuple[EvSummary, ...]:
        """The EVs that the flow used, in order of plane, T1 and value."""
        paths = [
            (self.data.path_of(self.flow, ev), ev, placed, sent, lost)
            for ev, placed, sent, lost in self._counts.by_ev.get(self.flow.flow, ())
        ]
        paths.sort(key=lambda item: (item[0].plane, item[0].t1 or 0, item[1]))
        return tuple(
            EvSummary(
                ev=ev,
                plane=path.plane,
                path=path.name,
                goodput_bps=placed * self.bps_of_byte,
                packets_sent=sent,
                packets_lost=lost,
            )
            for path, ev, placed, sent, lost in paths
        )


def latency(data: RunData, seconds: Floats) -> Latency | None:
    """What is measured of messages, from their latencies; None if none was completed."""
    if not seconds.size:
        return None
    metrics = SimpleNamespace(messages=seconds.size, **vars(Percentiles(seconds)))
    return Latency.measured(metrics, data.scale)


def flow_summary(data: RunData, tables: FlowTables, counts: FlowCounts) -> FlowSummary:
    """One flow over the whole run."""
    metrics, flow = FlowMetrics(data, tables, counts), tables.flow
    return FlowSummary.measured(
        metrics,
        data.scale,
        flow=flow.flow,
        src=flow.src,
        dst=flow.dst,
        lane=flow.lane,
        transport=flow.transport,
        victim=victim_of(data.scenario) == (flow.src, flow.dst),
        goodput_by_plane_bps=metrics.goodput_by_plane_bps,
        evs=metrics.evs,
        latency=latency(data, counts.latencies_s(flow.flow)),
    )


def node_summaries(data: RunData, flows: Sequence[FlowSummary]) -> Iterator[NodeSummary]:
    """What is measured of each node that has a flow; nothing where each has one NIC."""
    topology = data.topology
    if topology.nics_per_node == 1:
        return
    sent: dict[int, list[FlowSummary]] = defaultdict(list)
    received: dict[int, list[FlowSummary]] = defaultdict(list)
    for flow in flows:
        sent[topology.node_of(topology.host_named(flow.src))[0]].append(flow)
        received[topology.node_of(topology.host_named(flow.dst))[0]].append(flow)
    for node in sorted(sent.keys() | received.keys()):
        leaving, arriving = sent[node], received[node]
        goodput_bps = sum(flow.goodput_run_bps for flow in leaving)
        ideal_bps, even_bps = (
            sum(getattr(flow, key) for flow in leaving if not flow.idle)
            for key in ("ideal_run_bps", "attainable_run_bps")
        )
        yield NodeSummary(
            node=f"n{node}",
            nics=len({flow.src for flow in leaving} | {flow.dst for flow in arriving}),
            goodput_sent_bps=goodput_bps,
            goodput_received_bps=sum(flow.goodput_run_bps for flow in arriving),
            ideal_fraction=goodput_bps / ideal_bps if ideal_bps else None,
            run_fraction=goodput_bps / even_bps if even_bps else None,
            packets_lost=sum(flow.packets_lost for flow in leaving),
        )
