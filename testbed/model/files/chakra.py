"""Chakra execution traces (MLCommons): what each rank of a training job computes and sends.

A trace is a file for each rank, `PREFIX.0.et` and so on: messages of protobuf, each after its
length, the first with the version, then one for each node (schema `et_def.proto` of mlc-chakra
1.0.0). A node begins when those that it depends on are done. Rank n is host n of the fabric.

- Computations and accesses to memory take their `duration_micros`; those of the GPU follow one
  another, so do those of the CPU (`is_cpu_op`) and those of memory. Messages and collectives of
  the CPU are computations: the calls that launch those of the GPU. Nodes of metadata, and invalid
  ones, take no time.
- Messages: `comm_src`, `comm_dst`, `comm_tag` and `comm_size`, matched by ranks and tag.
- Collectives: `comm_type`, `comm_size` and `pg_name`, the group. Which ranks a group has is in no
  trace: it is read from a file of ASTRA-sim (`--comm-group-configuration`); no name, or 0, is all.
  The nth collective of a group is the same at all of its ranks. All-reduce, all-gather and
  reduce-scatter go around a ring, of nodes with several NICs one on each rail; broadcast, reduce
  and barrier over a binomial tree, gather and scatter to and from the first rank. `comm_size` is
  what it is in ASTRA-sim: the buffer, but of an all-gather each rank's share.
"""

import json
import re
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from glob import escape
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from testbed.model.errors import InputError, MachineError, few
from testbed.model.file_names import is_there
from testbed.model.files.goal import MAX_RANKS, require_end
from testbed.model.graph import (
    COMPUTE,
    MAX_AMOUNT,
    MAX_EDGES,
    NO_STREAM,
    RECEIVE,
    SEND,
    Collective,
    Graph,
    Operation,
    TooLargeError,
    all_to_all,
    in_order,
    ring,
    rings,
    tree,
)

MAX_FILE = 100 << 20
"""Most bytes of a rank's trace, also if it is compressed. Ours."""

MAX_NODE = 1 << 20
"""Most bytes of a node. Ours."""

MAX_GROUPS = 16 << 20
"""Most bytes of a file of groups. Ours."""

_LONGEST = 60
"""Characters of a name that a message shows."""

_LENGTH_BITS = 70
"""Most bits of the length of a message: 7 in each of 10 bytes, as in any number of protobuf."""

_NS_PER_US = 1000
_BARRIER_BYTES = 1
_ALL = ("", "0")
"""The names of the group of all ranks."""

_INVALID, _METADATA, _LOAD, _STORE, _COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = range(8)
_COMMUNICATION = (_SEND, _RECEIVE, _COLLECTIVE)
_GPU, _CPU, _MEMORY = range(3)
"""Streams of computations."""

_COLLECTIVES: Final = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter_block",
    "barrier",
)
"""By the number of a `CollectiveCommType`."""

# Fields: name, number, type and label of protobuf's descriptors.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_MESSAGE, _UINT32, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = 11, 13, 15, 16, 17, 18
_VALUES: Final = {
    3: _DOUBLE,
    5: _FLOAT,
    7: _INT32,
    9: _INT64,
    11: _UINT32,
    13: _UINT64,
    15: _SINT32,
    17: _SINT64,
    19: _FIXED32,
    21: _FIXED64,
    23: _SFIXED32,
    25: _SFIXED64,
    27: _BOOL,
    29: _STRING,
}
"""The single values of an attribute, by the number of their field."""


@cache
def messages() -> tuple[type[Any], type[Any]]:
    """The classes of GlobalMetadata and Node, with the fields that are read.

    They are described here, in a pool of their own: protobuf knows one file of a name only, and
    the user's own programs may have loaded Chakra's.

    Raises:
        MachineError: protobuf is not installed.
    """
    try:
        protos = import_module("google.protobuf.descriptor_pb2")
        pools = import_module("google.protobuf.descriptor_pool")
        factory = import_module("google.protobuf.message_factory")
    except ImportError as error:
        remedy = "pip install 'mrc-testbed[chakra]'"
        raise MachineError("protobuf, which reads Chakra traces, is missing", remedy) from error
    file = protos.FileDescriptorProto(name="et.proto", package="chakra", syntax="proto3")
    attribute = file.message_type.add(name="Attribute")
    attribute.field.add(name="name", number=1, type=_STRING, label=1)
    attribute.oneof_decl.add(name="value")
    for number, kind in _VALUES.items():
        attribute.field.add(name=f"v{number}", number=number, type=kind, label=1, oneof_index=0)
    metadata = file.message_type.add(name="Metadata")
    metadata.field.add(name="version", number=1, type=_STRING, label=1)
    metadata.field.add(name="type", number=3, type=_INT32, label=1)  # only nodes have it
    node = file.message_type.add(name="Node")
    for name, number, kind, label in (
        ("id", 1, _UINT64, 1),
        ("name", 2, _STRING, 1),
        ("type", 3, _INT32, 1),
        ("ctrl_deps", 4, _UINT64, 3),
        ("data_deps", 5, _UINT64, 3),
        ("duration_micros", 7, _UINT64, 1),
        ("attr", 10, _MESSAGE, 3),
    ):
        field = node.field.add(name=name, number=number, type=kind, label=label)
        if kind == _MESSAGE:
            field.type_name = ".chakra.Attribute"
    pool = pools.DescriptorPool()
    pool.Add(file)
    metadata_class, node_class = (
        factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in ("Metadata", "Node")
    )
    return metadata_class, node_class


