"""The clock of all records, CLOCK_MONOTONIC in ns, and its offset from kernel timestamps."""

import time
from collections.abc import Callable

now_ns: Callable[[], int] = time.monotonic_ns
"""Read the clock that stamps every record."""

STEP_NS = 1_000_000
"""CLOCK_REALTIME moves by more where it is set, and by less in a second where it is slewed."""

_TRIES = 5


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, from the fastest of a few paired readings.

    Kernel receive timestamps are CLOCK_REALTIME, which may be slewed: call this again every second.
    """
    best_width, best = 1 << 62, 0
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best = after - before, real - (before + after) // 2
    return best


def is_stepped(offset_ns: int) -> bool:
    """Whether CLOCK_REALTIME seems to have been set since its offset was this; one look only."""
    return abs(time.time_ns() - time.monotonic_ns() - offset_ns) > STEP_NS
