"""Queues in memory that the NIC process shares with a program.

The NIC process makes the memory, and seals its size: a program that shrank it would end the NIC.
What a program writes there is checked like everything else that comes from outside.
"""

import fcntl
import mmap
import os
import platform
import threading
from typing import Final

from testbed.device.protocol import (
    ARMED,
    ARMED_SOLICITED,
    CQE,
    DONE,
    ENTRIES_OFFSET,
    HEAD,
    RING_BYTES,
    TAIL,
)
from testbed.model.closeable import Closeable

_COUNTS: Final = (1 << 32) - 1
_ORDERED: Final = platform.machine() in {"x86_64", "AMD64", "i686"}
"""Whether other processors see this one's writes in the order in which it makes them."""

_BARRIER: Final = threading.Lock()


def fence() -> None:
    """Have other processors see what was written before anything is read or written after.

    Python has no fence; the release of a lock and the acquisition after it make one.
    """
    with _BARRIER:
        pass
    with _BARRIER:
        pass


class ProgramError(Exception):
    """A program has written to a ring what no library writes: it is disconnected."""


class Ring(Closeable):
    """A ring, with the descriptor of its memory until that has been passed to the program."""

    def __init__(self, name: str, depth: int, entry_bytes: int) -> None:
        """Make the memory.

        Args:
            name: for /proc.
            depth: entries, a power of two.
            entry_bytes: the size of one.
        """
        self.depth = depth
        self._entry_bytes = entry_bytes
        size = ENTRIES_OFFSET + depth * entry_bytes
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
            self.memory = mmap.mmap(self.fd, size)
        except OSError:
            os.close(self.fd)
            raise
        self.words = memoryview(self.memory)[:RING_BYTES].cast("I")
        self._count = 0  # entries that this end has put in, or taken out

    def passed(self) -> None:
        """Close the descriptor: the program has its own."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """Give up the memory; the program's mapping stays."""
        if self.fd >= 0:
            self.passed()
        self.words.release()
        self.memory.close()

    def _offset(self, count: int) -> int:
        return ENTRIES_OFFSET + count % self.depth * self._entry_bytes


class PostedRing(Ring):
    """A ring that the program fills with work requests."""

    _done = 0

    def take(self) -> list[int]:
        """Take the entries that are new; returns where in `memory` each begins.

        They stay valid until `ended` has counted them.

        Raises:
            ProgramError: there are more than the ring has room for.
        """
        tail, first = self.words[TAIL], self._count
        count = (tail - first) & _COUNTS
        if not count:
            return []
        outstanding = (tail - self._done) & _COUNTS
        if outstanding > self.depth:
            raise ProgramError(f"{outstanding} entries in a ring of {self.depth}")
        self._count = tail
        self.words[HEAD] = tail
        fence()  # the next look at the tail sees what the program put in before it saw this head
        return [self._offset((first + i) & _COUNTS) for i in range(count)]

    def ended(self, count: int = 1) -> None:
        """Note that work requests have ended: the program may reuse their entries."""
        self._done = (self._done + count) & _COUNTS
        self.words[DONE] = self._done

    def forget(self) -> None:
        """Drop everything in it: the queue pair is reset."""
        self._count = self._done = tail = self.words[TAIL]
        self.words[HEAD] = self.words[DONE] = tail


class CompletionRing(Ring):
    """A ring that the NIC fills with completions."""

    def push(self, *entry: int) -> bool:
        """Put in a completion; returns whether there was room."""
        count = self._count
        if (count - self.words[HEAD]) & _COUNTS >= self.depth:
            return False
        CQE.pack_into(self.memory, self._offset(count), *entry)
        if not _ORDERED:
            fence()
        self._count = (count + 1) & _COUNTS
        self.words[TAIL] = self._count
        return True

    def resized(self, name: str, depth: int) -> "CompletionRing | None":
        """Return a ring of another depth with what waits here; None if it has no room for that."""
        waiting = (self._count - self.words[HEAD]) & _COUNTS
        if waiting > min(depth, self.depth):
            return None
        new = CompletionRing(name, depth, self._entry_bytes)
        new.words[HEAD], new.words[ARMED] = self.words[HEAD], self.words[ARMED]
        for i in range(waiting):
            count = (self._count - waiting + i) & _COUNTS
            old_start, new_start = self._offset(count), new._offset(count)
            entry = self.memory[old_start : old_start + self._entry_bytes]
            new.memory[new_start : new_start + self._entry_bytes] = entry
        new._count = new.words[TAIL] = self._count
        return new

    @property
    def count(self) -> int:
        """How many completions have been put in, modulo 2^32."""
        return self._count

    def disarm(self, *, solicited: bool) -> bool:
        """Return whether the program wants an event now; it wants none any more then.

        Args:
            solicited: whether a receive or an error is among what has completed.
        """
        armed = self.words[ARMED]
        if not armed or (armed == ARMED_SOLICITED and not solicited):
            return False
        self.words[ARMED] = 0
        return True
