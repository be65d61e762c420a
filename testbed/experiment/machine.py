"""How busy the machine was during a run, and what its kernel dropped."""

import contextlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

INTERVAL_NS = 1_000_000_000
_IDLE_COLUMNS = (3, 4)
"""idle and iowait in /proc/stat."""

_SOFTIRQ_COLUMN = 6
"""Where the kernel receives, queues and forwards packets, whoever sent them."""

_STEAL_COLUMN = 7
"""When this machine is a virtual one: it wanted to run, and the one under it ran others."""

ALL_CPUS = "cpu"
"""The line of /proc/stat about all CPUs."""


class MachineSampler:
    """Appends a line a second about the whole machine to health.jsonl.

    Drops are told as counted from its making on, so that those of the first second show as well.
    """

    def __init__(self, path: Path, now_ns: int, drops: Mapping[str, int]) -> None:
        """Begin; `drops` are cumulative counters, which `sample` is given again."""
        self._path = path
        self._drops_before = _all_drops(drops)
        self._since_ns = now_ns
        self._cpus = cpu_times()
        self._softirq, self._stolen = softirq_time(), stolen_time()
        self._timer_late_ns = 0

    def timer_late(self, late_ns: int) -> None:
        """Take note of how much later than asked for a sleep ended."""
        self._timer_late_ns = max(self._timer_late_ns, late_ns)

    @property
    def due_ns(self) -> int:
        """When the next line is due."""
        return self._since_ns + INTERVAL_NS

    def sample(self, now_ns: int, drops: Mapping[str, int], pids: Mapping[str, int]) -> None:
        """Write a line for the time since the last.

        Args:
            now_ns: the time.
            drops: the same cumulative counters as at the beginning.
            pids: the processes whose resident memory is looked at, by name.
        """
        cpus, softirq, stolen = cpu_times(), softirq_time(), stolen_time()
        spent = {
            name: tuple(new - old for new, old in zip(cpus[name], self._cpus[name], strict=True))
            for name in cpus.keys() & self._cpus.keys()  # a CPU may come or go
        }
        shares = {name: busy / total if total else 0.0 for name, (busy, total) in spent.items()}
        ticks = max(spent[ALL_CPUS][1], 1)
        line = {
            "t_ns": now_ns,
            "process": "machine",
            "interval_ns": now_ns - self._since_ns,
            "cpus": os.cpu_count(),
            "busy_share": shares.pop(ALL_CPUS),
            "softirq_share": (softirq - self._softirq) / ticks,
            "stolen_share": (stolen - self._stolen) / ticks,
            "cores": dict(sorted(shares.items())),
            "timer_late_ns": self._timer_late_ns,
            "resident_bytes": resident(pids),
            "drops": {
                name: count - self._drops_before.get(name, 0)
                for name, count in _all_drops(drops).items()
            },
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._since_ns, self._timer_late_ns = now_ns, 0
        self._cpus, self._softirq, self._stolen = cpus, softirq, stolen


def resident(pids: Mapping[str, int]) -> dict[str, int]:
    """Resident memory of processes in bytes; of those that have ended nothing."""
    found = {}
    for name, pid in pids.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            if pages:  # a zombie has none
                found[name] = pages * os.sysconf("SC_PAGE_SIZE")
    return found


def cpu_times() -> dict[str, tuple[int, int]]:
    """Busy and total time since boot, in ticks, of `cpu` (all of them), `cpu0`, `cpu1`..."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith(ALL_CPUS):
            ticks = [int(field) for field in fields[:8]]
            idle = sum(ticks[column] for column in _IDLE_COLUMNS)
            found[name] = sum(ticks) - idle, sum(ticks)
    return found


def softirq_time() -> int:
    """Time since boot that all CPUs spent on packets and timers in the kernel, in ticks."""
    return _all_cpus(_SOFTIRQ_COLUMN)


def stolen_time() -> int:
    """Time since boot that the machine under this virtual one gave to others, in ticks."""
    return _all_cpus(_STEAL_COLUMN)


def _all_cpus(column: int) -> int:
    line = Path("/proc/stat").read_text().partition("\n")[0]
    return int(line.split()[1 + column])


def _all_drops(drops: Mapping[str, int]) -> dict[str, int]:
    return {"softnet": _softnet_drops(), **drops}


def _softnet_drops() -> int:
    """Packets that the kernel's receive queues dropped since boot, on all CPUs."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def cpu_model() -> str:
    """The CPU's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
