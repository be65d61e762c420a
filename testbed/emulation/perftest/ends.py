"""The two ends of a measurement, and perftest's tables of what they measured.

The client decides what is measured, the server follows. Measured are emulated times and rates.
Tables show what they are at full speed, time divided by the fabric's dilation: that is what
compares with a NIC's.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Self, TypeAlias

from testbed.device.client import ClientQp, CompletionQueue, Device, MemoryRegion
from testbed.device.rendezvous import RemoteMemory, Rendezvous, meet
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device import LATE_RTTS
from testbed.emulation.perftest.parameters import Parameters, Show, Tool
from testbed.host.workloads.messages import IMMEDIATE_MASK, Block, Pattern
from testbed.model.errors import RunFailedError
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import NS_PER_S, show_share
from testbed.mrc import CompletionStatus
from testbed.mrc.verbs import WcOpcode, WorkCompletion

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


_CLIENT, _SERVER = 0, 1

_RECEIVES = 2
"""Posted receives of write_lat: one is consumed by each message, of which one is on its way."""


@dataclass(frozen=True, slots=True)
class _End:
    """One end, connected.

    Every queue pair has a slot of the peer's memory, as large as the largest message; what it sends
    there is a pattern of its own, another one for each size.
    """

    device: Device
    peer: Rendezvous
    parameters: Parameters
    cq: CompletionQueue
    qps: tuple[ClientQp, ...]
    block: Block
    memory: MemoryRegion
    remote: RemoteMemory

    @property
    def slot(self) -> int:
        return max(self.parameters.sizes)

    def payload(self, sender: int, number: int, size: int) -> memoryview:
        """What the end `sender` writes by the queue pair of that number."""
        qps = self.parameters.qps
        return Pattern(self.block, sender * qps + number).message(size, size)

    def check(self, size: int) -> None:
        """Compare the memory with what the peer has written.

        Raises:
            RunFailedError: it differs.
        """
        sender = _SERVER if self.peer.is_client else _CLIENT
        for number in range(self.parameters.qps):
            start = number * self.slot
            received = self.memory.buffer[start : start + size]
            if received != self.payload(sender, number, size):
                raise RunFailedError(f"message of {size} bytes: what arrived is not what was sent")


def call(device: Device, server: str, port: int, parameters: Parameters) -> Rows:
    """Measure the path to the program that listens on a host, by its name or address.

    Raises:
        RunFailedError: a WRITE failed, or something else arrived than was sent.
        TimeoutError: nobody answered.
    """
    with meet(device, server, port=port) as peer:
        peer.exchange(parameters.as_dict())
        return _measure(device, peer, parameters)


def serve(device: Device, port: int) -> tuple[Parameters, Rows]:
    """Wait for a client and follow it; return its parameters and what this end has measured.

    Raises:
        RunFailedError: a WRITE failed, or something else arrived than was sent.
        TimeoutError: nobody connected.
    """
    with meet(device, port=port) as peer:
        parameters = Parameters.from_dict(peer.exchange({}))
        return parameters, _measure(device, peer, parameters)


def _measure(device: Device, peer: Rendezvous, parameters: Parameters) -> Rows:
    cq = device.create_cq()
    qps = tuple(device.create_qp(cq, depth=parameters.tx_depth) for _ in range(parameters.qps))
    memory = device.reg_mr(bytearray(max(parameters.sizes) * parameters.qps))
    if parameters.tool is Tool.LATENCY:
        for wr_id in range(_RECEIVES):
            qps[0].post_recv(wr_id)
    block = Block(0, max(parameters.sizes))
    device.reg_mr(block.content)
    remote = peer.connect(qps, memory)
    end = _End(device, peer, parameters, cq, qps, block, memory, remote)
    if parameters.tool is Tool.LATENCY:
        return [_latency(end, size) for size in parameters.sizes]
    return [_bandwidth(end, size) for size in parameters.sizes]


def require_success(entries: Sequence[WorkCompletion]) -> None:
    """Refuse WRITEs that have failed.

    Raises:
        RunFailedError: one has.
    """
    for entry in entries:
        if entry.status is not CompletionStatus.SUCCESS:
            raise RunFailedError(f"a WRITE ended with: {entry.status.value}")


# --- bandwidth ------------------------------------------------------------------------------------


def _bandwidth(end: _End, size: int) -> Bandwidth:
    """Measure the bandwidth of one message size, beginning and ending together with the peer.

    Returns the sum of both directions where both ends send, otherwise the client's direction.
    """
    end.peer.exchange({"size": size})
    sends = end.peer.is_client or end.parameters.bidirectional
    sent = _send_all(end, size) if sends else None
    of_peer = end.peer.exchange({"measured": sent and asdict(sent)})["measured"]
    if of_peer is not None:
        end.check(size)
    rows = [row for row in (sent, of_peer and Bandwidth(**of_peer)) if row]
    return rows[0] if len(rows) == 1 else rows[0].both(rows[1])


def _send_all(end: _End, size: int) -> Bandwidth:
    sender = _CLIENT if end.peer.is_client else _SERVER
    parameters, remote = end.parameters, end.remote
    payloads = [end.payload(sender, number, size) for number in range(parameters.qps)]
    unsent = [parameters.iters] * parameters.qps
    outstanding = [0] * parameters.qps
    number_of = {qp.qp_num: number for number, qp in enumerate(end.qps)}
    posted_ns: list[int] = []
    completed_ns: list[int] = []

    def step() -> bool:
        entries = end.cq.poll()
        now = now_ns()
        require_success(entries)
        for entry in entries:
            outstanding[number_of[entry.qp_num]] -= 1
            completed_ns.append(now)
        for number, qp in enumerate(end.qps):
            while unsent[number] and outstanding[number] < parameters.tx_depth:
                unsent[number] -= 1
                outstanding[number] += 1
                va = remote.va + number * end.slot
                qp.post_write(len(posted_ns), payloads[number], va, remote.rkey)
                posted_ns.append(now)
        return len(completed_ns) == parameters.iters * parameters.qps

    end.peer.work(step)
    return Bandwidth.of(size, parameters.iters, posted_ns, completed_ns)


# --- latency --------------------------------------------------------------------------------------


def _latency(end: _End, size: int) -> LatencyRow:
    """Measure the latency of one message size: half of each round trip of a ping-pong.

    Each end waits for the immediate. perftest watches the last byte of its memory instead, but MRC
    places packets in any order, so that the last byte may arrive first.
    """
    end.peer.exchange({"size": size})
    sender = _CLIENT if end.peer.is_client else _SERVER
    payload = end.payload(sender, 0, size)
    (qp,) = end.qps
    remote = end.remote
    posted_ns: list[int] = []
    received = 0

    def post() -> None:
        number = len(posted_ns)
        posted_ns.append(now_ns())
        qp.post_write_imm(number, payload, remote.va, remote.rkey, number & IMMEDIATE_MASK)

    def step() -> bool:
        nonlocal received
        entries = end.cq.poll()
        require_success(entries)
        for entry in entries:
            if entry.opcode is WcOpcode.RECV_RDMA_WITH_IMM:
                received += 1
                qp.post_recv(entry.wr_id)
                if end.peer.is_client and received == end.parameters.iters:
                    posted_ns.append(now_ns())
                else:
                    post()
        return received == end.parameters.iters

    if end.peer.is_client:
        post()
    end.peer.work(step)
    end.check(size)
    row = LatencyRow.of(size, posted_ns) if end.peer.is_client else None
    of_peer = end.peer.exchange({"measured": row and asdict(row)})["measured"]
    return row or LatencyRow(**of_peer)
