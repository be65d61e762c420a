"""The workloads that a scenario can choose, each with its parameters.

A workload is a class here, which declares its keys and its pairs of hosts, and a program in
`workloads/`, which decides what each host posts when. Each workload has

- `problems`: what makes it impossible on a fabric, such as a host that does not exist;
- `directions`: the pairs (sender, receiver), in order, each once;
- `direction_count`: their number, at most, without listing them;
- `longest_bytes`: the size of the longest message, given the number of QPs of each direction;
- `depth`: the most messages that a flow has outstanding;
- `operation`: what its operations are called, such as `allreduce`; None if it has none, because
  each flow sends without a pause until the run ends.
"""

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import permutations
from math import ceil
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from testbed.model.errors import Problem, RefusedValueError
from testbed.model.fabric.names import unknown_host
from testbed.model.fabric.topology import Topology
from testbed.model.graph import ARRIVED, DONE, MAX_AMOUNT, SEND, TRIGGER, Graph, Operation
from testbed.model.part import ByKind, Part
from testbed.model.units import SIZE_PATTERN, RealTime, RunTime, Size, parse_size, show_size

MAX_MESSAGE = parse_size("128 MiB")
"""Longest message. RDMA allows 2 GiB, but no such message would complete in a run."""


def _message_size(size: int) -> int:
    if not 1 <= size <= MAX_MESSAGE:
        raise ValueError(f"a size from 1 B to {show_size(MAX_MESSAGE)}")
    return size


MessageSize = Annotated[Size, AfterValidator(_message_size), Field(description="size of one WRITE")]
MAX_DEPTH = 64
"""Most messages that a flow has outstanding. Ours."""

Depth = Annotated[
    int, Field(ge=1, le=MAX_DEPTH, strict=True, description="WRITEs outstanding per flow")
]
Members = Annotated[
    tuple[str, ...],
    Field(min_length=2, description="the hosts that take part, in order; default: all"),
]
BufferSize = Annotated[
    Size,
    AfterValidator(_message_size),
    Field(description="of each host's buffer, as in nccl-tests"),
]
Slices = Annotated[
    int, Field(ge=1, le=16, strict=True, description="slices of a chunk, sent one after another")
]

PIECE = parse_size("1 MiB")
"""Longest message of a transfer; longer transfers are cut, to limit memory. Ours."""

_FEWEST_MEMBERS = 2

_ONE_MIB = parse_size("1 MiB")
_DEFAULT_DEPTH = 4


class BackToBack(Part):
    """A workload of WRITEs of one size without a pause."""

    operation: ClassVar[None] = None

    kind: str
    message_size: MessageSize = _ONE_MIB
    depth: Depth = _DEFAULT_DEPTH

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """The size of all messages."""
        return self.message_size


