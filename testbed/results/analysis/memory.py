"""Growth of the memory of a run's processes: shows leaks in long runs."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from testbed.model.summary import ProcessMemory
from testbed.model.units import NS_PER_S
from testbed.results.run_data import RunData

LEAST_SAMPLES = 3
"""Fewest samples of each quarter, one a second; with fewer, growth is not measured."""


def process_memory(data: RunData) -> tuple[ProcessMemory, ...]:
    """The resident memory of every process that lived from the second quarter to the end.

    In the first quarter buffers fill, and modules load on first use. Empty for runs that are too
    short, and for simulated ones, which have no processes.
    """
    quarter = data.run.duration_s / 4
    sampled: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for sample in data.health:
        t = (sample.t_ns - data.run.t0_ns) / NS_PER_S
        for process, resident in sample.resident_bytes.items():
            if quarter <= t < 2 * quarter:
                sampled[process][0].append(resident)
            elif 3 * quarter <= t <= data.run.duration_s:
                sampled[process][1].append(resident)
    return tuple(
        _compared(process, early, late)
        for process, (early, late) in sorted(sampled.items())
        if min(len(early), len(late)) >= LEAST_SAMPLES
    )


def _compared(process: str, early: Sequence[int], late: Sequence[int]) -> ProcessMemory:
    before, after = round(median(early)), round(median(late))
    return ProcessMemory(
        process=process, early_bytes=before, late_bytes=after, growth=after / before - 1
    )
