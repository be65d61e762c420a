"""Virtual time: what happens when."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[[int, Any], None]
"""What is called when its time has come: with the time, and what it was scheduled with."""


class Event:
    """Something that happens at a time: a packet reaches the end of a link, a port is free.

    What each packet needs at each hop is itself the event: nothing is made to schedule it.
    """

    __slots__ = ()

    def happen(self, now_ns: int) -> None:
        """Do what is due."""
        raise NotImplementedError


class _Call(Event):
    """A call."""

    __slots__ = ("_argument", "_call")

    def __init__(self, call: Call, argument: object) -> None:
        self._call = call
        self._argument = argument

    def happen(self, now_ns: int) -> None:
        """Make it."""
        self._call(now_ns, self._argument)


class Engine:
    """Makes happen what is due, in order of time, then of scheduling.

    What is due at one time stands in a list of its own, and a heap holds the times alone: numbers,
    compared without a look at anything else. A heap of a thousand hosts' events fits no cache.

    Attributes:
        now_ns: the time.
    """

    __slots__ = ("_due", "_times", "now_ns")

    def __init__(self) -> None:
        """Start at 0 with nothing to do."""
        self._times: list[int] = []
        self._due: dict[int, list[Event]] = {}
        self.now_ns = 0

    def at(self, time_ns: int, call: Call, argument: object = None) -> None:
        """Have `call(time_ns, argument)` called then."""
        self.schedule(time_ns, _Call(call, argument))

    def schedule(self, time_ns: int, event: Event) -> None:
        """Have an event happen then."""
        due = self._due.get(time_ns)
        if due is None:
            self._due[time_ns] = [event]
            heappush(self._times, time_ns)
        else:
            due.append(event)

    def step(self) -> None:
        """Let time pass until the next thing is due, and do all that is due then.

        Raises:
            IndexError: nothing is due ever again.
        """
        now_ns = self.now_ns = heappop(self._times)
        for event in self._due[now_ns]:  # what is added meanwhile is done as well
            event.happen(now_ns)
        del self._due[now_ns]

    def run(self, until_ns: int) -> None:
        """Let time pass until then, and do what is due by then."""
        times, step = self._times, self.step
        while times and times[0] <= until_ns:
            step()
        self.now_ns = max(self.now_ns, until_ns)