class WriteBw(BackToBack):
    """WRITEs back to back between pairs of hosts, as perftest's `ib_write_bw`."""

    kind: Literal["write_bw"] = "write_bw"
    pairs: tuple[tuple[str, str], ...] = Field(
        min_length=1, description="pairs of hosts, such as [[h0, h4], [h1, h5]]"
    )
    bidirectional: bool = Field(
        default=True, strict=True, description="whether both hosts of a pair write"
    )

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Pairs of hosts that do not exist, of one host, or a second time."""
        seen: dict[tuple[str, str], str] = {}
        for i, pair in enumerate(self.pairs):
            where = f"workload.pairs[{i}]"
            for end, name in enumerate(pair):
                yield from _unknown_host(topology, f"{where}[{end}]", name)
            if pair[0] == pair[1]:
                yield Problem(where, f"{pair[0]} with itself", "two different hosts")
                continue
            key = (min(pair), max(pair)) if self.bidirectional else pair
            if key in seen:
                found = f"{pair[0]} and {pair[1]} a second time"
                expected = f"each pair once (the first is {seen[key]})"
                yield Problem(where, found, expected, "remove one of the two")
            seen.setdefault(key, where)

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """Each pair, then if bidirectional each pair reversed."""
        back = [(b, a) for a, b in self.pairs] if self.bidirectional else []
        return (*self.pairs, *back)

    def direction_count(self, _topology: Topology) -> int:
        """One for each pair, or two."""
        return len(self.pairs) * (2 if self.bidirectional else 1)


class Permutation(BackToBack):
    """Each host writes to one other host, back to back; each host is written to by one other."""

    kind: Literal["permutation"] = "permutation"
    hosts: Members | None = None
    shift: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="distance to the receiver in the list of hosts; default: half of the list",
    )

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Hosts that do not exist, a second time or too few, or a shift beyond their number."""
        yield from _member_problems(topology, self.hosts)
        count = member_count(self.hosts, topology)
        if count >= _FEWEST_MEMBERS and (self.shift or 1) >= count:
            expected = f"1 to {count - 1}, as {count} hosts take part"
            yield Problem("workload.shift", str(self.shift), expected)

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """From each host to the one `shift` places further."""
        hosts = members(self.hosts, topology)
        shift = len(hosts) // 2 if self.shift is None else self.shift
        return tuple(zip(hosts, (*hosts[shift:], *hosts[:shift]), strict=True))

    def direction_count(self, topology: Topology) -> int:
        """One for each host."""
        return member_count(self.hosts, topology)


class Incast(BackToBack):
    """Many hosts write to one, back to back; optionally a victim flow runs beside them."""

    kind: Literal["incast"] = "incast"
    senders: tuple[str, ...] = Field(min_length=1, description="the hosts that write to target")
    target: str = Field(description="the host that the senders write to")
    victim: tuple[str, str] | None = Field(
        default=None, description="a flow beside it, such as [h7, h1]"
    )

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Hosts that do not exist or a second time, or flows that are not apart."""
        yield from _named_once(topology, "workload.senders", self.senders)
        unknown = [*_unknown_host(topology, "workload.target", self.target)]
        yield from unknown
        if not unknown and self.target in self.senders:
            expected = "a host that is not one of the senders"
            yield Problem("workload.target", self.target, expected)
        if self.victim is not None:
            yield from _named_once(topology, "workload.victim", self.victim)
            src, dst = self.victim
            if src in self.senders and dst == self.target:
                expected = "a flow that is not part of the incast"
                yield Problem("workload.victim", f"{src} to {dst}", expected)

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """From each sender to the target; the victim last."""
        victim = [self.victim] if self.victim is not None else []
        return (*((sender, self.target) for sender in self.senders), *victim)

    def direction_count(self, _topology: Topology) -> int:
        """One for each sender, and the victim."""
        return len(self.senders) + (self.victim is not None)


class InStep(Part):
    """A collective: hosts that have a buffer each and wait for one another, in a ring.

    Of nodes with several NICs each NIC is a rank, and the ranks of a node are neighbours in the
    ring. What they send each other takes no link of the fabric and no time. There is a ring for
    each rail, with its share of the buffer: it enters and leaves every node by the NIC of its rail.
    So NCCL does it (NCCL_CROSS_NIC; `ncclTopoSearchRecGpu` in its src/graph/search.cc).
    """

    kind: str
    hosts: Members | None = None
    size: BufferSize = _ONE_MIB

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Hosts that do not exist, a second time or too few, or nodes with different NICs."""
        problems = [*_member_problems(topology, self.hosts)]
        yield from problems or _node_problems(topology, self.hosts)

    def rails(self, topology: Topology) -> tuple[tuple[str, ...], ...]:
        """The hosts that send, rail by rail: one NIC of each node, in the order of the ring."""
        names = members(self.hosts, topology)
        if topology.nics_per_node == 1:
            return (names,)
        nodes = _by_node(topology, names)
        nics = sorted(next(iter(nodes.values())))
        return tuple(tuple(has[nic] for has in nodes.values() if nic in has) for nic in nics)

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """Around the ring of each rail."""
        return tuple(
            pair
            for hosts in self.rails(topology)
            for pair in zip(hosts, (*hosts[1:], hosts[0]), strict=True)
        )

    @property
    def operation(self) -> str:
        return self.kind

    def direction_count(self, topology: Topology) -> int:
        """One for each host."""
        return member_count(self.hosts, topology)

    def longest_bytes(self, topology: Topology, lanes: int) -> int:
        """One message: a part of the buffer, divided among the lanes; all are alike."""
        return ceil(self.size / (self.parts(topology) * lanes))

    def sent_bytes(self, topology: Topology, lanes: int) -> int:
        """A host's buffer as it is sent: `size`, rounded up to whole messages."""
        return self.longest_bytes(topology, lanes) * self.parts(topology) * lanes

    def outgoing_bytes(self, topology: Topology, lanes: int) -> int:
        """What a host sends into the fabric in one operation."""
        return self.longest_bytes(topology, lanes) * self.messages(topology) * lanes

    def parts(self, _topology: Topology) -> int:
        """The number of parts in which a host sends its buffer."""
        return 1

    def messages(self, _topology: Topology) -> int:
        """The number of messages that a host sends on each of its lanes in one operation."""
        return 1

    @property
    def depth(self) -> int:
        """One: a host waits for each message."""
        return 1


