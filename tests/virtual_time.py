"""Queue pairs in virtual time: each gets its turn, then what is due next arrives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Generic, Protocol, TypeVar

from testbed.mrc import Datagram

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


class SomeQp(Protocol):
    """A queue pair of any transport."""

    touched: bool

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """What to send now."""

    def deadlines(self) -> tuple[int, int]:
        """When it needs a turn: for timers, and for data."""


class Turns:
    """Which queue pairs have a turn: `sparing` ones go only to those who need one.

    Otherwise each has a turn whenever it may have one, and one more in which it may send no data.
    These must come to nothing where a turn is not needed.
    """

    def __init__(self, *, sparing: bool) -> None:
        self._sparing = sparing
        self._deadlines: dict[int, tuple[int, int]] = {}
        self.given = 0

    def give(self, number: int, qp: SomeQp, now_ns: int, turn: Callable[[int], None]) -> None:
        """Call `turn` with the number of a queue pair, if it has one."""
        timer_ns, data_ns = self._deadlines.get(number, (0, 0))
        if not qp.touched and timer_ns > now_ns:
            if self._sparing and data_ns > now_ns:
                return
            if not self._sparing:
                assert qp.transmit(now_ns, 0) == []
        self.given += 1
        turn(number)
        self._deadlines[number] = qp.deadlines()


def flipped(data: bytes, rng: Random) -> bytes:
    """The same with one bit flipped."""
    bit = rng.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