Groups = Mapping[str, Mapping[int, None]]
"""The ranks of each group, in order."""


class _Part(NamedTuple):
    """A rank's part in a collective: its node, where that stands, and how it begins."""

    rank: int
    node: int
    place: str
    begin: int
    kind: int
    size: int


class _Key(NamedTuple):
    """Which collective: the group's name, and how many of the group are before it."""

    group: str
    place: int


def read_chakra(
    prefix: Path,
    groups: Path | None = None,
    place: Callable[[int], tuple[int, int]] = lambda rank: (rank, 0),
) -> Graph:
    """Read the traces of all ranks; rank n is called `h`n.

    Args:
        prefix: what the names of their files begin with, before `.0.et`.
        groups: the file of groups, if there is one.
        place: the node of a rank, and which NIC of it.

    Raises:
        InputError: a file is missing, cannot be read or is wrong, or nodes wait for one another.
        MachineError: protobuf is not installed.
    """
    files: list[Path] = []
    while len(files) < MAX_RANKS and is_there(file := Path(f"{prefix}.{len(files)}.et")):
        files.append(file)
    if not files:
        found, expected = "no such file", "the trace of rank 0; PREFIX.1.et is that of rank 1"
        raise InputError.of(f"{prefix}.0.et", found, expected, "name what is before .0.et")
    _require_all(prefix, files)
    trace = _Trace(len(files), {} if groups is None else _read_groups(groups, len(files)), place)
    for rank, file in enumerate(files):
        trace.read(rank, file)
    return trace.finished()


def _require_all(prefix: Path, files: Sequence[Path]) -> None:
    """Check that no trace lies beyond those that were found, because one before it is missing.

    Raises:
        InputError: one does.
    """
    named = re.compile(rf"{re.escape(prefix.name)}\.\d+\.et", re.ASCII)
    names = {file.name for file in prefix.parent.glob(f"{escape(prefix.name)}.*.et")}
    others = {*filter(named.fullmatch, names)} - {file.name for file in files}
    if others:
        found, expected = f"no such file, but {min(others)}", "the trace of each rank, from 0 on"
        raise InputError.of(f"{prefix}.{len(files)}.et", found, expected)


