"""Waiting for the times of a timeline."""

from typing import Protocol

SPIN_NS = 2_000_000
"""The last stretch before a time is spent looking at the clock: sleeping ends late by a tick."""


class Clock(Protocol):
    """CLOCK_MONOTONIC and a sleep that lets others work; a virtual one in tests."""

    def now_ns(self) -> int:
        """Read the clock."""

    def sleep(self, seconds: float) -> None:
        """Return no earlier than this, perhaps later."""


def wait_until(clock: Clock, deadline_ns: int) -> None:
    """Return at a time: sleep for most of the wait, then watch the clock."""
    while (left_ns := deadline_ns - clock.now_ns()) > SPIN_NS:
        clock.sleep((left_ns - SPIN_NS) / 1e9)
    while clock.now_ns() < deadline_ns:
        pass