class SendRecv(InStep):
    """Each host sends its buffer to the next and receives another's, again and again (NCCL).

    Of nodes with several NICs only the last rank has its next one in another node: the first rank
    there. NCCL sends on the rail of the receiver (PXN, NCCL_P2P_PXN_LEVEL).
    """

    kind: Literal["sendrecv"] = "sendrecv"

    def rails(self, topology: Topology) -> tuple[tuple[str, ...], ...]:
        """The first one only."""
        return super().rails(topology)[:1]


class _Reducing(InStep):
    """A workload with a ring all-reduce, whose chunks are sent around the ring in slices."""

    slices: Slices = 2

    @property
    def depth(self) -> int:
        """Two for each slice: a slice may follow before the previous one is acknowledged."""
        return 2 * self.slices

    def parts(self, topology: Topology) -> int:
        """The slices of all chunks of all rails; a ring has as many chunks as there are hosts."""
        hosts = member_count(self.hosts, topology)
        return hosts * rail_count(self.hosts, topology) * self.slices

    def messages(self, topology: Topology) -> int:
        """The slices of all chunks, twice around the ring less one hop each time."""
        return 2 * (member_count(self.hosts, topology) - 1) * self.slices


class AllReduce(_Reducing):
    """Ring all-reduce, again and again: reduce-scatter, then all-gather, around the ring."""

    kind: Literal["allreduce"] = "allreduce"


class AllToAll(InStep):
    """Each host sends a part of its buffer to each other host, again and again.

    Of nodes with several NICs a part goes to the NIC of the receiver's rail within the sender's
    node, and from there to the receiver, in one message with those of the other ranks of the node
    (PXN, NCCL 2.12).
    """

    kind: Literal["alltoall"] = "alltoall"

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """All pairs of a rail; each host begins with its successor, so all with different ones."""
        return tuple(
            (host, hosts[(i + step) % len(hosts)])
            for hosts in self.rails(topology)
            for i, host in enumerate(hosts)
            for step in range(1, len(hosts))
        )

    def direction_count(self, topology: Topology) -> int:
        """One for each pair of hosts of a rail, each way."""
        return member_count(self.hosts, topology) * self.messages(topology)

    def parts(self, topology: Topology) -> int:
        """One for each node."""
        return member_count(self.hosts, topology) // rail_count(self.hosts, topology)

    def messages(self, topology: Topology) -> int:
        """One to each other node."""
        return self.parts(topology) - 1


