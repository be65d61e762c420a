"""Virtual time: a queue of events."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

_pop: Final = heappop
_push: Final = heappush
"""Constants: compiled code finds them faster than imported names."""

SLICES_PER_RTT: Final = 128
"""Slices of time in a base RTT (see `Engine`)."""

Call = Callable[[int, Any], None]
"""Called at its time, with the time and the argument that it was scheduled with."""


class Event:
    """Something that happens at a time: a packet reaches the end of a link, a port is free.

    Packets and links are events themselves, so that no object is made for each hop of a packet.
    """

    __slots__ = ()

    def happen(self, now_ns: int) -> None:
        """Do what is due at this time."""
        raise NotImplementedError


class _Callback(Event):
    """A call of a function."""

    __slots__ = ("_argument", "_call")

    def __init__(self, call: Call, argument: object) -> None:
        self._call = call
        self._argument = argument

    def happen(self, now_ns: int) -> None:
        """Call the function."""
        self._call(now_ns, self._argument)


class Engine:
    """Runs events in the order of their times, and of scheduling for equal times.

    The events of one time are in a list, and the times of one slice of time in a dictionary. Only
    the slice under way is in order, as a heap of its times: it fits a cache, while a heap of all
    events of a thousand hosts would not.

    Attributes:
        now_ns: the time.
    """

    __slots__ = ("_due", "_number", "_numbers", "_slice_ns", "_slices", "_times", "now_ns")

    def __init__(self, slice_ns: int = 1_000_000) -> None:
        """Begin at time 0 without events; `slice_ns`, the length of a slice, decides only speed."""
        self._slice_ns = slice_ns
        self._number = -1
        self._due: dict[int, list[Event]] = {}
        self._times: list[int] = []
        self._slices: dict[int, dict[int, list[Event]]] = {}
        self._numbers: list[int] = []
        self.now_ns = 0

    def at(self, time_ns: int, call: Call, argument: object = None) -> None:
        """Schedule `call(time_ns, argument)`."""
        self.schedule(time_ns, _Callback(call, argument))

    def schedule(self, time_ns: int, event: Event) -> None:
        """Schedule an event."""
        number = time_ns // self._slice_ns
        if number <= self._number:
            due = self._due.get(time_ns)
            if due is None:
                self._due[time_ns] = [event]
                _push(self._times, time_ns)
            else:
                due.append(event)
            return
        later = self._slices.get(number)
        if later is None:
            self._slices[number] = {time_ns: [event]}
            _push(self._numbers, number)
            return
        due = later.get(time_ns)
        if due is None:
            later[time_ns] = [event]
        else:
            due.append(event)

    def step(self) -> None:
        """Advance to the time of the next event, and run all events of that time.

        Raises:
            IndexError: no event is scheduled.
        """
        if self._times or self._begin_slice():
            self.run(self._times[0])
        else:
            raise IndexError("no event is scheduled")

    def run(self, until_ns: int) -> None:
        """Advance to a time, and run all events up to it."""
        while self._times or self._begin_slice():
            times = self._times
            while times and times[0] <= until_ns:
                now_ns = self.now_ns = _pop(times)
                for event in self._due.pop(now_ns):  # what they schedule for this time comes next
                    event.happen(now_ns)
            if times:
                break
        self.now_ns = max(self.now_ns, until_ns)

    def _begin_slice(self) -> bool:
        """Put the times of the next slice in order; returns whether there is one."""
        if not self._numbers:
            return False
        self._number = _pop(self._numbers)
        self._due = self._slices.pop(self._number)
        self._times = sorted(self._due)  # which is a heap
        return True
