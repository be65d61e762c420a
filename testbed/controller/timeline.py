"""When what is done: the actions of a timeline in order, and waiting for their times."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from testbed.model.faults import Fault

SPIN_NS = 2_000_000
"""The last stretch before a time is spent looking at the clock: sleeping ends late by a tick."""


class Step(IntEnum):
    """What an action does; of two at the same time, healing comes first."""

    HEAL = 0
    INJECT = 1


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One thing to do.

    Attributes:
        at_ns: when, from the start of the run.
        step: inject or heal.
        index: which fault of the timeline.
    """

    at_ns: int
    step: Step
    index: int


def schedule(faults: Sequence[Fault]) -> dict[str, tuple[Action, ...]]:
    """The actions on each target, in the order in which they are due.

    Targets are independent of each other: what is slow on one makes nothing late on another.
    """
    actions: dict[str, list[Action]] = {}
    for index, fault in enumerate(faults):
        actions.setdefault(fault.target, []).extend(
            (Action(fault.at, Step.INJECT, index), Action(fault.until, Step.HEAL, index))
        )
    return {target: tuple(sorted(found)) for target, found in actions.items()}


class Clock(Protocol):
    """CLOCK_MONOTONIC and a sleep that lets others work; a virtual one in tests."""

    def now_ns(self) -> int:
        """Read the clock."""

    def sleep(self, seconds: float) -> None:
        """Return no earlier than this, perhaps later."""


def wait_until(clock: Clock, deadline_ns: int) -> None:
    """Return at a time: sleep for most of the wait, then watch the clock."""
    while (left_ns := deadline_ns - clock.now_ns()) > SPIN_NS:
        clock.sleep((left_ns - SPIN_NS) / 1e9)
    while clock.now_ns() < deadline_ns:
        pass


def play(
    actions: Iterable[Action], t0_ns: int, clock: Clock, perform: Callable[[Action, int], None]
) -> None:
    """Perform actions one after the other, each at its time or at once if that has passed.

    Args:
        actions: in order.
        t0_ns: the start of the run on the clock.
        clock: the clock.
        perform: is given the action and the time at which it was due.
    """
    for action in actions:
        due_ns = t0_ns + action.at_ns
        wait_until(clock, due_ns)
        perform(action, due_ns)
