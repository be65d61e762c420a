"""A run that stays up after its timeline, for faults by hand, until its user ends it."""

import os
import select

HELD = "held"
"""What such a run tells of itself, as its progress, once its timeline is over."""

_NEVER_NS = 1 << 62


class Hold:
    """How long a run is held; made outside the sandbox, heard inside.

    Attributes:
        limit_ns: for so long after the timeline at most; None: until `end` is called.
    """

    def __init__(self, limit_ns: int | None = None) -> None:
        """Hold it, for so many ns or without limit."""
        self.limit_ns = limit_ns
        self._reader, self._writer = os.pipe()

    def end(self) -> None:
        """End it now; a signal handler may call this."""
        os.write(self._writer, b".")

    @property
    def has_ended(self) -> bool:
        """Whether `end` has been called, on whichever side of a fork."""
        return bool(select.select([self._reader], [], [], 0)[0])

    def until_ns(self, planned_ns: int) -> int:
        """When a run ends whose timeline is over at that time, if nobody ends it before."""
        return _NEVER_NS if self.limit_ns is None else planned_ns + self.limit_ns