class Training(_Reducing):
    """Synchronous training steps: compute, all-reduce the gradients, wait for all hosts."""

    kind: Literal["training"] = "training"
    compute: RunTime = Field(
        ge=0, description="time at the start of each step in which nothing is sent"
    )

    @property
    def operation(self) -> str:
        """A step."""
        return "step"

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """Around the rings, and for the barrier to the first host of each rail and back."""
        return tuple(dict.fromkeys((*super().directions(topology), *self._barrier(topology))))

    def direction_count(self, topology: Topology) -> int:
        """Three for each host: the ring's, and those of the barrier."""
        return 3 * member_count(self.hosts, topology)

    def signals(self, topology: Topology) -> frozenset[tuple[str, str]]:
        """The directions that carry the barrier's signals only, and no data."""
        return frozenset(self._barrier(topology)) - {*super().directions(topology)}

    def _barrier(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        return tuple(
            pair
            for first, *others in self.rails(topology)
            for other in others
            for pair in ((other, first), (first, other))
        )


MAX_TRANSFER = MAX_AMOUNT
"""Most bytes of one transfer."""

MAX_TRANSFERS = 200_000
"""Most transfers of a connection matrix. Ours: each takes about a kilobyte of memory."""


def _transfer_size(value: object) -> int:
    """A size in bytes, as a number or as text with a unit."""
    expected = f"a number of bytes, or one with a unit such as 2 MB, from 0 to {MAX_TRANSFER}"
    if isinstance(value, bool) or not isinstance(value, int | str):
        whole = isinstance(value, float) and value.is_integer()
        raise RefusedValueError(expected, remedy=f"write {value:.0f}" if whole else "")
    if isinstance(value, str) and value.isdecimal():
        remedy = f"add the unit: {value} B or leave out the quotes: {value}"
        raise RefusedValueError("a number with a unit, or one of bytes", remedy=remedy)
    size = parse_size(value) if isinstance(value, str) else value
    if not 0 <= size <= MAX_TRANSFER:
        raise RefusedValueError(expected)
    return size


TriggerNumber = Annotated[int, Field(ge=1, lt=1 << 32, strict=True)]


class Transfer(Part):
    """One transfer of a connection matrix."""

    src: str = Field(description="the sending host")
    dst: str = Field(description="the receiving host")
    start: RealTime = Field(default=0, ge=0, description="its start")
    size: Annotated[
        int,
        BeforeValidator(_transfer_size),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": MAX_TRANSFER},
                    {"type": "string", "pattern": SIZE_PATTERN},
                ]
            }
        ),
        Field(description="size in bytes, or with a unit; 0: it has no end"),
    ]
    trigger: TriggerNumber | None = Field(
        default=None, description="the trigger that begins it, in place of a start"
    )
    send_done_trigger: TriggerNumber | None = Field(
        default=None, description="the trigger that counts it when all of it is acknowledged"
    )
    recv_done_trigger: TriggerNumber | None = Field(
        default=None, description="the trigger that counts it when all of it has arrived"
    )

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if self.trigger is not None and self.start:
            raise RefusedValueError("a start or a trigger, not both", key="trigger")
        return self

    def start_ns(self, topology: Topology) -> int:
        """When it begins, in emulated ns from the start of the run."""
        return round(self.start * topology.dilation)

    @property
    def activates(self) -> dict[int, int]:
        """The events of it that triggers count, with the number of each one's trigger."""
        ends = ((DONE, self.send_done_trigger), (ARRIVED, self.recv_done_trigger))
        return {event: number for event, number in ends if number is not None}


class Trigger(Part):
    """What begins transfers when others are done, as htsim's triggers."""

    id: TriggerNumber = Field(description="its number")
    kind: Literal["oneshot", "multishot", "barrier"] = Field(
        description="oneshot: the first transfer that is done begins all; multishot: each begins "
        "the next one; barrier: the last of `count` begins all"
    )
    count: int = Field(default=0, ge=0, lt=1 << 32, strict=True, description="of a barrier")

    def needed(self, place: int) -> int:
        """How many transfers have to be done for the one at a place among those that it begins."""
        return {"oneshot": 1, "multishot": place + 1, "barrier": max(self.count, 1)}[self.kind]


