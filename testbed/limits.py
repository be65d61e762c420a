"""What this process may use of the machine: CPUs and memory, within what control groups grant.

Such groups limit a container, a service or a job.
"""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mountinfo")
MEMORY = Path("/proc/meminfo")

_UNIFIED = ("", "unified")
"""Where version 2 is mounted below `ROOT`: alone, or beside version 1."""


SIMULATION_BYTES = 512 << 20
"""Memory of a simulation (measured for shipped scenarios: 190 to 210 MB), and room for more."""


def simulations_at_once() -> int:
    """How many simulations are made at a time: one for each CPU, as far as memory goes."""
    fitting = min(usable_cpus(), available_memory() / SIMULATION_BYTES)
    return max(1, int(fitting))


def usable_cpus() -> float:
    """How many CPUs' time this process may use; less than one where its time is limited."""
    if not hasattr(os, "sched_getaffinity"):  # on macOS and Windows
        return os.cpu_count() or 1
    return min(len(os.sched_getaffinity(0)), cpus())


def available_memory() -> float:
    """Memory that can be had without swapping, in bytes.

    Where that is not known, all there is; infinite where that is not known either.
    """
    if MEMORY.exists():
        lines = MEMORY.read_text(encoding="ascii").splitlines()
        meminfo = dict(line.split(":") for line in lines)
        available = int(meminfo["MemAvailable"].removesuffix("kB")) * 1024
        return min(available, memory_bytes())
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return float("inf")  # on Windows


def cpus() -> float:
    """How many CPUs' time the groups grant; infinite if they do not limit it."""
    granted = float("inf")
    for group in _groups("cpu"):
        quota = _words(group / "cpu.max")  # version 2: "max 100000" or "25000 100000"
        if not quota:
            quota = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        if quota and quota[0] not in {"max", "-1"}:
            granted = min(granted, int(quota[0]) / int(quota[1]))
    return granted


def memory_bytes() -> float:
    """How much more memory the groups grant; infinite if they do not limit it.

    Of what is in use, the cache of files counts as free: the kernel takes it back.
    """
    left = float("inf")
    for group in _groups("memory"):
        limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
        used = _words(group / "memory.current") or _words(group / "memory.usage_in_bytes")
        if limit and used and limit[0] != "max":
            left = min(left, int(limit[0]) - int(used[0]) + _cached_bytes(group))
    return left


def processes() -> float:
    """How many more processes and threads the groups grant; infinite if they do not limit it."""
    left = float("inf")
    for group in _groups("pids"):
        limit, used = _words(group / "pids.max"), _words(group / "pids.current")
        if limit and used and limit[0] != "max":
            left = min(left, int(limit[0]) - int(used[0]))
    return left


def _groups(controller: str) -> Iterator[Path]:
    """Every group above this process that may limit what the controller controls."""
    if not MEMBERSHIP.exists():
        return
    tops = _tops()
    for line in MEMBERSHIP.read_text(encoding="utf-8").splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mounted in (controllers,) if controllers else _UNIFIED:
            hierarchy = ROOT / mounted
            top = tops.get(str(hierarchy), "").rstrip("/")
            below = (
                place.removeprefix(top) if place.startswith(f"{top}/") or place == top else place
            )
            group = hierarchy / below.lstrip("/")
            while group.is_relative_to(hierarchy):
                yield group
                group = group.parent


def _tops() -> dict[str, str]:
    """Which group is the top one of each hierarchy, by where it is mounted (proc(5), mountinfo).

    A container may see no more than its own group and those below it, but still be told the whole
    path of its own.
    """
    lines = MOUNTS.read_text(encoding="utf-8").splitlines() if MOUNTS.exists() else []
    mounts = (line.split(" ") for line in lines)
    return {words[4]: words[3] for words in mounts if {"cgroup", "cgroup2"} & {*words[6:]}}


def _cached_bytes(group: Path) -> int:
    statistics = group / "memory.stat"
    lines = statistics.read_text(encoding="ascii").splitlines() if statistics.exists() else []
    values = dict(line.split() for line in lines)
    return int(values.get("total_inactive_file", values.get("inactive_file", 0)))


def _words(file: Path) -> list[str]:
    return file.read_text(encoding="ascii").split() if file.is_file() else []
