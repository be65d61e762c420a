"""Rules that the metrics of every run obey: if they break one, the run is invalid.

A broken rule means that something was measured wrongly. Each rule is checked against the records
themselves, not by the code that computed the metric.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import polars as pl

from testbed.model.fabric.addressing import directions_of_path, links_of_path
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.run_files.content import FlowRecord
from testbed.model.summary import FlowSummary
from testbed.model.transport import KERNEL_KINDS
from testbed.model.units import show_share
from testbed.results.analysis.fault_metrics import FaultMetrics, FlowTables
from testbed.results.analysis.lateness import Level, Reasons
from testbed.results.records import ARRIVALS, COMPLETIONS
from testbed.results.run_data import RunData

RECOVERY = "a recovery is not shorter than an interval without goodput that begins in force"
SUM = "capacity lost and deficit together are what the undamaged fabric allowed less goodput"
LINKS = "all flows together do not exceed what the links can carry"
VERIFIED = "the bytes counted in goodput are those that were verified"
QUEUE_PAIRS = "two hosts that exchange as many messages as they have queue pairs use them all"
LEFT = "a flow far above what the fabric allows has no more than others leave"
NOTHING = "no flow is far above what the fabric allows while most have nothing"

FAR_ABOVE = 1.5
"""A flow is far above what the fabric allows from this multiple on. Ours."""

ROUNDED_BYTES = 2
ROUNDED_SHARE = 1e-6
"""The most by which two rounded numbers of bytes, and two sums of floats, may differ."""

EXCEEDED_SHARE = 0.02
EXCEEDED_BYTES = 1 << 17
"""A link's queue discipline may pass this much more than its rate allows: a burst, or bad pacing,
which degrades a run by itself."""


def contradictions(
    data: RunData,
    tables: Sequence[FlowTables],
    flows: Sequence[FlowSummary],
    effects: Sequence[FaultMetrics],
) -> Reasons:
    """Yield a reason for each place where a run's metrics break a rule."""
    violations = [
        *_goodput(data, tables),
        *_links(data),
        *_sums(data, tables, flows),
        *_queue_pairs(data),
        *_shares(data, tables, flows, effects),
        *(violation for effect in effects for violation in _effect(effect)),
    ]
    for rule, where in violations:
        yield Level.INVALID, f"the metrics contradict each other: {rule} ({where})"


Violations = Iterator[tuple[str, str]]
"""The rules that are broken, each with the place where it is."""


def _killed(data: RunData) -> set[str]:
    return {place for fault in data.faults if fault.kind == "kill" for place in fault.places}


def _goodput(data: RunData, tables: Sequence[FlowTables]) -> Violations:
    killed = _killed(data)
    for table in tables:
        flow = table.flow
        if flow.bytes_unaccounted or not killed.isdisjoint((flow.src, flow.dst)):
            continue  # its last records are lost
        placed = int(table.delivery.placed[-1]) if table.delivery.placed.size else 0
        checked = flow.bytes_verified + flow.bytes_corrupted
        if not placed:
            continue  # the verdict has another reason for a flow without data
        if placed < checked or placed > checked + flow.bytes_lost:
            yield VERIFIED, f"{flow.name}: {placed} bytes arrived, {checked} were verified"


def _links(data: RunData) -> Violations:
    """Compare the wire bytes of newly placed payload with what each link direction can carry."""
    topology, flows = data.topology, {flow.flow: flow for flow in data.run.flows}
    end = data.end_s
    header = topology.wire_bytes - PAYLOAD_MTU
    arrived = (
        data.tables[ARRIVALS]
        .filter(pl.col("t").is_between(0, end) & (pl.col("bytes") > 0))
        .group_by("flow", "ev")
        .agg(pl.col("bytes").cast(pl.Int64).sum(), packets=pl.len())
    )
    rate_bps = dict[str, int]()
    carried = Counter[str]()  # of kernel transports only payload: their headers are not recorded
    for number, ev, placed, packets in arrived.iter_rows():
        flow = flows[number]
        wire_bytes = placed + (0 if flow.transport in KERNEL_KINDS else packets * header)
        ends = topology.host_named(flow.src), topology.host_named(flow.dst)
        path = data.path_of(flow, ev)
        directions = directions_of_path(topology, *ends, path)
        for direction, link in zip(directions, links_of_path(topology, *ends, path), strict=True):
            carried[direction] += wire_bytes
            rate_bps[direction] = topology.rate_bps(link)
    for direction, wire_bytes in carried.items():
        most = rate_bps[direction] / 8 * end
        if wire_bytes > most * (1 + EXCEEDED_SHARE) + EXCEEDED_BYTES:
            yield LINKS, f"{direction}: {wire_bytes} bytes in {end:g} s, which allow {most:.0f}"