class Graphed(Part):
    """A workload whose hosts follow a graph of operations, once."""

    operation: ClassVar[str]
    depth: ClassVar[int] = _DEFAULT_DEPTH
    """The number of pieces of a message longer than `PIECE` that are outstanding."""

    kind: str

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """What its hosts do."""

    @property
    def unit_ns(self) -> float:
        """How long a computation of 1 takes, in real ns."""
        return 1.0

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """In order of first mention."""
        return self.pairs

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Who sends to whom, each pair once."""
        return self.graph.pairs()

    def direction_count(self, _topology: Topology) -> int:
        """One for each pair that the graph names."""
        return len(self.pairs)

    def signals(self, _topology: Topology) -> frozenset[tuple[str, str]]:
        """The directions that carry only signals."""
        return frozenset(self.pairs) - {*self.graph.pairs(counted=True)}

    @cached_property
    def planned(self) -> dict[str, list[int]]:
        """The bytes of each operation that ends, by what its kind is called."""
        return self.graph.planned()

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """A piece of the longest message; one without end is the longest of all."""
        return min(self.graph.longest_bytes or PIECE, PIECE)


class Connections(Graphed):
    """The transfers of a connection matrix, in the format of htsim."""

    operation: ClassVar[str] = "transfer"

    kind: Literal["connections"] = "connections"
    matrix: tuple[Transfer, ...] = Field(
        min_length=1,
        max_length=MAX_TRANSFERS,
        description="file of a connection matrix, or its transfers",
    )
    triggers: tuple[Trigger, ...] = Field(
        default=(),
        max_length=MAX_TRANSFERS,
        description="the triggers of these transfers; a file has its own",
    )

    @cached_property
    def graph(self) -> Graph:
        """Its transfers, numbered as they are listed, then triggers and signals."""
        graph = Graph({SEND: self.operation})
        for row in self.matrix:
            graph.add(Operation(SEND, row.src, row.dst, row.size, row.start))
        counted, begun = self._triggered
        for trigger in self.triggers:
            events, targets = counted.get(trigger.id, []), begun.get(trigger.id, [])
            if not targets:
                continue
            if len(events) == trigger.needed(0) == 1 and trigger.kind != "multishot":
                for target in targets:
                    graph.after(target, *events[0])
                continue
            home = self.matrix[targets[0]].src
            number = graph.add(Operation(TRIGGER, home, "", 0, counted=False))
            for event in events:
                graph.after(number, *event)
            for place, target in enumerate(targets):
                graph.after(target, number, trigger.needed(place))
        return graph

    @property
    def _triggered(self) -> tuple[dict[int, list[tuple[int, int]]], dict[int, list[int]]]:
        """By trigger: the events that it counts, and the transfers that it begins."""
        counted: dict[int, list[tuple[int, int]]] = defaultdict(list)
        begun: dict[int, list[int]] = defaultdict(list)
        for i, row in enumerate(self.matrix):
            for event, trigger in row.activates.items():
                counted[trigger].append((i, event))
            if row.trigger is not None:
                begun[row.trigger].append(i)
        return counted, begun

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Transfers from or to hosts that do not exist, or within one host; the first of each."""
        names = {name for transfer in self.matrix for name in (transfer.src, transfer.dst)}
        unknown = {name for name in names if unknown_host(topology, "", name) is not None}
        lost = [
            (f"workload.matrix[{i}].{end}", name)
            for i, transfer in enumerate(self.matrix)
            for end, name in (("src", transfer.src), ("dst", transfer.dst))
            if name in unknown
        ]
        if lost and (problem := unknown_host(topology, *lost[0])) is not None:
            others = f" (and {len(unknown) - 1:,} more such hosts)" if len(unknown) > 1 else ""
            yield replace(problem, found=f"{problem.found}{others}")
        inside = [i for i, transfer in enumerate(self.matrix) if transfer.src == transfer.dst]
        if inside:
            others = f" (and {len(inside) - 1:,} more transfers)" if len(inside) > 1 else ""
            found = f"{self.matrix[inside[0]].src} to itself{others}"
            yield Problem(f"workload.matrix[{inside[0]}]", found, "two different hosts")
        elif not lost:
            yield from self._trigger_problems()

    def _trigger_problems(self) -> Iterator[Problem]:
        """Triggers that do not exist or a second time, and transfers that nothing begins."""
        counted, begun = self._triggered
        known: dict[int, int] = {}
        for i, trigger in enumerate(self.triggers):
            where = f"workload.triggers[{i}]"
            if trigger.id in known:
                expected = f"each trigger once (the first is triggers[{known[trigger.id]}])"
                yield Problem(f"{where}.id", f"trigger {trigger.id} a second time", expected)
            known.setdefault(trigger.id, i)
        for i, row in enumerate(self.matrix):
            for key in ("trigger", "send_done_trigger", "recv_done_trigger"):
                number = getattr(row, key)
                if number is not None and number not in known:
                    found = f"trigger {number}, which is not described"
                    expected = "a trigger of the matrix, oneshot, multishot or barrier"
                    yield Problem(f"workload.matrix[{i}].{key}", found, expected)
                    return
        if not known:
            return
        stuck = [i for i in self.graph.stuck() if i < len(self.matrix)]
        if not stuck:
            return
        i, others = stuck[0], f" (and {len(stuck) - 1:,} more)" if len(stuck) > 1 else ""
        row = self.matrix[i]
        found = f"{row.src} to {row.dst}, which never begins{others}"
        needed, remedy = "", "give one of those that wait for one another a start"
        if row.trigger is not None:
            trigger = self.triggers[known[row.trigger]]
            events = len(counted[row.trigger])
            wanted = trigger.needed(begun[row.trigger].index(i))
            if events < wanted:
                needed = f", which needs {wanted:,} transfers that are done, and has {events:,}"
                remedy = "more transfers with that send_done_trigger or recv_done_trigger"
            found = f"{found}: it waits for trigger {row.trigger}{needed}"
        yield Problem(f"workload.matrix[{i}]", found, "transfers that begin in the end", remedy)

    def longer(self, factor: float) -> Self:
        """The same load for longer: all starts and sizes multiplied."""
        matrix = tuple(
            transfer.model_copy(
                update={
                    "start": round(transfer.start * factor),
                    "size": round(transfer.size * factor),
                }
            )
            for transfer in self.matrix
        )
        longer = self.model_copy(update={"matrix": matrix})
        for derived in ("graph", "pairs", "planned"):
            vars(longer).pop(derived, None)
        return longer


