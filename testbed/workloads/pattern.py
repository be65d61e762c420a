"""The bytes that flows carry: known at both ends, different from message to message.

Message m of a flow is a slice of one pseudo-random block, at an offset that moves with m, so that a
packet placed at a wrong address, or left over from an earlier message, differs from what belongs
there.
"""

import random

_SPREAD = 65_521
"""Slack behind the longest message, in bytes: a prime, so that offsets repeat late."""

_STEP = 4_099
"""How far the offset moves from message to message: a prime beyond the path MTU."""


class Pattern:
    """The content of every message of one flow."""

    def __init__(self, flow: int, seed: int, longest: int) -> None:
        """Make the block for messages up to `longest` bytes."""
        chooser = random.Random(f"{seed}/flow{flow}")  # noqa: S311 - repeatable test data
        self._block = memoryview(chooser.randbytes(longest + _SPREAD))

    def message(self, number: int, size: int) -> memoryview:
        """The bytes of message `number`, without a copy."""
        offset = number * _STEP % _SPREAD
        return self._block[offset : offset + size]

    def matches(self, number: int, found: memoryview) -> bool:
        """Whether these bytes are message `number`, byte for byte."""
        return found.tobytes() == self.message(number, len(found)).tobytes()