@dataclass(frozen=True, slots=True)
class _Sum:
    """Capacity lost plus deficit of a flow between two times, as measured, in bytes."""

    table: FlowTables
    start: float
    end: float
    missing_bytes: int

    def violations(self, where: str) -> Violations:
        """Compare it with the arrivals."""
        undamaged_bps = self.table.course.undamaged_bps(self.start, self.end)
        allowed = undamaged_bps / 8 * (self.end - self.start)
        times, placed = self.table.delivery.times, np.diff(self.table.delivery.placed, prepend=0)
        came = int(placed[(times > self.start) & (times <= self.end)].sum())
        if abs(self.missing_bytes - (allowed - came)) > ROUNDED_BYTES + ROUNDED_SHARE * allowed:
            name = self.table.flow.name
            yield (
                SUM,
                f"{name}, {where}: {self.missing_bytes} bytes of {allowed:.0f} less {came}",
            )


def _sums(data: RunData, tables: Sequence[FlowTables], flows: Sequence[FlowSummary]) -> Violations:
    for table, flow in zip(tables, flows, strict=True):
        missing = flow.capacity_lost_bytes + flow.deficit_bytes
        whole = table.measured(data.base_rtt_s, data.end_s)
        yield from _Sum(table, *whole, missing).violations("whole run")


def _queue_pairs(data: RunData) -> Violations:
    completed = data.tables[COMPLETIONS].filter(pl.col("t") >= 0).group_by("flow").len()
    messages = dict(completed.iter_rows())
    killed, pairs = _killed(data), defaultdict[tuple[str, str], list[FlowRecord]](list)
    for flow in data.flows:
        pairs[flow.src, flow.dst].append(flow)
    for (src, dst), lanes in pairs.items():
        unused = [str(flow.lane) for flow in lanes if flow.flow in data.idle]
        count = sum(messages.get(flow.flow, 0) for flow in lanes)
        if unused and count >= len(lanes) and killed.isdisjoint((src, dst)):
            yield QUEUE_PAIRS, f"{src} → {dst}: {count} messages, none on #{', #'.join(unused)}"


def _shares(
    data: RunData,
    tables: Sequence[FlowTables],
    flows: Sequence[FlowSummary],
    effects: Sequence[FaultMetrics],
) -> Violations:
    """Compare flows that no fault affects with what all of them can have at most.

    Not those of programs, which may leave each other room for as long as they like.
    """
    if data.lifetimes:
        return
    affected = {effect.flow.flow.flow for effect in effects if effect.affected}
    excess, placed, left = [], [], 0.0
    for table, flow in zip(tables, flows, strict=True):
        if flow.idle:
            continue
        whole = table.measured(data.base_rtt_s, data.end_s)
        most = max(flow.attainable_run_bps, table.ideal.mean_bps(*whole))
        left += max(most - flow.goodput_run_bps, 0.0)
        if flow.flow in affected:
            continue
        excess.append((flow.goodput_run_bps - FAR_ABOVE * most, flow.reached, flow.name))
        first = table.transmissions["t"].min()
        if isinstance(first, float) and first < data.end_s / 2:  # later ones hardly had time
            placed.append(table.delivery.placed[-1] if table.delivery.placed.size else 0)
    beyond, reached, name = max(excess, default=(0.0, 0.0, ""))
    if beyond > left:
        yield LEFT, f"{name}: {show_share(reached)}"
    if beyond > 0 and placed and median(placed) == 0:
        yield NOTHING, f"{name}: {show_share(reached)}"


def _effect(effect: FaultMetrics) -> Violations:
    missing = effect.capacity_lost_bytes + effect.deficit_bytes
    where = f"fault {effect.fault.index}"
    yield from _Sum(effect.flow, *effect.counted, missing).violations(where)
    if not effect.affected or effect.recovery is None:
        return
    for begin, end in effect.visible_gaps:
        if effect.recovery < end - begin:
            recovered = f"recovery after {effect.recovery:.4g} s"
            gap = f"no goodput for {end - begin:.4g} s from {begin:.4f} s on"
            yield RECOVERY, f"{effect.flow.flow.name}, {where}: {recovered}, {gap}"
            return
