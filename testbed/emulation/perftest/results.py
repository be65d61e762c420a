"""What was measured, and perftest's tables of it.

Measured are emulated times and rates. Tables show what they are at full speed, time divided by the
fabric's dilation: that is what compares with a NIC's.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Self, TypeAlias

from testbed.emulation.endpoint.device import LATE_RTTS
from testbed.emulation.perftest.parameters import Parameters, Show
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import NS_PER_S, show_share

MAX_LATE_SHARE = 0.02
"""The share of packets that may be seen late without a warning. Our own choice."""

_MIB = 1 << 20
_LINE = "-" * 139
_LATENCY_COLUMNS = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A row of write_bw, in emulated bytes a second; `iterations` are of one queue pair.

    The peak is perftest's: the best rate from the posting of any message to the completion of it or
    of any later one.
    """

    size: int
    iterations: int
    peak_bytes_per_s: float
    average_bytes_per_s: float

    @classmethod
    def of(
        cls, size: int, iterations: int, posted_ns: Sequence[int], completed_ns: Sequence[int]
    ) -> Self:
        """Compute it from when messages were posted and when they completed, in order."""
        count, elapsed_ns = _quickest(posted_ns, completed_ns)
        whole_ns = completed_ns[-1] - posted_ns[0]
        return cls(
            size,
            iterations,
            size * count * NS_PER_S / elapsed_ns,
            size * len(posted_ns) * NS_PER_S / whole_ns,
        )

    def both(self, other: Self) -> Self:
        """Return the sum with the other direction's."""
        return type(self)(
            self.size,
            self.iterations,
            self.peak_bytes_per_s + other.peak_bytes_per_s,
            self.average_bytes_per_s + other.average_bytes_per_s,
        )


def _quickest(posted_ns: Sequence[int], completed_ns: Sequence[int]) -> tuple[int, int]:
    """The messages i to j with the least (completed[j] - posted[i]) / (j - i + 1): (count, ns).

    By Dinkelbach's method: any pair below the least ratio so far gives a lesser one, and where
    there is none it is the least. perftest tries all pairs. In whole numbers, so that none comes
    out slower than all messages together.
    """
    count, elapsed_ns = len(posted_ns), completed_ns[-1] - posted_ns[0]
    while True:
        best, quickest = 0, (count, elapsed_ns)
        first, latest = 0, posted_ns[0] * count
        for last, (start_ns, end_ns) in enumerate(zip(posted_ns, completed_ns, strict=True)):
            start = start_ns * count - elapsed_ns * last
            if start > latest:
                first, latest = last, start
            many, took_ns = last - first + 1, end_ns - posted_ns[first]
            excess = took_ns * count - elapsed_ns * many
            if excess < best:
                best, quickest = excess, (many, took_ns)
        if not best:
            return count, elapsed_ns
        count, elapsed_ns = quickest


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """A row of write_lat, in emulated ns: half of the round trips of a ping-pong."""

    size: int
    iterations: int
    min_ns: float
    max_ns: float
    typical_ns: float
    avg_ns: float
    stdev_ns: float
    p99_ns: float
    p999_ns: float

    @classmethod
    def of(cls, size: int, times_ns: Sequence[int]) -> Self:
        """Compute it from when each ping was posted, and the last answered."""
        halves = sorted((after - before) / 2 for before, after in pairwise(times_ns))
        return cls(
            size,
            len(halves),
            halves[0],
            halves[-1],
            median(halves),
            fmean(halves),
            pstdev(halves),
            halves[int(len(halves) * 0.99)],
            halves[int(len(halves) * 0.999)],
        )


Rows: TypeAlias = list[Bandwidth] | list[LatencyRow]


def heading(parameters: Parameters, topology: Topology, src: Node, dst: Node) -> str:
    """Return what perftest says before it measures."""
    where = "T0-local" if topology.rack(src) == topology.rack(dst) else "cross-T1"
    ways = ", bidirectional" if parameters.bidirectional else ""
    return (
        f"{parameters.tool} {src.name} -> {dst.name} ({where}), {topology.name}{ways}, "
        f"{parameters.qps} QP, tx depth {parameters.tx_depth}\n"
        f"at full speed: emulated time / {topology.dilation:g}"
    )


def lateness(late: int, arrived: int) -> str | None:
    """Return what to say of a machine that did not keep up with its devices; None if it did."""
    if late <= arrived * MAX_LATE_SHARE:
        return None
    return (
        f"{late} of {arrived} packets were seen late, by more than {show_share(LATE_RTTS)} of a "
        "base RTT: the machine was busy, these are not the network's figures alone"
    )


def as_text(rows: Rows, show: Show, topology: Topology, src: Node, dst: Node) -> str:
    """Return the rows between two hosts as text; JSON holds emulated figures."""
    if show.as_json:
        pair = {"src": src.name, "dst": dst.name, "dilation": topology.dilation}
        return json.dumps({**pair, "rows": [asdict(row) for row in rows]})
    latencies = [row for row in rows if isinstance(row, LatencyRow)]
    bandwidths = [row for row in rows if isinstance(row, Bandwidth)]
    lines = (
        _latency_lines(latencies, topology.dilation)
        if latencies
        else _bandwidth_lines(bandwidths, topology.dilation, gbits=show.gbits)
    )
    return "\n".join((_LINE, *lines, _LINE))


def _bandwidth_lines(rows: Sequence[Bandwidth], dilation: float, *, gbits: bool) -> Iterator[str]:
    unit, per_unit = ("Gb/sec", 1e9 / 8) if gbits else ("MiB/sec", _MIB)
    yield f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    for row in rows:
        average = row.average_bytes_per_s * dilation
        peak = row.peak_bytes_per_s * dilation
        yield (
            f" {row.size:<10} {row.iterations:<14} {peak / per_unit:<18.2f} "
            f"{average / per_unit:<20.2f} {average / row.size / 1e6:.6f}"
        )


def _latency_lines(rows: Sequence[LatencyRow], dilation: float) -> Iterator[str]:
    yield _LATENCY_COLUMNS
    us = 1e3 * dilation
    for row in rows:
        yield (
            f" {row.size:<6} {row.iterations:<14} {row.min_ns / us:<14.2f} "
            f"{row.max_ns / us:<12.2f} {row.typical_ns / us:<18.2f} {row.avg_ns / us:<14.2f} "
            f"{row.stdev_ns / us:<15.2f} {row.p99_ns / us:<22.2f} {row.p999_ns / us:.2f}"
        )
