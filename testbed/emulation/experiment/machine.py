"""How busy the machine was during a run, and what its kernel dropped."""

import contextlib
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.model.run_files.health import HealthSample
from testbed.model.units import NS_PER_S

INTERVAL_NS = NS_PER_S
_IDLE, _IOWAIT, _SOFTIRQ, _STEAL = 3, 4, 6, 7
"""Columns of /proc/stat (proc_stat(5)). In softirqs the kernel receives, queues and forwards
packets, whoever sent them; stolen is what a virtual machine wanted and its host gave to others."""

_COLUMNS = 8
"""What follows them, time of guests, is in user time as well."""

ALL_CPUS = "cpu"
"""The line of /proc/stat about all CPUs."""


class MachineSampler:
    """Appends a line a second about the whole machine to health.jsonl.

    Drops are counted from the creation of the sampler, so those of the first second show as well.
    """

    def __init__(self, path: Path, now_ns: int, drops: Mapping[str, int]) -> None:
        """Begin; `drops` are cumulative counters, which `sample` is given again."""
        self._path = path
        self._drops_before = _all_drops(drops)
        self._since_ns = now_ns
        self._cpus = cpu_ticks()
        self._timer_late_ns = 0

    def record_timer_delay(self, late_ns: int) -> None:
        """Record how much later than planned a sleep ended, in ns."""
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
            pids: the processes whose resident memory is sampled, by name.
        """
        cpus = cpu_ticks()
        spent = {
            name: [new - old for new, old in zip(cpus[name], self._cpus[name], strict=True)]
            for name in cpus.keys() & self._cpus.keys()  # a CPU may come or go
        }
        shares = {name: busy_share(ticks) for name, ticks in spent.items()}
        of_all = spent[ALL_CPUS]
        total = max(sum(of_all), 1)
        sample = HealthSample(
            t_ns=now_ns,
            process="machine",
            interval_ns=now_ns - self._since_ns,
            cpus=os.cpu_count(),
            busy_share=shares.pop(ALL_CPUS),
            softirq_share=of_all[_SOFTIRQ] / total,
            stolen_share=of_all[_STEAL] / total,
            cores=dict(sorted(shares.items())),
            timer_late_ns=self._timer_late_ns,
            resident_bytes=resident(pids),
            drops={
                name: count - self._drops_before.get(name, 0)
                for name, count in _all_drops(drops).items()
            },
        )
        with self._path.open("a", encoding="utf-8") as file:
            file.write(sample.to_line())
        self._since_ns, self._timer_late_ns, self._cpus = now_ns, 0, cpus


def resident(pids: Mapping[str, int]) -> dict[str, int]:
    """Resident memory of processes in bytes, by name; without those that have ended."""
    memory = {}
    for name, pid in pids.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
            if pages:  # a zombie has none
                memory[name] = pages * os.sysconf("SC_PAGE_SIZE")
    return memory


def cpu_ticks() -> dict[str, list[int]]:
    """Ticks since boot for each column of /proc/stat, of `cpu` (all CPUs), `cpu0`..."""
    ticks = {}
    for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines():
        name, *fields = line.split()
        if name.startswith(ALL_CPUS):
            ticks[name] = [int(field) for field in fields[:_COLUMNS]]
    return ticks


def busy_share(ticks: Sequence[int]) -> float:
    """How busy a CPU was, 0 to 1, by the ticks that it spent in each column of /proc/stat."""
    total = sum(ticks)
    return (total - ticks[_IDLE] - ticks[_IOWAIT]) / total if total else 0.0


def _all_drops(drops: Mapping[str, int]) -> dict[str, int]:
    return {"softnet": softnet_drops(), **drops}


def softnet_drops() -> int:
    """Packets that the kernel's receive queues dropped since boot, on all CPUs."""
    lines = Path("/proc/net/softnet_stat").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def cpu_model() -> str:
    """The CPU's name."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
