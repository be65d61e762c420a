"""Limits of a process that reads what a student made: whatever that is, only this process ends."""

import heapq
import math
import time
from functools import cache

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


# --------------------------------------------------------------------------------------------------
# How fast this machine is, so that limits of CPU time mean the same on every machine.


REFERENCE_S = 0.016
"""CPU time of `_work` on the machine for which limits are given: AMD EPYC, Python 3.11."""

_ROUNDS = 5
_EVENTS = 60_000


@cache
def slowness() -> float:
    """How many times as much CPU time this machine needs as the reference; at least 1.

    It is measured once, by a small job like a simulation's: a heap of events. Only CPU time counts,
    and the quickest of some rounds, so other load moves it little: 1.4 on a machine with three
    times as much to do as it has CPUs, which is 1 when it is idle.
    """
    return max(1.0, min(_work() for _ in range(_ROUNDS)) / REFERENCE_S)


def _work() -> float:
    """Do the job; returns its CPU time in seconds."""
    began = time.process_time()
    heap = [(step, step % 7) for step in range(64)]
    counts: dict[int, int] = {}
    for _ in range(_EVENTS):
        at, kind = heapq.heappop(heap)
        counts[kind] = counts.get(kind, 0) + 1
        heapq.heappush(heap, (at + 1 + kind * 3, (kind + 1) % 7))
    return time.process_time() - began