def _read_groups(file: Path, ranks: int) -> Groups:
    """The ranks of each group, in order: JSON such as {"1": [0, 1]}.

    Raises:
        InputError: it cannot be read, or says something else.
    """
    expected = f'JSON of groups and their ranks, such as {{"1": [0, 1]}}, below {ranks}'
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_GROUPS + 1)
        if len(text) > MAX_GROUPS:
            raise InputError.of(str(file), "a larger file", f"{MAX_GROUPS >> 20} MiB at most")
        data = json.loads(text, object_pairs_hook=_each_once)
    except OSError as error:
        raise InputError.of(str(file), (error.strerror or "").lower(), expected) from None
    except (ValueError, RecursionError) as error:
        raise InputError.of(str(file), str(error), expected) from None
    if not isinstance(data, dict):
        raise InputError.of(str(file), "no mapping", expected)
    for name, members in data.items():
        if (
            not isinstance(members, list)
            or not members
            or not all(type(rank) is int and 0 <= rank < ranks for rank in members)
            or len({*members}) < len(members)
        ):
            raise InputError.of(f"{file}: {_short(name)}", str(members), expected)
        if name in _ALL and len(members) < ranks:
            remedy = "give the group another name, here and in the traces"
            raise InputError.of(f"{file}: {name}", str(members), f"all {ranks} ranks", remedy)
    return {name: dict.fromkeys(members) for name, members in data.items()}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON.

    Raises:
        ValueError: a name is there twice.
    """
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the group {twice} a second time")
    return mapping


def _records(file: Path) -> Iterator[bytes]:
    """The messages of a file, without their lengths.

    Raises:
        InputError: it cannot be read, is cut short, or is too large.
    """
    expected = "a Chakra execution trace"
    try:
        if file.is_fifo():  # to open it would wait for whoever writes it
            raise InputError.of(str(file), "a pipe", expected, "save it as a file")
        with file.open("rb") as raw:
            data = raw.read(MAX_FILE + 1)
        if data[:2] == b"\x1f\x8b":
            unpacking = zlib.decompressobj(wbits=31)  # one gzip member: gzip takes any number
            data = unpacking.decompress(data, MAX_FILE + 1)
            if len(data) <= MAX_FILE and (not unpacking.eof or unpacking.unused_data):
                more = "more bytes after them" if unpacking.eof else "no end of them"
                raise InputError.of(str(file), f"compressed data and {more}", expected)
    except OSError as error:
        raise InputError.of(str(file), (error.strerror or str(error)).lower(), expected) from None
    except zlib.error as error:
        raise InputError.of(str(file), str(error), expected) from None
    if len(data) > MAX_FILE:
        raise InputError.of(str(file), "a larger file", f"{MAX_FILE >> 20} MiB at most")
    at = number = 0
    while at < len(data):
        length, shift, goes_on = 0, 0, 1
        while goes_on and shift < _LENGTH_BITS and at < len(data):
            length |= (data[at] & 0x7F) << shift
            goes_on = data[at] & 0x80
            at += 1
            shift += 7
        if goes_on or length > MAX_NODE or at + length > len(data):
            where, found = f"{file}: message {number}", f"one of {length:,} bytes"
            expected = (
                f"one of {min(MAX_NODE, len(data) - at):,} at most: the file is cut or no trace"
            )
            raise InputError.of(where, found, expected)
        yield bytes(data[at : at + length])
        at += length
        number += 1


class _Trace:
    """The traces of all ranks, as far as they have been read."""

    def __init__(self, ranks: int, groups: Groups, place: Callable[[int], tuple[int, int]]) -> None:
        self._metadata, self._node = messages()
        self._ranks, self._groups, self._place = ranks, groups, place
        self._graph = Graph({SEND: "send", RECEIVE: "recv", COMPUTE: "compute"})
        self._graph.name_hosts(f"h{rank}" for rank in range(ranks))
        self._places: dict[int, str] = {}
        self._done: list[dict[int, int]] = []  # by rank and node: the operation that ends it
        self._waiting = array("q")  # rank, node, and the operation that begins it
        self._needs: list[Sequence[int]] = []
        self._parts: dict[_Key, list[_Part]] = defaultdict(list)
        self._numbers: dict[_Key, int] = {}
        self._dependences = 0

    def read(self, rank: int, file: Path) -> None:
        """Take the trace of a rank.

        Raises:
            InputError: it is wrong.
        """
        records = _records(file)
        self._done.append({})
        counts: dict[str, int] = defaultdict(int)
        errors = import_module("google.protobuf.message")
        try:
            if self._metadata.FromString(next(records, b"")).type:
                found, expected = "a node", "the version of the trace before all nodes"
                raise InputError.of(f"{file}: message 0", found, expected)
            for record in records:
                node = self._node.FromString(record)
                self._add(rank, node, f"{file}: node {node.id} ({_short(node.name)})", counts)
        except errors.DecodeError as error:
            where, expected = f"{file}: after {len(self._done[rank])} nodes", "a Chakra trace"
            raise InputError.of(where, str(error)[:80], expected) from None
        if not self._done[rank]:
            raise InputError.of(str(file), "no node", "a Chakra execution trace")

    def _add(self, rank: int, node: Any, place: str, counts: dict[str, int]) -> None:
        if node.id in self._done[rank]:
            raise InputError.of(place, "this id a second time", "each id of a rank once")
        values = {each.name: _value(each) for each in node.attr}
        if node.type in _COMMUNICATION and values.get("is_cpu_op"):
            node.type = _COMPUTE  # the call, which launches another node's kernel
        try:
            if node.type == _COLLECTIVE:
                number = self._begin_collective(rank, node, values, place, counts)
            else:
                number = self._graph.add(self._operation(rank, node, values, place))
        except TooLargeError as error:
            raise InputError.of(place, "one more", str(error)) from None
        self._done[rank][node.id] = number
        self._places[number] = place
        self._needs.append(tuple(dict.fromkeys((*node.ctrl_deps, *node.data_deps))))
        self._dependences += len(self._needs[-1])
        self._waiting.extend((rank, number))
        if self._dependences > MAX_EDGES:
            raise InputError.of(place, "more dependences", f"{MAX_EDGES:,} in all at most")

    def _begin_collective(
        self, rank: int, node: Any, values: Mapping[str, Any], place: str, counts: dict[str, int]
    ) -> int:
        """Note a rank's part in a collective; returns the operation that begins it."""
        group = str(values.get("pg_name") or "")
        group = "" if group in _ALL else group
        if group and rank not in self._groups.get(group, {rank: None}):
            raise InputError.of(place, f"the group {_short(group)}", f"a group of rank {rank}")
        if group and group not in self._groups:
            known = few([*map(_short, self._groups)]) or "there is none"
            expected = f"a group of the file of groups ({known})"
            remedy = 'groups: FILE, with JSON such as {"1": [0, 1]}'
            raise InputError.of(place, f"the group {_short(group)}", expected, remedy)
        kind = _whole(values, "comm_type", place, len(_COLLECTIVES) - 1)
        size = 0
        if _COLLECTIVES[kind] != "barrier":
            size = _whole(values, "comm_size", place)
        key = _Key(group, counts[group])
        parts = self._parts[key]
        counts[group] += 1
        if not parts:
            members = self._groups.get(group, range(self._ranks))
            first = Collective(_COLLECTIVES[kind], size, len(members), len(self._graph))
            self._graph.collectives.append(first)
            self._numbers[key] = len(self._graph.collectives) - 1
        number = self._graph.add(self._edge_of(rank, self._numbers[key], ends=False))
        parts.append(_Part(rank, node.id, place, number, kind, size))
        return number

    def _operation(self, rank: int, node: Any, values: Mapping[str, Any], place: str) -> Operation:
        host = f"h{rank}"
        if node.type in (_SEND, _RECEIVE):
            sends = node.type == _SEND
            own, other = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
            if own in values and _whole(values, own, place) != rank:
                raise InputError.of(place, f"{own} {values[own]}", f"that of its rank, {rank}")
            peer = _whole(values, other, place, self._ranks - 1)
            if peer == rank:
                raise InputError.of(place, f"{other} {peer}", "another rank")
            tag = _whole({"comm_tag": 0, **values}, "comm_tag", place)
            size = max(_whole(values, "comm_size", place), 1)
            return Operation(SEND if sends else RECEIVE, host, f"h{peer}", size, tag=tag)
        if node.type in (_COMPUTE, _LOAD, _STORE):
            duration_ns = node.duration_micros * _NS_PER_US
            if duration_ns > MAX_AMOUNT:
                expected = f"{MAX_AMOUNT // _NS_PER_US:,} at most"
                raise InputError.of(place, f"duration_micros {node.duration_micros}", expected)
            stream = _CPU if values.get("is_cpu_op") else _GPU
            stream = stream if node.type == _COMPUTE else _MEMORY
            return Operation(COMPUTE, host, "", duration_ns, stream=stream)
        if node.type in (_INVALID, _METADATA):
            return Operation(COMPUTE, host, "", 0, stream=NO_STREAM, counted=False)
        expected = f"a type of {_INVALID} to {_COLLECTIVE}, those of mlc-chakra 1.0.0"
        raise InputError.of(place, f"the type {node.type}", expected)

    def finished(self) -> Graph:
        """The operations of all ranks, when all files are read.

        Raises:
            InputError: ranks disagree about a collective, a dependence leads nowhere, or nodes
                wait for one another for ever.
        """
        for key, parts in self._parts.items():
            try:
                self._add_collective(key, parts)
            except TooLargeError as error:
                found = f"{_COLLECTIVES[parts[0].kind]} of {len(parts):,} ranks"
                raise InputError.of(parts[0].place, found, str(error)) from None
        ends = iter(self._waiting)
        for rank, number, needs in zip(ends, ends, self._needs, strict=True):
            try:
                for node in needs:
                    self._graph.after(number, self._done[rank][node])
            except KeyError as error:
                found, expected = f"a dependence on {error}", "nodes of the same file"
                raise InputError.of(self._places[number], found, expected) from None
            except TooLargeError as error:
                raise InputError.of(self._places[number], "one more", str(error)) from None
        require_end(self._graph, lambda number: self._places.get(number, "a collective"))
        return self._graph

    @staticmethod
    def _edge_of(rank: int, collective: int, *, ends: bool) -> Operation:
        """The beginning or the end of a rank's part in a collective."""
        shared = (COMPUTE, f"h{rank}", "", 0)
        return Operation(*shared, stream=NO_STREAM, counted=ends, part=collective)

    def _add_collective(self, key: _Key, parts: list[_Part]) -> None:
        members = self._groups.get(key.group, range(self._ranks))
        by_rank = {part.rank: part for part in parts}
        first = parts[0]
        name = _COLLECTIVES[first.kind]
        for part in parts:
            if (part.kind, part.size) != (first.kind, first.size):
                found = f"{_COLLECTIVES[part.kind]} of {part.size} bytes"
                expected = f"{name} of {first.size}, as rank {first.rank} has at this place"
                raise InputError.of(part.place, found, expected)
        missing = [rank for rank in members if rank not in by_rank]
        if missing:
            expected = f"a collective of all {len(members)} ranks of its group"
            found = f"{name} without rank {missing[0]}"
            if missing[1:]:
                found += f" and {len(missing) - 1} more"
            raise InputError.of(first.place, found, expected)
        in_group = [by_rank[rank] for rank in members]
        ends = [part.begin for part in in_group]
        if len(ends) > 1 and name in _AROUND:
            ends = self._around([self._place(rank) for rank in members], ends, name, first.size)
        elif len(ends) > 1:
            ends = _SHAPES[name](self._graph, ends, first.size)
        for part, before in zip(in_group, ends, strict=True):
            end = self._graph.add(self._edge_of(part.rank, self._numbers[key], ends=True))
            self._graph.after(end, before)
            self._done[part.rank][part.node] = end

    def _around(
        self, places: Sequence[tuple[int, int]], begins: Sequence[int], name: str, size: int
    ) -> list[int]:
        """A ring of all, or one on each rail where all nodes take part with the same NICs."""
        rounds, shared = _AROUND[name]
        messages, parts = rounds * (len(begins) - 1), len(begins) if shared else 1
        nodes: dict[int, dict[int, int]] = defaultdict(dict)
        for (node, nic), begin in sorted(zip(places, begins, strict=True), key=lambda e: e[0][1]):
            nodes[node][nic] = begin
        rails = {tuple(nics) for nics in nodes.values()}
        by_node = [[*nics.values()] for nics in nodes.values()]
        if len(rails) > 1 or min(len(nodes), len(by_node[0])) == 1:
            return ring(self._graph, begins, _share(size, parts), messages)
        ends = rings(self._graph, by_node, _share(size, parts * len(by_node[0])), messages)
        of_begin = dict(zip(chain(*by_node), chain(*ends), strict=True))
        return [of_begin[begin] for begin in begins]


