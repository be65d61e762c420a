"""What is measured of a flow over the whole run."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.checks import victim_of
from testbed.model.summary import EvSummary, FlowSummary, Latency, NodeSummary
from testbed.results.analysis.delivery import message_latencies, reordering, union
from testbed.results.analysis.estimates import Percentiles
from testbed.results.analysis.fault_metrics import FlowTables, fraction, shortfall, time_in_force
from testbed.results.capacity.attainable import AttainableRate
from testbed.results.records import ARRIVALS, COMPLETIONS
from testbed.results.run_data import RunData

WARM_UP_RTTS = 10.0
"""Time left out of the steady goodput: windows open, and the first SACKs come back."""

MAX_WARM_UP_SHARE = 0.3
"""No more than this share of the fault-free time is left out."""


class FlowMetrics:
    """Computes each metric of `FlowSummary`, from a flow's tables."""

    def __init__(self, data: RunData, tables: FlowTables) -> None:
        """Select the arrivals of the steady window."""
        self.data, self.tables, self.flow = data, tables, tables.flow
        self._arrivals = data.table(ARRIVALS, self.flow.flow)
        start, end = self._steady_window()
        self.steady = self._arrivals.filter((pl.col("t") > start) & (pl.col("t") <= end))
        self.bps_of_byte = 8 / (end - start) if end > start else 0.0  # a fault from the start on
        """Bits per second for each byte that was placed in the steady window."""

        delivery, order = tables.delivery, reordering(self._arrivals)
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
        self.packets_spurious = tables.losses.filter("spurious").height
        self.packets_reordered = order.reordered
        self.reorder_depth_max = order.depth_max

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

    def _steady_window(self) -> tuple[float, float]:
        """The fault-free time after warming up, in seconds of the run."""
        data, (first, until) = self.data, self.tables.lasted
        first = max(first, 0.0)
        effects = [t for f in data.faults if (t := data.seconds(f.effective_ns)) is not None]
        end = min([data.end_s, until, *effects])
        start = first + min(WARM_UP_RTTS * data.base_rtt_s, MAX_WARM_UP_SHARE * (end - first))
        last = self._arrivals["t"].max()
        killed = any(f.kind == "kill" and self.flow.dst in f.places for f in data.faults)
        if killed and isinstance(last, float):
            end = min(end, last)  # what it received in its last moments it could not write down
        return start, end

    @property
    def packets_lost_elsewhere(self) -> int:
        """Transmissions that were lost and not sent into a fault."""
        data, lost = self.data, self.tables.losses.filter(~pl.col("spurious"))
        for fault in data.faults:
            start, healed = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
            if start is None:
                continue
            evs = [ev for ev in lost["ev"].unique() if data.crosses(self.flow, ev, fault.places)]
            end = np.inf if healed is None else healed
            during = pl.col("sent_t").is_between(start - data.base_rtt_s, end)
            lost = lost.filter(~(pl.col("ev").is_in(evs) & during))
        return lost.height

    @property
    def goodput_by_plane_bps(self) -> dict[int, float]:
        """The steady goodput over each plane that carried some."""
        planes = self.steady.group_by("plane").agg(pl.col("bytes").sum()).sort("plane")
        return {plane: placed * self.bps_of_byte for plane, placed in planes.iter_rows()}

    @property
    def evs(self) -> tuple[EvSummary, ...]:
        """The EVs that the flow used, in order of plane, T1 and value."""
        tables = self.tables
        placed = dict(self.steady.group_by("ev").agg(pl.col("bytes").sum()).iter_rows())
        sent = dict(tables.transmissions.group_by("ev").len().iter_rows())
        lost = dict(tables.losses.filter(~pl.col("spurious")).group_by("ev").len().iter_rows())
        paths = {ev: self.data.path_of(self.flow, ev) for ev in {*sent, *placed}}
        return tuple(
            EvSummary(
                ev=ev,
                plane=path.plane,
                path=path.name,
                goodput_bps=placed.get(ev, 0) * self.bps_of_byte,
                packets_sent=sent.get(ev, 0),
                packets_lost=lost.get(ev, 0),
            )
            for ev, path in sorted(
                paths.items(), key=lambda item: (item[1].plane, item[1].t1 or 0, item[0])
            )
        )


def latencies_s(data: RunData, tables: FlowTables) -> NDArray[np.float64]:
    """The latency of each message of a flow that was completed, in seconds."""
    return message_latencies(data.table(COMPLETIONS, tables.flow.flow), tables.transmissions)


def latency(data: RunData, seconds: NDArray[np.float64]) -> Latency | None:
    """What is measured of messages, from their latencies; None if none was completed."""
    if not seconds.size:
        return None
    metrics = SimpleNamespace(messages=seconds.size, **vars(Percentiles(seconds)))
    return Latency.measured(metrics, data.scale)


def flow_summary(data: RunData, tables: FlowTables, message_s: NDArray[np.float64]) -> FlowSummary:
    """One flow over the whole run; `message_s` are the latencies of its messages."""
    metrics, flow = FlowMetrics(data, tables), tables.flow
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
        latency=latency(data, message_s),
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
