"""What flows place before a fault that stays, and when it has settled."""

from testbed import Result
from testbed.studies.paper.experiments.drawing import SETTLE_RTTS, total_bps


def _before(run: Result) -> tuple[float, float]:
    (fault,) = run.summary.faults
    start = fault.effective_s or 0.0
    return start - 2 * run.data.base_rtt_s, start


def _without(run: Result) -> tuple[float, float]:
    (fault,) = run.summary.faults
    return (fault.effective_s or 0.0) + SETTLE_RTTS * run.data.base_rtt_s, run.data.end_s


def before_fraction(run: Result) -> float:
    """The goodput of all flows before the fault, of what their ports carry."""
    return total_bps(run.flows, *_before(run)) / sum(flow.flow.ports_bps for flow in run.flows)


def without_fraction(run: Result) -> float:
    """The same after it, of that before."""
    return total_bps(run.flows, *_without(run)) / total_bps(run.flows, *_before(run))


def slowest_fraction(run: Result) -> float:
    """The slowest flow after it, of what its ports carry."""
    span = _without(run)
    return min(flow.delivery.goodput_bps(*span) / flow.flow.ports_bps for flow in run.flows)
