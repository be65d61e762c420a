"""The messages of a flow: where they go in the receiver's memory, and the check that they arrived.

The receiver's memory region is a ring of `depth` slots of one message each. Message m goes to slot
m mod depth, which is free again because message m - depth has completed.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from testbed.mrc import (
    Completion,
    CompletionStatus,
    MemoryRegion,
    MessageDelivered,
    PayloadRegion,
    Region,
)

# --------------------------------------------------------------------------------------------------
# The bytes that flows carry: known at both ends, different from message to message.
#
# All flows of a run take their messages from one pseudo-random block, each message at another
# offset, so that a packet placed at a wrong address, or left from an earlier message, differs from
# what belongs there. There is one block because a thousand would not fit into memory, nor two into
# the cache.


_SPREAD = 65_521
"""Slack behind the longest message, in bytes: a prime, so that offsets repeat late."""

_STEP = 4_099
"""How far the offset moves from message to message: a prime beyond the path MTU."""

_FLOW_STRIDE = 40_503
"""The distance between the first messages of neighbouring flows, in messages: the golden ratio's
share of _SPREAD, which keeps any number of flows as far apart as possible."""

_COMPARED_BYTES = 1 << 16
"""Bytes compared at once. Their copies stay in the cache; those of a whole message of 16 MiB would
be fresh memory each time, and the event loop would stand still while the kernel provides it."""


_MADE_AT_ONCE = (1 << 28) - 1
"""The most bytes for which Python 3.11 counts the random bits."""


class Block:
    """The bytes from which the messages of all flows are cut.

    Attributes:
        content: all of them, in memory that a device can register.
    """

    def __init__(self, seed: int, longest: int) -> None:
        """Make the block for messages of up to `longest` bytes."""
        rng = random.Random(f"{seed}/content")  # noqa: S311 - repeatable test data
        size = longest + _SPREAD
        at_once = (min(_MADE_AT_ONCE, size - at) for at in range(0, size, _MADE_AT_ONCE))
        self.content = memoryview(bytearray().join(map(rng.randbytes, at_once)))

    def message(self, number: int, size: int) -> memoryview:
        """The content of message `number`, counted over all flows, as a view."""
        offset = number * _STEP % _SPREAD
        return self.content[offset : offset + size]


class Pattern:
    """The content of every message of one flow."""

    def __init__(self, block: Block, flow: int) -> None:
        """Cut the flow's messages from the run's block."""
        self._block = block
        self._first = flow * _FLOW_STRIDE

    def message(self, number: int, size: int) -> memoryview:
        """The content of the flow's message `number`, as a view of `size` bytes."""
        return self._block.message(self._first + number, size)

    def matches(self, number: int, received: memoryview) -> bool:
        """Whether the received bytes equal message `number`."""
        sent = self.message(number, len(received))
        parts = (slice(at, at + _COMPARED_BYTES) for at in range(0, len(received), _COMPARED_BYTES))
        return all(received[part].tobytes() == sent[part].tobytes() for part in parts)

    def matches_parts(self, number: int, size: int, received: Iterable[memoryview]) -> bool:
        """Whether parts that were received are message `number`, of `size` bytes, in order."""
        sent = self.message(number, size)
        at = 0
        for part in received:
            if part.tobytes() != sent[at : at + len(part)].tobytes():
                return False
            at += len(part)
        return at == size


REGION_VA = 0x10_0000_0000
"""The virtual address at which every region begins, as peers see it."""

IMMEDIATE_MASK = 0xFFFF_FFFF
"""Immediate data have 32 bits."""


def rkey_of(flow: int) -> int:
    """The rkey of a flow's region at its receiver: both ends know it without an exchange."""
    return 0x4D52_0000 + flow


