"""The bytes that flows carry: known at both ends, different from message to message.

All flows of a run take their messages from one pseudo-random block, each message at another offset,
so that a packet placed at a wrong address, or left over from an earlier message, differs from what
belongs there. One block, because a thousand of them do not fit a memory, and two no cache.
"""

import random

_SPREAD = 65_521
"""Slack behind the longest message, in bytes: a prime, so that offsets repeat late."""

_STEP = 4_099
"""How far the offset moves from message to message: a prime beyond the path MTU."""

_APART = 40_503
"""How many messages a flow is ahead of the one before: the golden ratio's share of _SPREAD, which
keeps the flows, however many they are, as far from each other as can be."""

_PIECE = 1 << 16
"""Bytes that are compared at once. Their copies stay in the cache; those of a whole message of 16
MiB are fresh memory each time, and the event loop stands still while the kernel makes it."""


class Block:
    """What the messages of all flows are cut from."""

    def __init__(self, seed: int, longest: int) -> None:
        """Make it, for messages up to `longest` bytes."""
        chooser = random.Random(f"{seed}/content")  # noqa: S311 - repeatable test data
        self._bytes = memoryview(chooser.randbytes(longest + _SPREAD))

    def at(self, number: int, size: int) -> memoryview:
        """The bytes of the message with that number among all of the run, without a copy."""
        offset = number * _STEP % _SPREAD
        return self._bytes[offset : offset + size]


class Pattern:
    """The content of every message of one flow."""

    def __init__(self, block: Block, flow: int) -> None:
        """Take it from the block of the run."""
        self._block = block
        self._first = flow * _APART

    def message(self, number: int, size: int) -> memoryview:
        """The bytes of message `number`, without a copy."""
        return self._block.at(self._first + number, size)

    def matches(self, number: int, found: memoryview) -> bool:
        """Whether these bytes are message `number`, byte for byte."""
        sent = self.message(number, len(found))
        pieces = (slice(at, at + _PIECE) for at in range(0, len(found), _PIECE))
        return all(found[piece].tobytes() == sent[piece].tobytes() for piece in pieces)
