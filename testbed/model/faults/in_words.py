"""A fault as the link model's memory has it, in words: `loses 5%`, `drops everything`."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.model.faults.impairment import PPM
from testbed.model.units import show_duration, show_rate, show_share

_FIELDS: dict[str, Callable[[int], str]] = {
    "blackhole": lambda _: "drops everything",
    "loss_ppm": lambda ppm: f"loses {show_share(ppm / PPM)}",
    "corrupt_ppm": lambda ppm: f"corrupts {show_share(ppm / PPM)}",
    "path_loss_ppm": lambda ppm: f"loses {show_share(ppm / PPM)} of one path's packets",
    "delay_ns": lambda ns: f"adds {show_duration(ns)}",
    "rate_bps": lambda bps: f"sends {show_rate(bps)}",
}
"""The fields that say what is wrong with a direction; others qualify these."""


def in_words(read_back: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """What is wrong with the directions of a fault, from the distinct values of each field."""
    for field, values in read_back.items():
        if field in _FIELDS:
            yield from map(_FIELDS[field], filter(None, values))
