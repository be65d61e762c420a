"""The bytes that flows carry: known at both ends, different from message to message.

All flows of a run take their messages from one pseudo-random block, each message at another offset,
so that a packet placed at a wrong address, or left from an earlier message, differs from what
belongs there. There is one block because a thousand would not fit into memory, nor two into the
cache.
"""

import random
from collections.abc import Iterable

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
    """The bytes from which the messages of all flows are cut."""

    def __init__(self, seed: int, longest: int) -> None:
        """Make the block for messages of up to `longest` bytes."""
        rng = random.Random(f"{seed}/content")  # noqa: S311 - repeatable test data
        size = longest + _SPREAD
        at_once = (min(_MADE_AT_ONCE, size - at) for at in range(0, size, _MADE_AT_ONCE))
        self._bytes = memoryview(b"".join(map(rng.randbytes, at_once)))

    def message(self, number: int, size: int) -> memoryview:
        """The content of message `number`, counted over all flows, as a view."""
        offset = number * _STEP % _SPREAD
        return self._bytes[offset : offset + size]


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