def _as_graph(value: object) -> Graph:
    """The operations that a reader has read, or a run has recorded."""
    if isinstance(value, Graph):
        return value
    if not isinstance(value, str):
        raise RefusedValueError("no such key: a file has the operations", remedy="name it in file")
    return Graph.unpacked(value)


class FromFile(Graphed):
    """What the ranks of a program do, as a file of a tool says; a rank is a host."""

    hosts: Members | None = None
    file: str = Field(
        min_length=1,
        description="the file, relative to the scenario; of traces what is before .0.et",
    )
    operations: Annotated[
        Graph, PlainValidator(_as_graph), PlainSerializer(Graph.packed), WithJsonSchema({})
    ] = Field(description="what the file has, in the record of a run")

    @cached_property
    def graph(self) -> Graph:
        """The operations of the hosts that take part."""
        return self.operations if self.hosts is None else self.operations.at(self.hosts)

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Hosts that do not exist or a second time, or fewer than there are ranks; no message."""
        yield from _named_once(topology, "workload.hosts", self.hosts or ())
        ranks, count = len(self.operations.hosts), member_count(self.hosts, topology)
        if ranks > count:
            found, expected = f"{ranks:,} ranks", f"{count:,} at most: each is a host"
            more = "use a topology with" if self.hosts is None else "name"
            yield Problem("workload.file", found, expected, f"{more} more hosts")
        elif self.hosts is None:
            yield from _named_once(topology, "workload.operations", self.operations.hosts)
        if not self.pairs:
            found, remedy = "operations that send nothing", ""
            if self.graph.passed():
                found = "messages within a node only"
                remedy = "name hosts of several nodes, or set topology.nics_per_node to 1"
            expected = "a message between ranks of two nodes: only they use the fabric"
            yield Problem("workload.file", found, expected, remedy)


class Goal(FromFile):
    """A GOAL schedule, as LogGOPSim runs."""

    operation: ClassVar[str] = "send"

    kind: Literal["goal"] = "goal"
    calc_unit: RealTime = Field(
        default=1, gt=0, description="how long `calc 1` takes; GOAL has no unit"
    )

    @property
    def unit_ns(self) -> float:
        """How long a computation of 1 takes, in real ns."""
        return self.calc_unit


class Chakra(FromFile):
    """Chakra execution traces, a file for each rank."""

    operation: ClassVar[str] = "send"

    kind: Literal["chakra"] = "chakra"
    groups: str | None = Field(
        default=None, min_length=1, description="the file of groups, as ASTRA-sim reads one"
    )
    duration_scale: float = Field(
        default=1.0, gt=0, le=1e6, description="what durations of nodes are multiplied by"
    )

    @property
    def unit_ns(self) -> float:
        """The scale: durations are in ns."""
        return self.duration_scale


def _variable(value: object) -> object:
    """The value of a variable: a number of a file is text to programs."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


