"""Waiting for what is to come, however slow the machine is: only what hangs makes a test fail."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WATCHDOG_S = 900.0
"""What takes longer hangs. A machine may be 15 times slower than a laptop."""

_POLL_S = 0.001


def wait_until(
    condition: Callable[[], T], what: str = "the condition", within_s: float = WATCHDOG_S
) -> T:
    """Poll until a condition holds; returns what it has returned then.

    Raises:
        AssertionError: it does not after so many seconds.
    """
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not after {within_s:g} s"
        time.sleep(_POLL_S)
    return answer
