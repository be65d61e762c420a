"""The clock of all records, CLOCK_MONOTONIC in ns, and how well a process keeps up with it.

How late it wakes, its CPU time and the packets it loses go into `health.jsonl`. Kernel timestamps
are of another clock, at an offset.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from testbed.model.run_files.content import HealthSample
from testbed.model.units import NS_PER_S

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


INTERVAL_NS = NS_PER_S
_P99 = 0.99


class HealthLog:
    """Appends a line per second to the run's health.jsonl, which all processes of the run share."""

    def __init__(self, path: Path, process: str, now_ns: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._process = process
        self._since_ns = now_ns
        self._cpu_ns = time.process_time_ns()
        self._lags: list[int] = []
        self.lag = self._lags.append
        """Record how late the process woke, or how late it handled a packet, in ns."""

    @property
    def due_ns(self) -> int:
        return self._since_ns + INTERVAL_NS

    def write(self, now_ns: int, drops: dict[str, int]) -> None:
        """Write a line for the time since the last one; `drops` are cumulative counters."""
        lags = sorted(self._lags) or [0]
        cpu_ns = time.process_time_ns()
        sample = HealthSample(
            t_ns=now_ns,
            process=self._process,
            interval_ns=now_ns - self._since_ns,
            lag_p99_ns=lags[int(len(lags) * _P99)],
            lag_max_ns=lags[-1],
            cpu_ns=cpu_ns - self._cpu_ns,
            drops=drops,
        )
        os.write(self._fd, sample.to_line().encode())
        self._since_ns, self._cpu_ns = now_ns, cpu_ns
        self._lags.clear()

    def close(self) -> None:
        os.close(self._fd)
