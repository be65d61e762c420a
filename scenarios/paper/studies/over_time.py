"""What is left of throughput during faults and after them."""

from testbed import Result
from testbed.studies.paper.experiments.drawing import (
    SETTLE_RTTS,
    by_direction,
    least_of_phases,
    longest_stall_rtts,
    phases,
    share,
    total_bps,
)

UPLINKS_SETTLE_RTTS = 8.0
"""Where the window must shrink and grow with the capacity, which takes more than a path's death."""


def least_of_steps_fraction(run: Result) -> float:
    """What the worse direction reached between two changes, of what the links allowed."""
    return least_of_phases(run)


def stall_rtt(run: Result) -> float:
    """The longest time that any fault kept a flow from delivering in order."""
    return longest_stall_rtts(run)


def during_fraction(run: Result) -> float:
    """The goodput of the worse direction from when faults have settled, of that before."""
    return _during(run, SETTLE_RTTS)


def whole_fraction(run: Result) -> float:
    """The same from the first failure to the last healing."""
    return _during(run, 0.0)


def _during(run: Result, settle_rtts: float) -> float:
    start = min(fault.effective_s or 0.0 for fault in run.summary.faults)
    return least_of_before(run, start + settle_rtts * run.data.base_rtt_s, _healed_s(run))


def after_fraction(run: Result) -> float:
    """The same from when all faults are healed."""
    return least_of_before(run, _healed_s(run) + SETTLE_RTTS * run.data.base_rtt_s, run.data.end_s)


def tracked_fraction(run: Result) -> float:
    """What all flows reached between two changes, of what the links allowed to an even split."""
    return min(share(run.flows, *phase) for phase in phases(run, UPLINKS_SETTLE_RTTS))


def tracked_after_fraction(run: Result) -> float:
    """The same from when all faults are healed."""
    healed = _healed_s(run) + UPLINKS_SETTLE_RTTS * run.data.base_rtt_s
    return share(run.flows, healed, run.data.end_s)


def _healed_s(run: Result) -> float:
    return max(fault.healed_s or 0.0 for fault in run.summary.faults)


def least_of_before(run: Result, start: float, end: float) -> float:
    """The goodput of the worst direction in a span of time, relative to that before the faults.

    All queue pairs from one host to another count together.
    """
    faults = [f.effective_s for f in run.summary.faults if f.effective_s is not None]
    before = 5 * run.data.base_rtt_s, min([run.data.end_s, *faults])
    return min(
        total_bps(qps, start, end) / total_bps(qps, *before) for qps in by_direction(run.flows)
    )
