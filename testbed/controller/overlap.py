"""Whether a fault by hand would meet another of its kind, as a timeline may not have it."""

from collections.abc import Iterable

from testbed.model.errors import Problem
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import ScheduledFault
from testbed.model.units import show_duration


def in_the_way(
    one: ScheduledFault, begun: Iterable[FaultRecord], due: Iterable[ScheduledFault]
) -> Problem | None:
    """What keeps a fault from beginning: one of its kind at a place of it, now or before it heals.

    Args:
        one: the fault, with times of the run.
        begun: every fault that has begun; those that are healed, or failed, are in nobody's way.
        due: the faults of the timeline that have not begun.
    """
    for record in begun:
        shared = _shared(one, record.kind, record.places)
        if shared and record.healed_ns is None and record.error is None:
            return Problem(
                "request",
                f"{one.kind} of {one.target}",
                f"no other {one.kind} there: fault {record.index} is in force at {shared}",
                f"heal fault {record.index} first; faults of different kinds add up",
            )
    for other in due:
        shared = _shared(one, other.kind, other.places)
        if shared and (one.heals_at is None or other.at <= one.heals_at):
            left = show_duration(max(other.at - one.at, 0))
            return Problem(
                "request",
                f"{one.kind} of {one.target}",
                f"one that heals before fault {other.index} of the timeline, a {one.kind} too, "
                f"strikes {shared} in {left}",
                f"for: less than {left}, or another kind; faults of different kinds add up",
            )
    return None


def _shared(one: ScheduledFault, kind: str, places: Iterable[str]) -> str:
    """A place that both strike, where they are of one kind; empty if there is none."""
    own = frozenset(one.places) if kind == one.kind else frozenset[str]()
    return next((place for place in places if place in own), "")