@dataclass(frozen=True, slots=True)
class Slots:
    """The ring of message slots in a receiver's memory.

    Attributes:
        size: bytes of each slot.
        depth: the number of slots.
    """

    size: int
    depth: int

    def va(self, message: int) -> int:
        """The virtual address of message number `message`."""
        return REGION_VA + message % self.depth * self.size

    def region(self, flow: int, *, copied: bool = True) -> Region:
        """Allocate the memory region of a flow; without `copied` it keeps the payloads."""
        size = self.size * self.depth
        if not copied:
            return PayloadRegion(rkey_of(flow), REGION_VA, size)
        return MemoryRegion(rkey_of(flow), REGION_VA, memoryview(bytearray(size)))


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


@dataclass(slots=True)
class SentCounts:
    """What the sender of a flow counts, in the terms of `FlowRecord`.

    Attributes:
        flow: the flow's number.
        bytes_sent: bytes of all messages posted.
        bytes_completed: bytes of messages that completed.
        bytes_under_way: bytes of messages that have neither completed nor failed.
        packets_sent: data packets sent, including retransmissions.
        packets_lost: transmissions declared lost, except those that arrived after all.
        packets_retransmitted: retransmissions sent.
        errors: the completion status of each message that failed.
    """

    flow: int
    bytes_sent: int = 0
    bytes_completed: int = 0
    bytes_under_way: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    packets_retransmitted: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ReceivedCounts:
    """What the receiver of a flow counts, in the terms of `FlowRecord`.

    Attributes:
        flow: the flow's number.
        bytes_verified: bytes of messages that arrived as sent.
        bytes_corrupted: bytes of messages that did not.
    """

    flow: int
    bytes_verified: int = 0
    bytes_corrupted: int = 0


class Sender:
    """Posts the messages of a flow with their content.

    Attributes:
        flow: the flow's number.
        counts: what it has posted; the driver of the queue pair adds the packets.
    """

    def __init__(self, qp: Poster, flow: int, slots: Slots, pattern: Pattern) -> None:
        self.flow = flow
        self.counts = SentCounts(flow)
        self._qp = qp
        self._slots = slots
        self._pattern = pattern
        self._posted = 0
        self._outstanding = 0

    @property
    def idle(self) -> bool:
        return self._outstanding == 0

    def post(self, size: int, *, immediate: int | None = None) -> None:
        """Post one message of `size` bytes, with 32 bits of immediate data or without.

        Raises:
            ValueError: no slot is free, or the message does not fit into one.
        """
        if self._outstanding >= self._slots.depth or size > self._slots.size:
            raise ValueError(f"flow {self.flow} has no slot for a message of {size} bytes")
        message = self._posted
        payload = self._pattern.message(message, size)
        va, rkey = self._slots.va(message), rkey_of(self.flow)
        self._qp.post_write(message, payload, va, rkey, immediate)
        self._posted += 1
        self._outstanding += 1
        self.counts.bytes_sent += size
        self.counts.bytes_under_way += size

    def complete(self, completion: Completion) -> bool:
        """Count an entry of the completion queue; returns whether its message arrived."""
        self._outstanding -= 1
        self.counts.bytes_under_way -= completion.length
        arrived = completion.status is CompletionStatus.SUCCESS
        if arrived:
            self.counts.bytes_completed += completion.length
        else:
            self.counts.errors.append(completion.status.value)
        return arrived


class Checker:
    """Compares every message of a flow with what was sent, as soon as it is complete."""

    def __init__(self, flow: int, region: Region, pattern: Pattern) -> None:
        self.flow = flow
        self.counts = ReceivedCounts(flow)
        self._region = region
        self._pattern = pattern

    def check(self, delivered: MessageDelivered) -> bool:
        """Count a delivered message; returns whether its bytes in memory are those sent."""
        start = delivered.va - self._region.va
        end = start + delivered.length
        verified = self._matches(delivered.message, start, end)
        if verified:
            self.counts.bytes_verified += delivered.length
        else:
            self.counts.bytes_corrupted += delivered.length
        return verified

    def _matches(self, message: int, start: int, end: int) -> bool:
        region, pattern = self._region, self._pattern
        if isinstance(region, PayloadRegion):
            return pattern.matches_parts(message, end - start, region.take(start, end))
        if not isinstance(region, MemoryRegion) or not 0 <= start <= end <= region.size:
            return False
        return pattern.matches(message, region.buffer[start:end])
