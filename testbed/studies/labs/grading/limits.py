"""Limits of a process that reads what a student made: whatever that is, only this process ends."""

import math

CPU_S = 60
"""CPU time for the simulations of all runs of a submission, on the machine of `speed.py`."""

MEMORY_BYTES = 4 << 30
FEW_THREADS = {"POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""The environment of such a process: memory is counted by addresses, of which each thread takes
many, and by default there is one for each CPU."""

FILE_BYTES = 256 << 20


def limit_this_process(slowness: float) -> None:
    """Limit CPU time, memory and the size of files, for good.

    Args:
        slowness: how many times more CPU time this machine needs.
    """
    import resource  # noqa: PLC0415 - not on every system

    for what, limit in (
        (resource.RLIMIT_CPU, math.ceil(CPU_S * slowness)),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (most, most))
