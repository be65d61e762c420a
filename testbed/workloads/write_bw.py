"""RDMA WRITEs back to back, as perftest's `ib_write_bw`: a sender and the check at the receiver.

The receiver's memory region is a ring of `depth` slots, one message each; message m goes to slot
m mod depth, which is free again because message m - depth has completed.
"""

from dataclasses import dataclass

from testbed.mrc import CompletionStatus, MemoryRegion, MessageDelivered, QueuePair
from testbed.workloads.pattern import Pattern

REGION_VA = 0x10_0000_0000
"""Where every region begins, as peers see it."""


def rkey_of(flow: int) -> int:
    """The rkey of a flow's region at its receiver: known to both ends without an exchange."""
    return 0x4D52_0000 | flow


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


class Sender:
    """Keeps `depth` WRITEs of a flow outstanding while it is running."""

    def __init__(self, qp: QueuePair, flow: int, slots: Slots, pattern: Pattern) -> None:
        self.flow = flow
        self.bytes_posted = 0
        self.bytes_completed = 0
        self.failed: list[str] = []
        self._qp = qp
        self._slots = slots
        self._pattern = pattern
        self._posted = 0
        self._outstanding = 0

    @property
    def idle(self) -> bool:
        """Whether every WRITE posted has completed."""
        return self._outstanding == 0

    def post(self, size: int) -> None:
        """Post one WRITE."""
        message = self._posted
        self._qp.post_write(
            message,
            self._pattern.message(message, size),
            self._slots.va(message),
            rkey_of(self.flow),
        )
        self._posted += 1
        self._outstanding += 1
        self.bytes_posted += size

    def fill(self, size: int) -> None:
        """Post WRITEs until `depth` are outstanding."""
        while self._outstanding < self._slots.depth and not self.failed:
            self.post(size)

    def reap(self) -> None:
        """Take in what the completion queue holds."""
        for completion in self._qp.poll_cq():
            self._outstanding -= 1
            if completion.status is CompletionStatus.SUCCESS:
                self.bytes_completed += completion.length
            else:
                self.failed.append(completion.status.value)


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
        found = self._region.buffer[start : start + delivered.length]
        verified = self._pattern.matches(delivered.message, found)
        if verified:
            self.bytes_verified += delivered.length
        else:
            self.bytes_corrupted += delivered.length
        return verified