Word = Annotated[str, BeforeValidator(_variable)]
"""A word of a command line, or the value of a variable."""


VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"


class Program(Part):
    """A program of the user's own in each host, which sends what it likes."""

    operation: ClassVar[None] = None
    depth: ClassVar[int] = 1

    kind: Literal["program"] = "program"
    hosts: Members | None = None
    command: tuple[Word, ...] = Field(
        min_length=1,
        description="the program and its arguments; {host}, {rank} and {hosts} in them stand for "
        "the host's name, its number from 0, and the names of all, with commas",
    )
    env: dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], Word] = Field(
        default_factory=dict, description="further environment variables"
    )
    check: tuple[Word, ...] = Field(
        default=(),
        description="arguments with which the command is run once before all else, here and not in "
        "a host: if it fails, there is no run",
    )
    directory: str | None = Field(
        default=None,
        min_length=1,
        description="where it is started, relative to the scenario; default: the working directory",
    )
    endless: bool = Field(
        default=False,
        strict=True,
        description="whether it runs until the run ends; else one that still runs then has failed",
    )

    def problems(self, topology: Topology) -> Iterator[Problem]:
        """Hosts that do not exist, a second time or too few."""
        yield from _member_problems(topology, self.hosts)
        if not self.command[0].strip():
            yield Problem("workload.command[0]", repr(self.command[0]), "the name of a program")

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """All that may be: from each host to each other. Which there are the programs decide."""
        return tuple(permutations(members(self.hosts, topology), 2))

    def direction_count(self, topology: Topology) -> int:
        """One for each pair of hosts, each way."""
        count = member_count(self.hosts, topology)
        return count * (count - 1)

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """None is sent by the testbed itself."""
        return 1

    def command_of(self, rank: int, topology: Topology) -> list[str]:
        """The command line of a host, with what stands for the host filled in."""
        hosts = members(self.hosts, topology)
        names = {"{host}": hosts[rank], "{rank}": str(rank), "{hosts}": ",".join(hosts)}
        return [
            re.sub("|".join(names), lambda found: names[found[0]], word) for word in self.command
        ]


Collective = SendRecv | AllReduce | AllToAll | Training

BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "allreduce": lambda hosts: 2 * (hosts - 1) / hosts,
    "alltoall": lambda hosts: (hosts - 1) / hosts,
    "sendrecv": lambda _: 1.0,
}
"""What a collective's algorithm bandwidth, size over time, is multiplied by for its bus bandwidth,
given the number of hosts (nccl-tests, doc/PERFORMANCE.md)."""

