"""The proof of a fault in words: what was read back, and what the packets did meanwhile."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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


_WAYS = ("upwards", "downwards")
"""The directions of a link, in the order in which the record of a fault has them."""


def proof_lines(proof: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str]) -> list[str]:
    """A proof as lines: `until it healed: packets dropped: 56 upwards, 31 downwards`.

    Args:
        proof: of a fault's record. Keys that end in `_ns` are CLOCK_MONOTONIC.
        t0_ns: the start of the run.
        moment: how a time of the run in seconds is written.
    """
    lines = []
    for key, value in proof.items():
        if isinstance(value, Mapping):
            what = "; ".join(_facts(value, t0_ns, moment))
            lines.append(f"{_WHEN.get(key, _words(key))}: {what}")
        elif ">" in key and isinstance(value, int):  # a direction, in a simulated run
            lines.append(f"{key}: {number(value)} packets dropped or corrupted")
        else:
            lines += _facts({key: value}, t0_ns, moment)
    return lines


def _facts(facts: Mapping[str, Any], t0_ns: int, moment: Callable[[float], str]) -> Iterator[str]:
    for key, value in facts.items():
        if key in _COUNTS and key != "passed" and not any(_numbers(value)):
            continue
        if value == {}:
            yield "no fault in the link model" if key == "read_back" else f"{_words(key)}: nothing"
        elif isinstance(value, Mapping):
            yield from (f"{_words(key)} {fact}" for fact in _facts(value, t0_ns, moment))
        elif key.endswith("_ns") and isinstance(value, int):
            at = moment((value - t0_ns) / NS_PER_S)
            yield f"{_words(key.removesuffix('_ns'))} at {at}"
        elif key.endswith("_ns") and isinstance(value, list):
            times = [moment((ns - t0_ns) / NS_PER_S) for ns in value if ns is not None]
            yield f"{_words(key.removesuffix('_ns'))} at {_several(times)}"
        elif key in _COUNTS:
            yield _count(value, _COUNTS[key])
        elif key == "carrier":
            ends = "both ends" if isinstance(value, bool) else "the two ends"
            yield f"carrier {_several(value, yes='on', no='off')} at {ends}"
        else:
            yield f"{_words(key)}: {_several(value)}"


def _count(value: object, what: str) -> str:
    """A count of a whole fault, or of a link's two directions."""
    if not isinstance(value, list):
        return f"{_several(value)} {what}"
    ways = zip(value, _WAYS, strict=True) if len(value) == len(_WAYS) else ()
    counts = ", ".join(f"{number(count)} {way}" for count, way in ways)
    return f"{what}: {counts or _several(value)}"


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
    return "the link model" if key == "read_back" else key.replace("_", " ")
