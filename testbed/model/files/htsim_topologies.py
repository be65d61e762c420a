"""Topologies in htsim's format: a fat tree by tiers, from below.

    Nodes 1024
    Tiers 2
    Podsize 1024
    Tier 0
    Downlink_speed_Gbps 100
    Radix_Down 32
    Radix_Up 32
    Downlink_Latency_ns 1000
    Tier 1
    Downlink_speed_Gbps 100
    Radix_Down 32
    Downlink_Latency_ns 1000

Two tiers are a fabric of one plane: leaves are T0s, spines are T1s. The latencies of links and
switches become those of NICs and switches, so that a way over one leaf, and one over a spine, take
as long as there. `Queue_Up` and `Queue_Down` are bytes from which htsim trims. Source:
`FatTreeTopologyCfg::read_cfg` in `fat_tree_topology.cpp` of uet-htsim.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from testbed.model.errors import InputError, did_you_mean
from testbed.model.file_names import name_after
from testbed.model.files.reading import Document, place, text_lines

SUFFIX = ".topo"

_WHOLE = re.compile(r"\d{1,12}", re.ASCII)
_HEADER = ("Nodes", "Tiers", "Podsize")
_OF_TIER = (
    *("Downlink_speed_Gbps", "Radix_Down", "Radix_Up", "Downlink_Latency_ns", "Switch_Latency_ns"),
    *("Oversubscribed", "Bundle", "Queue_Up", "Queue_Down"),
)
_TIER = "Tier"
_TIERS = 2
_LONGEST = 80
"""Characters of a line that a message shows."""


class _Entry(NamedTuple):
    """The value of a word, and where it is."""

    value: int
    line: int
    text: str


_Entries = dict[tuple[int | None, str], _Entry]
"""By tier, None for the header, and word."""


def read_htsim_topology(file: Path) -> Document:
    """Read a file as the data of a topology, whose keys have the lines that they are from.

    Raises:
        InputError: it cannot be read, is damaged, or is a fabric that the testbed does not have.
    """
    entries = _entries(file)

    def entry(tier: int | None, word: str, default: int | None = None) -> _Entry:
        found = entries.get((tier, word))
        if found is None and default is None:
            where = "the header" if tier is None else f"Tier {tier}"
            raise InputError.of(str(file), "", f"a line {word} in {where}")
        return found or _Entry(default or 0, 1, "")

    def require(tier: int | None, word: str, value: int, why: str) -> None:
        found = entry(tier, word, value)
        if found.value != value:
            raise InputError.of(place(file, found.line), found.text, f"{word} {value}: {why}")

    entry(None, "Tiers")
    nodes, hosts, up = entry(None, "Nodes"), entry(0, "Radix_Down"), entry(0, "Radix_Up")
    leaves = entry(1, "Radix_Down")
    port, fabric = entry(0, "Downlink_speed_Gbps"), entry(1, "Downlink_speed_Gbps")
    for counted in (nodes, hosts, up, leaves, port, fabric):
        if counted.value == 0:
            raise InputError.of(place(file, counted.line), counted.text, "1 or more")
    require(None, "Podsize", nodes.value, "two tiers are one pod")
    require(None, "Nodes", hosts.value * leaves.value, "a leaf's hosts times a spine's leaves")
    require(0, "Oversubscribed", hosts.value // up.value, "Radix_Down over Radix_Up")
    for tier in range(_TIERS):
        require(tier, "Bundle", 1, "a T0 has one link to each T1")
    low, high = entry(0, "Downlink_Latency_ns"), entry(1, "Downlink_Latency_ns")
    at_leaf, at_spine = (entry(tier, "Switch_Latency_ns", 0).value for tier in range(_TIERS))
    switch_ns = high.value + (at_leaf + at_spine) / 2
    nic_ns = 2 * low.value + at_leaf - switch_ns
    if nic_ns < 0:
        expected = f"at least {(switch_ns - at_leaf) / 2:g}, half of what a spine adds to a way"
        raise InputError.of(place(file, low.line), low.text, expected)
    found: dict[str, tuple[Any, _Entry]] = {
        "t0_per_plane": (leaves.value, leaves),
        "t1_per_plane": (up.value, up),
        "hosts_per_t0": (hosts.value, hosts),
        "port_rate": (f"{port.value} Gbit/s", port),
        "fabric_rate": (f"{fabric.value} Gbit/s", fabric),
    }
    delays = {"nic": (f"{nic_ns:.1f} ns", low), "switch": (f"{switch_ns:.1f} ns", high)}
    queues = {
        key: (f"{entries[place_].value} B", entries[place_])
        for key, place_ in {
            "t0_up": (0, "Queue_Up"),
            "t1_down": (1, "Queue_Down"),
            "last_hop": (0, "Queue_Down"),
        }.items()
        if place_ in entries
    }
    lines = {"": low.line} | {key: at.line for key, (_, at) in found.items()}
    lines |= {f"delay.{key}": at.line for key, (_, at) in delays.items()}
    lines |= {f"queue.{key}": at.line for key, (_, at) in queues.items()}
    texts = {key: at.text for key, (_, at) in found.items()}
    data = {
        "name": name_after(file, "htsim"),
        "description": f"{nodes.value} hosts, from htsim's {file.name}",
        "planes": 1,
        **{key: value for key, (value, _) in found.items()},
        "delay": {key: value for key, (value, _) in delays.items()},
        "queue": {
            key: {"trim": size, "limit": f"{4 * at.value} B"} for key, (size, at) in queues.items()
        },
    }
    return Document(file, data, lines=lines, texts=texts)


def _entries(file: Path) -> _Entries:
    """All words of a file with their values.

    Raises:
        InputError: it cannot be read, or a line is wrong.
    """
    words = {word.lower(): word for word in (*_HEADER, *_OF_TIER, _TIER)}
    entries: _Entries = {}
    tier: int | None = None
    for number, line in enumerate(text_lines(file, "a topology of htsim"), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        where, shown = place(file, number), text[:_LONGEST]
        written, *values = text.split()
        word = words.get(written.lower())
        if word is None:
            expected = f"one of {', '.join(words.values())}"
            raise InputError.of(where, shown, expected, did_you_mean(written, [*words.values()]))
        if len(values) != 1 or not _WHOLE.fullmatch(values[0]):
            raise InputError.of(where, shown, f"{word} and a whole number")
        value = int(values[0])
        if word == "Tiers" and value != _TIERS:
            expected = "Tiers 2: a path of this fabric goes over one spine (T1) and no core switch"
            remedy = "take a leaf-spine with as many hosts, such as htsim's leaf_spine_1024.topo"
            raise InputError.of(where, shown, expected, remedy)
        if word == _TIER:
            if value >= _TIERS:
                raise InputError.of(where, shown, "Tier 0 or Tier 1")
            tier = value
        known = _OF_TIER if tier is not None else _HEADER
        if word not in (*known, _TIER):
            expected = f"{word} below a line Tier" if tier is None else f"{word} above all tiers"
            raise InputError.of(where, shown, expected)
        if (tier, word) in entries:
            expected = f"one line {word} in each tier" if tier is not None else f"one line {word}"
            raise InputError.of(where, shown, expected)
        entries[tier, word] = _Entry(value, number, text)
    return entries
