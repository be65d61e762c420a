"""Virtual time: what happens when."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[[int, Any], None]
"""What is called when its time has come: with the time, and what it was scheduled with."""


class Engine:
    """Calls what is due, in order of time, then of scheduling.

    What is due at one time stands in a list of its own, and a heap holds the times alone: numbers,
    compared without a look at anything else. A heap of a thousand hosts' events fits no cache.

    Attributes:
        now_ns: the time.
    """

    __slots__ = ("_due", "_times", "now_ns")

    def __init__(self) -> None:
        """Start at 0 with nothing to do."""
        self._times: list[int] = []
        self._due: dict[int, list[tuple[Call, Any]]] = {}
        self.now_ns = 0

    def at(self, time_ns: int, call: Call, argument: object = None) -> None:
        """Have `call(time_ns, argument)` called then."""
        due = self._due.get(time_ns)
        if due is None:
            self._due[time_ns] = [(call, argument)]
            heappush(self._times, time_ns)
        else:
            due.append((call, argument))

    def step(self) -> None:
        """Let time pass until the next thing is due, and do all that is due then.

        Raises:
            IndexError: nothing is due ever again.
        """
        now_ns = self.now_ns = heappop(self._times)
        for call, argument in self._due[now_ns]:  # what is added meanwhile is done as well
            call(now_ns, argument)
        del self._due[now_ns]

    def run(self, until_ns: int) -> None:
        """Let time pass until then, and do what is due by then."""
        times, step = self._times, self.step
        while times and times[0] <= until_ns:
            step()
        self.now_ns = max(self.now_ns, until_ns)
