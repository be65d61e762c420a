"""What runs delivered, as it would be at full speed, and how faults changed it."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np

from testbed.model.errors import RunFailedError
from testbed.model.summary import FaultSummary
from testbed.model.summary.unit import Time
from testbed.model.workload import BUS_FACTORS, members
from testbed.results.analysis.delivery import Floats
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.checks import Check, between

if TYPE_CHECKING:
    from testbed.model.workload import AllReduce, AllToAll, SendRecv

SETTLE_RTTS = 3.0
"""Base RTTs after a change until throughput is measured: what was in flight has then arrived, and
the dead path is out of service. The paper's seconds hide hundreds of thousands of RTTs."""

MAX_STALL_RTTS = 5.0
"""The longest interruption that counts as short. The paper's bound (figure 9a: < 1 s of real time)
is some ten thousand times longer; this one is its "few tens of microseconds" in base RTTs."""

LEAST_OF_A_STEP = 0.9
"""Of what the remaining links allow, in each step of figure 9a."""

PORTS_GBPS = 400.0
"""What a host's ports carry together on four planes of 100 Gb/s, or on one of 400, in real Gb/s,
headers included."""


def hosts_bps(run: Result) -> dict[str, float]:
    """The goodput of each sending host over the whole run, all its queue pairs together."""
    rates: dict[str, float] = defaultdict(float)
    for flow in run.summary.flows:
        rates[flow.src] += flow.goodput_run_bps
    return rates


def us_per_s(run: Result) -> float:
    """How long a second of a run would be at full speed, in us."""
    return 1e6 / run.summary.dilation


def only(runs: Results) -> Result:
    """The run of a figure that has a single one."""
    (run,) = runs.values()
    return run


def gbps(run: Result, emulated_bps: float) -> float:
    """A rate as it would be at full speed, in Gb/s."""
    return emulated_bps * run.summary.dilation / 1e9


def bus_gbps(run: Result) -> float:
    """Bus bandwidth of a run's collectives, per host, in real Gb/s.

    If no collective was completed: the rate at which hosts placed data over the whole run, but no
    more than one collective in it, which is the most that it can be. (Hosts of an all-to-all that
    have all their data go on to the next one while others wait.)
    """
    for operation in run.summary.operations:
        if operation.count and operation.busbw_bps is not None:
            return gbps(run, operation.busbw_bps)
    workload = cast("AllReduce | AllToAll | SendRecv", run.data.scenario.workload)
    hosts = len(members(workload.hosts, run.data.topology))
    placed_bps = sum(flow.goodput_run_bps for flow in run.summary.flows) / hosts
    placed_bits = placed_bps * run.data.end_s
    one_bits = 8 * workload.size * BUS_FACTORS[workload.kind](hosts)
    return gbps(run, min(placed_bits, one_bits) / run.data.run.duration_s)


def share(flows: Sequence[FlowTables], start: float, end: float) -> float:
    """What flows placed between two times, of what the links in service allowed an even split."""
    span = np.array([start, end])
    placed = sum(8 * float(np.diff(flow.delivery.bytes_until(span))[0]) for flow in flows)
    allowed = sum(float(flow.attainable.bits(span[:1], span[1:])[0]) for flow in flows)
    return placed / allowed


def total_bps(flows: Sequence[FlowTables], start: float, end: float) -> float:
    """The goodput of flows together between two times, in emulated bit/s."""
    return sum(flow.delivery.goodput_bps(start, end) for flow in flows)


def sliding(run: Result, flows: Sequence[FlowTables], moments: Floats, width_s: float) -> Floats:
    """What flows together placed in the time before each moment, in Gb/s at full speed."""
    placed = np.zeros(len(moments))
    for flow in flows:
        placed += flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width_s)
    return placed * 8 / width_s * run.summary.dilation / 1e9


def stall_rtts(fault: FaultSummary) -> float:
    """The longest time that a fault kept a flow from delivering in order, in base RTTs.

    0 if it concerned no flow.

    Raises:
        RunFailedError: the fault never took effect: the run shows nothing.
    """
    if fault.effective_s is None:
        raise RunFailedError(f"{fault.name} never took effect")
    return 0.0 if fault.stall is None else fault.stall.rtt


def measured(value: Time | None, what: str) -> Time:
    """A time that the run must have measured.

    Raises:
        RunFailedError: it has not.
    """
    if value is None:
        raise RunFailedError(f"{what} was not measured")
    return value


def losses(flow: FlowTables, start: float, end: float) -> int:
    """How many packets a flow declared lost after one time, until another."""
    times = flow.losses["t"].to_numpy()
    return int(np.count_nonzero((times > start) & (times <= end)))


def qps_failed(run: Result) -> Check:
    """Check that no queue pair failed: no message ended in an error."""
    return between("queue pairs in error", run.summary.qps_in_error, 0, 0, "{:.0f}")


def payload_intact(run: Result) -> Check:
    """Check that all payload is in place as it was sent; what is under way at the end is not."""
    damaged = run.summary.integrity.bytes_lost + run.summary.integrity.bytes_corrupted
    return between("payload lost or corrupted", damaged, 0, 0, "{:.0f} B")


def phases(run: Result, settle_rtts: float = SETTLE_RTTS) -> list[tuple[float, float]]:
    """The times between one change of the faults and the next, each without its settling."""
    changes = {f.effective_s for f in run.summary.faults} | {f.healed_s for f in run.summary.faults}
    times = sorted(t for t in changes if t is not None)
    settle = settle_rtts * run.data.base_rtt_s
    return [(start + settle, end) for start, end in pairwise(times) if end - start > settle]


def least_of_phases(run: Result, settle_rtts: float = SETTLE_RTTS) -> float:
    """What the worse direction placed in the worst phase, of what the links in service allowed."""
    return min(
        share(qps, *phase) for qps in by_direction(run.flows) for phase in phases(run, settle_rtts)
    )


def longest_stall_rtts(run: Result) -> float:
    """The longest time that any fault kept a flow from delivering in order, in base RTTs."""
    return max(stall_rtts(fault) for fault in run.summary.faults)


def by_direction(flows: Sequence[FlowTables]) -> list[list[FlowTables]]:
    """The flows of the queue pairs from one host to another, together."""
    grouped = defaultdict(list)
    for flow in flows:
        grouped[flow.flow.src, flow.flow.dst].append(flow)
    return [*grouped.values()]
