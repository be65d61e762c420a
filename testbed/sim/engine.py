"""Virtual time: a heap of what happens when."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

Event = tuple[int, int, Callable[[int, Any], None], Any]
"""When (ns), its number among all events (so that ties are decided by order), what, with what."""


class Engine:
    """Calls what is due, in order of time, then of scheduling.

    Attributes:
        events: the heap; what is hot pushes onto it directly, with a number from `order`.
        order: numbers events.
        now_ns: the time.
    """

    __slots__ = ("events", "now_ns", "order")

    def __init__(self) -> None:
        """Start at 0 with nothing to do."""
        self.events: list[Event] = []
        self.order: Iterator[int] = count()
        self.now_ns = 0

    def at(self, time_ns: int, call: Callable[[int, Any], None], argument: object = None) -> None:
        """Have `call(time_ns, argument)` called then."""
        heappush(self.events, (time_ns, next(self.order), call, argument))

    def step(self) -> None:
        """Let time pass until the next thing is due, and do it.

        Raises:
            IndexError: nothing is due ever again.
        """
        self.now_ns, _, call, argument = heappop(self.events)
        call(self.now_ns, argument)

    def run(self, until_ns: int) -> None:
        """Let time pass until then, and do what is due by then."""
        events = self.events
        while events and events[0][0] <= until_ns:
            now_ns, _, call, argument = heappop(events)
            self.now_ns = now_ns
            call(now_ns, argument)
        self.now_ns = max(self.now_ns, until_ns)
