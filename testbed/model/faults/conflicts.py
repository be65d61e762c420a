"""Whether a fault by hand conflicts with another of its kind, as the checks of a timeline do."""

from collections.abc import Iterable

from testbed.model.errors import Problem
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import ScheduledFault
from testbed.model.units import show_duration


def conflict(
    fault: ScheduledFault, begun: Iterable[FaultRecord], due: Iterable[ScheduledFault]
) -> Problem | None:
    """The conflict of a fault with one of its kind, in force now or due before the fault heals.

    Args:
        fault: the fault, with times of the run.
        begun: every fault that has begun; those that have healed or failed do not conflict.
        due: the faults of the timeline that have not begun.
    """
    for record in begun:
        place = _common_place(fault, record.kind, record.places)
        if place and record.healed_ns is None and record.error is None:
            return Problem(
                "request",
                f"{fault.kind} of {fault.target}",
                f"no other {fault.kind} there: fault {record.index} is in force at {place}",
                f"heal fault {record.index} first; faults of different kinds add up",
            )
    for other in due:
        place = _common_place(fault, other.kind, other.places)
        if place and (fault.heals_at is None or other.at <= fault.heals_at):
            remaining = show_duration(max(other.at - fault.at, 0))
            return Problem(
                "request",
                f"{fault.kind} of {fault.target}",
                f"one that heals before fault {other.index} of the timeline, a {fault.kind} too, "
                f"affects {place} in {remaining}",
                f"for: less than {remaining}, or another kind; faults of different kinds add up",
            )
    return None


def _common_place(fault: ScheduledFault, kind: str, places: Iterable[str]) -> str:
    """A place that both strike, if they are of one kind; empty if there is none."""
    struck = frozenset(fault.places) if kind == fault.kind else frozenset[str]()
    return next((place for place in places if place in struck), "")
