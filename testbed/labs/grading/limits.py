"""Limits of a process that reads what a student made: whatever that is, only this process ends."""

import resource

CPU_S = 60
MEMORY_BYTES = 4 << 30
FILE_BYTES = 256 << 20


def limit_this_process() -> None:
    """Limit CPU time, memory and the size of files, for good."""
    for what, limit in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (most, most))
