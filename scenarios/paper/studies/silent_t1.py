"""What a T1 costs that falls silent, and later is rebooted."""

from math import inf
from statistics import median

from over_time import least_of_before

from testbed import Result
from testbed.model.faults.kinds import Reboot
from testbed.model.units import NS_PER_S
from testbed.studies.paper.experiments.drawing import SETTLE_RTTS, losses


def _times(run: Result) -> tuple[float, float, float]:
    """When the T1 fell silent, when its links went dark, and when it was back for some RTTs."""
    (fault,), (planned,) = run.summary.faults, run.data.scenario.timeline
    if not isinstance(planned, Reboot) or planned.silent is None:
        raise TypeError(planned)
    start, back = fault.effective_s or 0.0, fault.healed_s or 0.0
    settled = back + SETTLE_RTTS * run.data.base_rtt_s
    return start, start + planned.silent / NS_PER_S, settled


def silent_fraction(run: Result) -> float:
    """The goodput of the worse direction while it is silent, of that before."""
    start, dark, _ = _times(run)
    return least_of_before(run, start + SETTLE_RTTS * run.data.base_rtt_s, dark)


def reboot_fraction(run: Result) -> float:
    """The same from when its links go dark until some round trips after it is back."""
    _, dark, settled = _times(run)
    return least_of_before(run, dark, settled)


def _lost(run: Result) -> list[int]:
    """What each queue pair lost that lost something while it was silent."""
    start, dark, _ = _times(run)
    return [count for flow in run.flows if (count := losses(flow, start, dark))]


def affected_fraction(run: Result) -> float:
    """The share of the queue pairs that lost something while it was silent."""
    return len(_lost(run)) / len(run.flows)


def usual_losses(run: Result) -> float:
    """How many packets these lost, the median."""
    return float(median(_lost(run) or [0]))


def later_fraction(run: Result) -> float:
    """How much all queue pairs lost later, of what was lost before."""
    _, dark, settled = _times(run)
    lost = sum(_lost(run))
    return sum(losses(flow, dark, settled) for flow in run.flows) / lost if lost else inf
