"""The messages of a flow: where they go in the receiver's memory, and the check that they arrived.

The receiver's memory region is a ring of `depth` slots, one message each; message m goes to slot
m mod depth, which is free again because message m - depth has completed.
"""

from dataclasses import dataclass
from typing import Protocol

from testbed.mrc import Completion, CompletionStatus, MemoryRegion, MessageDelivered
from testbed.workloads.pattern import Pattern

REGION_VA = 0x10_0000_0000
"""Where every region begins, as peers see it."""

_IMMEDIATE_MASK = 0xFFFF_FFFF


def rkey_of(flow: int) -> int:
    """The rkey of a flow's region at its receiver: known to both ends without an exchange."""
    return 0x4D52_0000 + flow


@dataclass(frozen=True, slots=True)
class Slots:
    """The ring of message slots in a receiver's memory.

    Attributes:
        size: bytes of each slot.
        depth: how many there are.
    """

    size: int
    depth: int

    def va(self, message: int) -> int:
        """Where message `message` goes."""
        return REGION_VA + message % self.depth * self.size

    def region(self, flow: int) -> MemoryRegion:
        """A new region for a flow."""
        return MemoryRegion(rkey_of(flow), REGION_VA, memoryview(bytearray(self.size * self.depth)))


class Poster(Protocol):
    """What messages are posted to: a queue pair."""

    def post_write(
        self,
        wr_id: int,
        payload: memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Post an RDMA WRITE, with 32 bits of immediate data or without."""


class Sender:
    """Posts the messages of a flow, each with the content that is due, and counts them.

    Attributes:
        flow: its number.
        bytes_posted: of all messages.
        bytes_completed: of those that completed.
        bytes_under_way: of those that have neither completed nor failed.
        failed: how messages failed, if any did.
    """

    def __init__(self, qp: Poster, flow: int, slots: Slots, pattern: Pattern) -> None:
        self.flow = flow
        self.bytes_posted = 0
        self.bytes_completed = 0
        self.bytes_under_way = 0
        self.failed: list[str] = []
        self._qp = qp
        self._slots = slots
        self._pattern = pattern
        self._posted = 0
        self._outstanding = 0

    @property
    def idle(self) -> bool:
        """Whether every message posted has completed."""
        return self._outstanding == 0

    def post(self, size: int, *, tell: bool = False) -> None:
        """Post one message of `size` bytes; with `tell` as a WRITE with immediate, its number.

        Raises:
            ValueError: its slot is not free, or not so large.
        """
        if self._outstanding >= self._slots.depth or size > self._slots.size:
            raise ValueError(f"flow {self.flow} has no slot for a message of {size} bytes")
        message = self._posted
        payload = self._pattern.message(message, size)
        va, rkey = self._slots.va(message), rkey_of(self.flow)
        immediate = message & _IMMEDIATE_MASK if tell else None
        self._qp.post_write(message, payload, va, rkey, immediate)
        self._posted += 1
        self._outstanding += 1
        self.bytes_posted += size
        self.bytes_under_way += size

    def complete(self, completion: Completion) -> bool:
        """Take in what the completion queue says; returns whether the message arrived."""
        self._outstanding -= 1
        self.bytes_under_way -= completion.length
        arrived = completion.status is CompletionStatus.SUCCESS
        if arrived:
            self.bytes_completed += completion.length
        else:
            self.failed.append(completion.status.value)
        return arrived


class Checker:
    """Compares every message of a flow with what was sent, the moment it is complete."""

    def __init__(self, flow: int, region: MemoryRegion, pattern: Pattern) -> None:
        self.flow = flow
        self.bytes_verified = 0
        self.bytes_corrupted = 0
        self._region = region
        self._pattern = pattern

    def check(self, delivered: MessageDelivered) -> bool:
        """Whether the message stands in memory as it was sent."""
        start = delivered.va - self._region.va
        end = start + delivered.length
        memory = self._region.buffer
        inside = 0 <= start <= end <= len(memory)
        verified = inside and self._pattern.matches(delivered.message, memory[start:end])
        if verified:
            self.bytes_verified += delivered.length
        else:
            self.bytes_corrupted += delivered.length
        return verified
