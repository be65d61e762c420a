"""Queue pairs in virtual time: each gets its turn, then what is due next arrives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Generic, TypeVar

Packet = TypeVar("Packet")


class VirtualTime(ABC, Generic[Packet]):
    """What a network of tests is made of: a time, and the packets that are under way."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Packet]] = []
        self._ties = count()

    @abstractmethod
    def turn(self) -> Iterable[int | None]:
        """Let every queue pair send; yields when each wants its next turn."""

    @abstractmethod
    def arrive(self, at_ns: int, packet: Packet) -> None:
        """Take in what is due."""

    def under_way(self, until_ns: int, packet: Packet) -> None:
        """Have a packet arrive then."""
        heappush(self._heap, (until_ns, next(self._ties), packet))

    def run(self, until_ns: int, done: Callable[[], bool] = lambda: False) -> None:
        """Run to `until_ns`, or until `done`, or until nothing more can happen."""
        while True:
            times = [time_ns for time_ns in self.turn() if time_ns is not None]
            times += [entry[0] for entry in self._heap[:1]]
            if done() or not times:
                return
            now_ns = max(self.now_ns, min(times))
            if now_ns > until_ns:
                self.now_ns = until_ns
                return
            self.now_ns = now_ns
            while self._heap and self._heap[0][0] <= now_ns:
                at_ns, _, packet = heappop(self._heap)
                self.arrive(at_ns, packet)


def flipped(data: bytes, rng: Random) -> bytes:
    """The same with one bit flipped."""
    bit = rng.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
