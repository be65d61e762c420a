"""The base RTT of a run, measured on the idle fabric before anything is sent on it."""

from collections.abc import Callable, Sequence
from statistics import median

SAMPLES = 7
"""The most packets that are measured, one after the other."""

TOLERANCE = 0.05
"""Three samples that differ by no more than this share of a round trip are enough: as late event
loops may be in a run that is trusted. On a machine that is never late they differ by 4%: loops wake
up 40 times in a round trip, and the first packet finds the CPU's caches cold."""


def measure(sample_ns: Callable[[], int]) -> int:
    """Take samples one after the other; return the base RTT in ns.

    It stops at the first three samples that agree, and returns the middle one of them; if no three
    agree, it returns the median of all.

    Args:
        sample_ns: sends a single packet and returns its round trip in ns.
    """
    samples: list[int] = []
    while len(samples) < SAMPLES:
        samples.append(sample_ns())
        rtt_ns = agreed(samples)
        if rtt_ns is not None:
            return rtt_ns
    return round(median(samples))


def agreed(samples: Sequence[int]) -> int | None:
    """The middle one of the lowest three samples that are alike; None if no three are."""
    ordered = sorted(samples)
    for low, middle, high in zip(ordered, ordered[1:], ordered[2:], strict=False):
        if high <= low * (1 + TOLERANCE):
            return middle
    return None
