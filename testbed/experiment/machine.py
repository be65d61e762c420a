"""How busy the machine was during a run, and what its kernel dropped."""

import json
import os
from pathlib import Path

INTERVAL_NS = 1_000_000_000
_IDLE_COLUMNS = (3, 4)
"""idle and iowait in /proc/stat."""


class MachineSampler:
    """Appends a line a second about the whole machine to health.jsonl."""

    def __init__(self, path: Path, now_ns: int) -> None:
        self._path = path
        self._since_ns = now_ns
        self._cpu = _cpu_times()

    @property
    def due_ns(self) -> int:
        """When the next line is due."""
        return self._since_ns + INTERVAL_NS

    def sample(self, now_ns: int, drops: dict[str, int]) -> None:
        """Write a line for the time since the last; `drops` are cumulative counters."""
        busy, total = (new - old for new, old in zip(_cpu_times(), self._cpu, strict=True))
        line = {
            "t_ns": now_ns,
            "process": "machine",
            "interval_ns": now_ns - self._since_ns,
            "cpus": os.cpu_count(),
            "busy_share": busy / total if total else 0.0,
            "drops": {"softnet": _softnet_drops(), **drops},
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._since_ns = now_ns
        self._cpu = _cpu_times()


def _cpu_times() -> tuple[int, int]:
    """Busy and total time of all CPUs since boot, in ticks."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return sum(ticks) - sum(ticks[column] for column in _IDLE_COLUMNS), sum(ticks)


def _softnet_drops() -> int:
    """Packets that the kernel's receive queues dropped since boot, on all CPUs."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)
