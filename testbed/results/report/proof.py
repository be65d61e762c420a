"""The proof of a fault in words: what was read back, and what the packets did meanwhile."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from testbed.model.fabric.names import directions_of, link_of
from testbed.model.faults.in_words import in_words
from testbed.model.units import NS_PER_S
from testbed.results.report.html import number

_WHEN = {
    "injected": "when it took effect",
    "until_end": "until it healed",
    "healed": "after healing",
}
"""The parts of a proof, by their keys."""

_COUNTS = {
    "passed": "packets got through",
    "dropped": "packets dropped",
    "lost": "of them at random",
    "corrupted": "packets corrupted",
    "dropped_by_flows": "packets dropped by OpenFlow rules",
    "forwarded": "packets forwarded by Open vSwitch",
}
"""What the counters of a link direction count."""


def proof_lines(
    proof: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str], places: Sequence[str] = ()
) -> list[str]:
    """A proof as lines: `until it healed: packets dropped: 56 h0>p0_t0_0, 31 p0_t0_0>h0`.

    Args:
        proof: of a fault's record. Keys that end in `_ns` are CLOCK_MONOTONIC.
        t0_ns: the start of the run.
        moment: how a time of the run in seconds is written.
        places: the directions that the fault affected.
    """
    lines = []
    for key, value in proof.items():
        if isinstance(value, Mapping):
            what = "; ".join(_facts(value, t0_ns, moment, places))
            lines.append(f"{_WHEN.get(key, _words(key))}: {what}")
        elif ">" in key and isinstance(value, int):  # a direction, in a simulated run
            lines.append(f"{key}: {number(value)} packets dropped or corrupted")
        else:
            lines += _facts({key: value}, t0_ns, moment, places)
    return lines


def _facts(
    facts: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str], places: Sequence[str]
) -> Iterator[str]:
    for key, value in facts.items():
        if key in _COUNTS and key != "passed" and not any(_numbers(value)):
            continue
        if key == "read_back":
            yield f"the link model: {', '.join(in_words(value)) or 'no fault'}"
        elif isinstance(value, Mapping):
            yield from (f"{_words(key)} {fact}" for fact in _facts(value, t0_ns, moment, places))
        elif key.endswith("_ns") and isinstance(value, int):
            at = moment((value - t0_ns) / NS_PER_S)
            yield f"{_words(key.removesuffix('_ns'))} at {at}"
        elif key.endswith("_ns") and isinstance(value, list):
            times = [moment((ns - t0_ns) / NS_PER_S) for ns in value if ns is not None]
            yield f"{_words(key.removesuffix('_ns'))} at {_several(times)}"
        elif key in _COUNTS:
            yield _count(value, _COUNTS[key], places)
        elif key == "carrier":
            ends = "both ends" if isinstance(value, bool) else "the two ends"
            yield f"carrier {_several(value, yes='on', no='off')} at {ends}"
        else:
            yield f"{_words(key)}: {_several(value)}"


def _count(value: object, what: str, places: Sequence[str]) -> str:
    """A count of a whole fault, or of each direction if they are those of one link."""
    if not isinstance(value, list):
        return f"{_several(value)} {what}"
    one_link = bool(places) and tuple(places) == directions_of(link_of(places[0]))
    if not one_link or len(value) != len(places):
        return f"{number(sum(value))} {what}"
    counts = ", ".join(
        f"{number(count)} {place}" for count, place in zip(value, places, strict=True)
    )
    return f"{what}: {counts}"


def _several(value: object, yes: str = "yes", no: str = "no") -> str:
    """One value, or several joined by `and`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " and ".join(_several(each, yes, no) for each in value)
    if isinstance(value, bool):
        return yes if value else no
    return number(value) if isinstance(value, int) else str(value)


def _numbers(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]


def _words(key: str) -> str:
    return key.replace("_", " ")