Workload = Annotated[
    WriteBw
    | Permutation
    | Incast
    | SendRecv
    | AllReduce
    | AllToAll
    | Training
    | Connections
    | Goal
    | Chakra
    | Program,
    ByKind(),
]


def members(hosts: tuple[str, ...] | None, topology: Topology) -> tuple[str, ...]:
    """The hosts that take part: those named, or all hosts of the fabric."""
    if hosts is not None:
        return hosts
    return tuple(f"h{i}" for i in range(topology.host_count))


def member_count(hosts: tuple[str, ...] | None, topology: Topology) -> int:
    """How many hosts take part."""
    return topology.host_count if hosts is None else len(hosts)


def rail_count(hosts: tuple[str, ...] | None, topology: Topology) -> int:
    """How many NICs of each node take part."""
    if hosts is None or topology.nics_per_node == 1:
        return topology.nics_per_node
    return len({nic for nics in _by_node(topology, hosts).values() for nic in nics})


def outstanding(workload: Workload, topology: Topology) -> int:
    """The most messages that a flow of a workload has outstanding: `depth`, of a ring on each rail.

    A chunk is smaller by the number of rails, and a node may be ahead by as many more.
    """
    if not isinstance(workload, _Reducing):
        return workload.depth
    return min(workload.depth * rail_count(workload.hosts, topology), MAX_DEPTH)


def _by_node(topology: Topology, names: tuple[str, ...]) -> dict[int, dict[int, str]]:
    """Hosts by their nodes, in the order of the nodes' first hosts, and by their rails.

    The names may be wrong: checks list flows before they are known to be right.
    """
    nodes: dict[int, dict[int, str]] = {}
    for name in names:
        number = name.removeprefix("h")
        host = topology.host(int(number) if number.isascii() and number.isdecimal() else 0)
        node, nic = topology.node_of(host)
        nodes.setdefault(node, {})[nic] = name
    return nodes


def _node_problems(topology: Topology, hosts: tuple[str, ...] | None) -> Iterator[Problem]:
    """A group with a single node, or with different NICs of its nodes."""
    if topology.nics_per_node == 1:
        return
    nodes = _by_node(topology, members(hosts, topology))
    first, *others = nodes
    if not others:
        where = "workload" if hosts is None else "workload.hosts"
        expected = "hosts of two nodes or more: what stays within a node does not use the fabric"
        yield Problem(where, f"NICs of n{first} only", expected)
    for node in others:
        if nodes[node].keys() != nodes[first].keys():
            same = ", ".join(topology.nics(node)[nic].name for nic in sorted(nodes[first]))
            expected = f"the same NICs of each node: {same} of n{node}, as of n{first}"
            found = f"{', '.join(nodes[node].values())} of n{node}"
            yield Problem("workload.hosts", found, expected)
            return


def _member_problems(topology: Topology, hosts: tuple[str, ...] | None) -> Iterator[Problem]:
    yield from _named_once(topology, "workload.hosts", hosts or ())
    count = member_count(hosts, topology)
    if count < _FEWEST_MEMBERS:
        remedy = "use a topology with more hosts"
        yield Problem("workload", f"{count} host", "two hosts or more", remedy)


def _named_once(topology: Topology, where: str, names: Sequence[str]) -> Iterator[Problem]:
    seen = set[str]()
    for i, name in enumerate(names):
        unknown = [*_unknown_host(topology, f"{where}[{i}]", name)]
        yield from unknown
        if not unknown and name in seen:
            yield Problem(f"{where}[{i}]", f"{name} a second time", "each host once", "remove one")
        seen.add(name)


def _unknown_host(topology: Topology, where: str, name: str) -> Iterator[Problem]:
    problem = unknown_host(topology, where, name)
    if problem is not None:
        yield problem