def _short(name: str) -> str:
    """As much of a name as a message shows, in one line."""
    return " ".join(name[:_LONGEST].split())


def _value(attribute: Any) -> Any:
    chosen = attribute.WhichOneof("value")
    return None if chosen is None else getattr(attribute, chosen)


def _whole(values: Mapping[str, Any], key: str, place: str, most: int = MAX_AMOUNT) -> int:
    """A number of an attribute.

    Raises:
        InputError: it is missing, or is none from 0 to `most`.
    """
    value = values.get(key)
    if type(value) is not int or not 0 <= value <= most:
        found = f"no {key}" if value is None else f"{key} {_short(str(value))}"
        raise InputError.of(place, found, f"{key}, a number from 0 to {most:,}")
    return value


Shape = Callable[[Graph, Sequence[int], int], list[int]]


def _share(size: int, hosts: int) -> int:
    return max(-(-size // hosts), 1)


def _down(graph: Graph, begins: Sequence[int], size: int) -> list[int]:
    return in_order(graph, begins, max(size, 1), tree(len(begins)))


def _up(graph: Graph, begins: Sequence[int], size: int) -> list[int]:
    pairs = [(to, source) for source, to in reversed(tree(len(begins)))]
    return in_order(graph, begins, max(size, 1), pairs)


def _star(*, to_first: bool) -> Shape:
    def shape(graph: Graph, begins: Sequence[int], size: int) -> list[int]:
        others = range(1, len(begins))
        pairs = [(other, 0) if to_first else (0, other) for other in others]
        return in_order(graph, begins, max(size, 1), pairs)

    return shape


_AROUND: Final = {
    "all_reduce": (2, True),
    "all_gather": (1, False),
    "reduce_scatter": (1, True),
    "reduce_scatter_block": (1, True),
}
"""How many times those of a ring go around it, and whether a message is a share of the size."""

_SHAPES: Final[dict[str, Shape]] = {
    "all_to_all": lambda graph, begins, size: all_to_all(graph, begins, _share(size, len(begins))),
    "broadcast": _down,
    "reduce": _up,
    "gather": _star(to_first=True),
    "scatter": _star(to_first=False),
    "barrier": lambda graph, begins, _: _down(
        graph, _up(graph, begins, _BARRIER_BYTES), _BARRIER_BYTES
    ),
}
