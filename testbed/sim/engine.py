"""Virtual time: a queue of events."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from testbed.mrc import NEVER

_pop: Final = heappop
_push: Final = heappush
"""Constants: compiled code finds them faster than imported names."""

Call = Callable[[int, Any], None]
"""Called at its time, with the time and the argument that it was scheduled with."""


class Event:
    """Something that happens at a time: a packet reaches the end of a link, a port is free.

    Packets and links are events themselves, so that no object is made for each hop of a packet.
    """

    __slots__ = ()

    def happen(self, now_ns: int) -> None:
        raise NotImplementedError


class _Callback(Event):
    __slots__ = ("_argument", "_call")

    def __init__(self, call: Call, argument: object) -> None:
        self._call = call
        self._argument = argument

    def happen(self, now_ns: int) -> None:
        self._call(now_ns, self._argument)


class Engine:
    """Runs events in the order of their times, and of scheduling for equal times.

    The events of one time are in a list. The heap holds only the times: numbers, which compare
    without access to other objects. A heap of a thousand hosts' events would not fit a cache.
    """

    __slots__ = ("_due", "_times", "now_ns")

    def __init__(self) -> None:
        """Begin at time 0 without events."""
        self._times: list[int] = []
        self._due: dict[int, list[Event]] = {}
        self.now_ns = 0

    def at(self, time_ns: int, call: Call, argument: object = None) -> None:
        """Schedule `call(time_ns, argument)`."""
        self.schedule(time_ns, _Callback(call, argument))

    def schedule(self, time_ns: int, event: Event) -> None:
        due = self._due.get(time_ns)
        if due is None:
            self._due[time_ns] = [event]
            _push(self._times, time_ns)
        else:
            due.append(event)

    @property
    def next_ns(self) -> int:
        """When the next event is due; `NEVER` if none is scheduled."""
        return self._times[0] if self._times else NEVER

    def step(self) -> None:
        """Advance to the time of the next event, and run all events of that time.

        Raises:
            IndexError: no event is scheduled.
        """
        now_ns = self.now_ns = _pop(self._times)
        for event in self._due[now_ns]:  # including those added meanwhile
            event.happen(now_ns)
        del self._due[now_ns]

    def run(self, until_ns: int) -> None:
        """Advance to a time, and run all events up to it."""
        times = self._times
        while times and times[0] <= until_ns:
            self.step()
        self.now_ns = max(self.now_ns, until_ns)
