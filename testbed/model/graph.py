"""Operations of hosts that wait for one another: what every file of traffic is read into.

An operation is a message, its receipt, a computation, or a trigger, which counts. It begins when
all that it waits for has happened. A host knows only what happens at it, so whatever happens
elsewhere has to reach it: the end of a message by the message itself, all else by a signal, a
message of one byte, which `Graph.after` adds. Messages within a node use no fabric (`Graph.join`).

Collectives are operations too: the messages of real ones, in order; nothing is added up. Each of
their functions takes one operation for each host, after which the host takes part, and returns one
for each, which is done when the host is: its own messages are acknowledged, and all for it have
arrived. They are two hosts or more. Sizes are in bytes.
"""

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

SEND, RECEIVE, COMPUTE, TRIGGER, PASS = _KINDS = range(5)
"""What an operation does. A trigger is never done: it counts what happens. To pass is to send to
another NIC of the node, which takes no time."""

_SENDS = (SEND, PASS)

DONE, BEGUN, ARRIVED = 0, -1, -2
"""What of an operation others wait for: that it is done (a message: acknowledged), that it has
begun, that the message has arrived. Of a trigger a number: that it has counted so far."""

ANY: Final = -1
"""In place of a sender or a tag: a receipt takes every one."""

NO_STREAM: Final = -1
NO_PART: Final = -1

UNMATCHED: Final = -2
"""The tag of messages for which nobody posts a receipt."""

MAX_OPERATIONS = 2_000_000
"""Most operations of a graph. Ours: each takes about a hundred bytes."""

MAX_EDGES = 4 * MAX_OPERATIONS
"""Most events that its operations wait for."""

MAX_AMOUNT = 1 << 40
"""Most bytes of a message, or units of time of a computation. Ours: over 800 Gbit/s such a message
takes 11 s, a million times a round trip."""

Event = tuple[int, int]
"""An operation, and what of it."""

_SIGNAL_BYTES = 1
_NONE = -1


class TooLargeError(ValueError):
    """A graph would have more than it may have; the text says what of it, and how much."""


class Operation(NamedTuple):
    """One operation.

    Attributes:
        kind: what it does.
        host: the host that does it.
        peer: the other end of a message; empty: any.
        amount: bytes of a message (0: it has no end); ns of a computation, in real time.
        start_ns: when it begins at the earliest, in real time from the start of the workload.
        tag: what receipts are matched with messages by.
        stream: the computations of a host with the same number follow one another; `NO_STREAM`:
            it waits for none.
        counted: whether it is one of those that were asked for.
        part: the collective that begins or, if it is counted, ends with it at its host.
    """

    kind: int
    host: str
    peer: str
    amount: int
    start_ns: int = 0
    tag: int = UNMATCHED
    stream: int = 0
    counted: bool = True
    part: int = NO_PART


class Collective(NamedTuple):
    """An operation of several hosts, which other operations of the graph make up.

    Attributes:
        name: what it is called in the records of a run.
        size: bytes of each host's buffer.
        hosts: how many take part.
        begin: the operation with which the first of them begins.
    """

    name: str
    size: int
    hosts: int
    begin: int


class Graph:
    """Operations, known by their numbers from 0 on; stored column by column, to be small.

    Attributes:
        names: what each kind of operation is called in the records of a run; others are not
            recorded.
        hosts: the hosts, in order of first mention.
        collectives: by the number that their parts name.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self.hosts: list[str] = []
        self.collectives: list[Collective] = []
        self._number: dict[str, int] = {"": ANY}
        self._columns = tuple(array("q") for _ in Operation._fields)
        self._append = [column.append for column in self._columns]
        self._last = array("q")  # by operation: its last edge
        self._edges = tuple(array("q") for _ in range(3))  # before, event, the edge before
        self._announced = array("b")
        self._signals: dict[tuple[int, int, int], int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((len(self), *self.hosts))

    def _parts(self) -> tuple[object, ...]:
        shared = self.names, self.hosts, self.collectives
        return *shared, self._columns, self._last, self._edges, self._announced

    def __len__(self) -> int:
        return len(self._last)

    def __getitem__(self, number: int) -> Operation:
        kind, host, peer, amount, start_ns, tag, stream, counted, part = (
            column[number] for column in self._columns
        )
        to = "" if peer == ANY else self.hosts[peer]
        asked = bool(counted)
        return Operation(kind, self.hosts[host], to, amount, start_ns, tag, stream, asked, part)

    def __iter__(self) -> Iterator[Operation]:
        return (self[number] for number in range(len(self)))

    def name_hosts(self, names: Iterable[str]) -> None:
        """Name hosts in an order of their own, before their operations are added."""
        for name in names:
            self._host(name)

    def at(self, hosts: Sequence[str]) -> "Graph":
        """The same operations at other hosts, given for its own in order; the rest stay."""
        moved = Graph(self.names)
        here = [*hosts[: len(self.hosts)], *self.hosts[len(hosts) :]]
        numbers = {"": ANY} | {name: number for number, name in enumerate(here)}
        vars(moved).update(vars(self) | {"hosts": here, "_number": numbers})
        return moved

    def join(self, nodes: Sequence[int]) -> None:
        """Let messages between hosts of one node stay in it; `nodes` are the hosts', in order."""
        kinds, hosts, peers = self._columns[:3]
        for number, (kind, a, b) in enumerate(zip(kinds, hosts, peers, strict=True)):
            if kind in _SENDS:
                kinds[number] = PASS if nodes[a] == nodes[b] else SEND

    def add(self, operation: Operation) -> int:
        """Add an operation; returns its number.

        Raises:
            TooLargeError: there are too many.
        """
        kind, host, peer, amount, start_ns, tag, stream, counted, part = operation
        ends = self._host(host), self._host(peer)
        return self.append(kind, *ends, amount, start_ns, tag, stream, counted, part)

    def append(
        self,
        kind: int,
        host: int,
        peer: int,
        amount: int,
        start_ns: int = 0,
        tag: int = UNMATCHED,
        stream: int = 0,
        counted: bool = True,
        part: int = NO_PART,
    ) -> int:
        """Add an operation as `add`, of hosts by their numbers: files have a million of them."""
        number = len(self._last)
        if number == MAX_OPERATIONS:
            raise TooLargeError(f"{MAX_OPERATIONS:,} operations at most, with those of collectives")
        values = (kind, host, peer, amount, start_ns, tag, stream, counted, part)
        for append, value in zip(self._append, values):  # noqa: B905 - strict takes a fifth longer
            append(value)
        self._last.append(_NONE)
        self._announced.append(0)
        return number

    def _host(self, name: str) -> int:
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self.hosts)
            self.hosts.append(name)
        return number

    def after(self, number: int, before: int, event: int = DONE) -> None:
        """Let an operation wait for an event of another one, which may be at another host.

        Raises:
            TooLargeError: there are too many events that operations wait for.
        """
        if len(self._edges[0]) == MAX_EDGES:
            raise TooLargeError(f"{MAX_EDGES:,} dependences at most, with those of collectives")
        kinds, hosts, peers = self._columns[:3]
        here, there = hosts[number], hosts[before]
        if here == there:
            event = DONE if event == ARRIVED else event
        elif kinds[before] == SEND and peers[before] == here and event != BEGUN:
            event = ARRIVED
        else:
            signal = self._signals.get((before, event, here))
            if signal is None:
                from_ = self.hosts[peers[before] if event == ARRIVED else there]
                to = self.hosts[here]
                signal = self.add(Operation(SEND, from_, to, _SIGNAL_BYTES, counted=False))
                self._signals[before, event, here] = signal
                self.after(signal, before, event)
            before, event = signal, ARRIVED
        if event == ARRIVED:
            self._announced[before] = 1
        earlier, events, previous = self._edges
        earlier.append(before)
        events.append(event)
        previous.append(self._last[number])
        self._last[number] = len(earlier) - 1

    def waits_for(self, number: int) -> Iterator[Event]:
        """The events that an operation waits for, at its host."""
        before, event, previous = self._edges
        edge = self._last[number]
        while edge != _NONE:
            yield before[edge], event[edge]
            edge = previous[edge]

    def is_announced(self, number: int) -> bool:
        """Whether the receiver has to learn that a message has arrived."""
        return bool(self._announced[number]) or self._columns[5][number] != UNMATCHED

    def of_host(self, host: str) -> list[int]:
        return self._by_host.get(self._number.get(host, ANY), [])

    @cached_property
    def _by_host(self) -> dict[int, list[int]]:
        by_host: dict[int, list[int]] = defaultdict(list)
        for number, host in enumerate(self._columns[1]):
            by_host[host].append(number)
        return by_host

    def pairs(self, *, counted: bool = False) -> tuple[tuple[str, str], ...]:
        """Who sends to whom, each pair once, in order of first mention; or more than signals."""
        kinds, hosts, peers, *_, asked_for, _ = self._columns
        sent = (
            (a, b)
            for kind, a, b, asked in zip(kinds, hosts, peers, asked_for, strict=True)
            if kind == SEND and (asked or not counted)
        )
        return tuple((self.hosts[a], self.hosts[b]) for a, b in dict.fromkeys(sent))

    def passed(self) -> Counter[tuple[str, str]]:
        """How many messages each host passes to each other of its node."""
        kinds, hosts, peers = self._columns[:3]
        ends = zip(kinds, hosts, peers, strict=True)
        counts = Counter((a, b) for kind, a, b in ends if kind == PASS)
        return Counter({(self.hosts[a], self.hosts[b]): n for (a, b), n in counts.items()})

    def planned(self) -> dict[str, list[int]]:
        """The bytes of each operation that is counted and ends, by what its kind is called."""
        planned: dict[str, list[int]] = defaultdict(list)
        kinds, _, _, amounts, *_, counted, parts = self._columns
        for kind, amount, is_counted, part in zip(kinds, amounts, counted, parts, strict=True):
            if is_counted and part == NO_PART and kind in self.names and (amount or kind != SEND):
                planned[self.names[kind]].append(0 if kind == COMPUTE else amount)
        for collective in self.collectives:
            planned[collective.name].append(collective.size)
        return dict(planned)

    @property
    def computed(self) -> list[int]:
        """How long each computation takes that was asked for."""
        kinds, _, _, amounts, *_, counted, parts = self._columns
        rows = zip(kinds, amounts, counted, parts, strict=True)
        return [n for kind, n, asked, part in rows if kind == COMPUTE and asked and part == NO_PART]

    def busy(self) -> tuple[Counter[str], Counter[str]]:
        """Of each host the bytes that it sends, and the longest row of computations, in units.

        The computations of a row follow one another.
        """
        sent, computed = Counter[int](), Counter[tuple[int, int]]()
        kinds, hosts, _, amounts, _, _, streams, *_ = self._columns
        for kind, host, amount, stream in zip(kinds, hosts, amounts, streams, strict=True):
            if kind == SEND:
                sent[host] += amount
            elif kind == COMPUTE and stream != NO_STREAM:
                computed[host, stream] += amount
        rows = Counter[str]()
        for (host, _), amount in computed.items():
            rows[self.hosts[host]] = max(rows[self.hosts[host]], amount)
        return Counter({self.hosts[host]: size for host, size in sent.items()}), rows

    def hosts_of(self, name: str) -> int:
        """How many hosts take part in an operation of a name, at most."""
        return max((each.hosts for each in self.collectives if each.name == name), default=1)

    @property
    def longest_bytes(self) -> int:
        """The size of the longest message; 0 if one has no end."""
        kinds, _, _, amounts, *_ = self._columns
        sizes = {amount for kind, amount in zip(kinds, amounts, strict=True) if kind == SEND}
        return 0 if 0 in sizes else max(sizes, default=1)

    def stuck(self) -> list[int]:
        """The operations that never begin or never end, whatever the times: a deadlock.

        Receipts from any sender or of any tag depend on times; if there are some, none is named.
        """
        kinds, _, peers, _, _, tags, *_ = self._columns
        ends = zip(kinds, peers, tags, strict=True)
        if any(kind == RECEIVE and ANY in (peer, tag) for kind, peer, tag in ends):
            return []
        done = _Walk(self._columns, self._last, self._edges).done()
        return [i for i, kind in enumerate(kinds) if not done[i] and kind != TRIGGER]

    def packed(self) -> str:
        """All of it as text, to be recorded."""
        columns = (*self._columns, self._last, *self._edges, self._announced)
        data = b"".join(column.tobytes() for column in columns)
        head = {
            "names": [self.names.get(kind, "") for kind in _KINDS],
            "hosts": self.hosts,
            "collectives": self.collectives,
            "lengths": [len(self), len(self._edges[0])],
        }
        return f"{json.dumps(head)}\n{b64encode(zlib.compress(data)).decode('ascii')}"

    @classmethod
    def unpacked(cls, text: str) -> "Graph":
        """The graph of such a text.

        Raises:
            ValueError: it is none.
        """
        try:
            first, _, rest = text.partition("\n")
            head = json.loads(first)
            graph = cls({kind: str(name) for kind, name in enumerate(head["names"]) if name})
            operations, edges = head["lengths"]
            for name, *numbers in head["collectives"]:
                graph.collectives.append(Collective(str(name), *map(int, numbers)))
            graph._fill(head["hosts"], operations, edges, b64decode(rest))
        except (KeyError, TypeError, ValueError, RecursionError, zlib.error) as error:
            raise ValueError("operations that the testbed has recorded") from error
        return graph

    def _fill(self, hosts: list[str], operations: int, edges: int, packed: bytes) -> None:
        """Take all from what was recorded; whatever that is, no number leads out of the graph."""
        columns = [*self._columns, self._last, *self._edges, self._announced]
        lengths = [operations] * (len(self._columns) + 1) + [edges] * 3 + [operations]
        if not (0 < operations <= MAX_OPERATIONS and 0 <= edges <= MAX_EDGES):
            raise ValueError
        sizes = [length * each.itemsize for length, each in zip(lengths, columns, strict=True)]
        data = zlib.decompressobj().decompress(packed, sum(sizes))
        if len(data) != sum(sizes):
            raise ValueError
        at = 0
        for column, size in zip(columns, sizes, strict=True):
            column.frombytes(data[at : at + size])
            at += size
        self.name_hosts(map(str, hosts))
        kind, host, peer, amount, *_, part = self._columns
        before, _, previous = self._edges
        bounds = (
            (part, NO_PART, len(self.collectives)),
            *((kind, 0, len(_KINDS)), (host, 0, len(self.hosts)), (peer, ANY, len(self.hosts))),
            *((amount, 0, MAX_AMOUNT + 1), (before, 0, operations)),
            *((self._last, _NONE, edges), (previous, _NONE, edges)),
        )
        for values, least, end in bounds:
            if values and not least <= min(values) <= max(values) < end:
                raise ValueError
        if any(edge >= number for number, edge in enumerate(previous)):
            raise ValueError
        ends = zip(kind, host, peer, strict=True)
        if any(what in _SENDS and to in (ANY, source) for what, source, to in ends):
            raise ValueError


_ALL = (BEGUN, DONE, ARRIVED)
"""What happens at once, where times do not count, with an operation that waits for nobody."""


class _Walk:
    """What of a graph can happen, in any order that waits for nothing else."""

    def __init__(
        self,
        columns: Sequence[Sequence[int]],
        last: Sequence[int],
        edges: Sequence[Sequence[int]],
    ) -> None:
        """Begin at the beginning; all are those of the graph."""
        self._kinds, self._hosts, self._peers, self._amounts, _, self._tags, *_ = columns
        before, self._events, previous = edges
        nothing = array("q", [_NONE])
        self._first, self._next = nothing * len(last), nothing * len(before)  # edges, by `before`
        self._waits, self._left = nothing * len(before), array("q", bytes(8 * len(last)))
        self._of_trigger: dict[Event, list[int]] = defaultdict(list)  # they may have many
        for number in reversed(range(len(last))):
            edge = last[number]
            while edge != _NONE:
                self._left[number] += 1
                self._waits[edge] = number
                if self._kinds[before[edge]] == TRIGGER:
                    self._of_trigger[before[edge], self._events[edge]].append(number)
                else:
                    self._next[edge] = self._first[before[edge]]
                    self._first[before[edge]] = edge
                edge = previous[edge]
        self._counted: Counter[int] = Counter()
        self._arrived: Counter[tuple[int, int, int]] = Counter()
        self._posted: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self._ready = [number for number in reversed(range(len(last))) if not self._left[number]]
        self._done = bytearray(len(last))

    def done(self) -> bytearray:
        """Which operations are done in the end; of messages without end, which begin."""
        while self._ready:
            number = self._ready.pop()
            kind, host, peer = self._kinds[number], self._hosts[number], self._peers[number]
            if kind == RECEIVE:
                self._happen(number, (BEGUN,))
                key = (peer, host, self._tags[number])
                self._posted[key].append(number)
            else:
                self._done[number] = 1
                ends = kind == COMPUTE or self._amounts[number]
                self._happen(number, _ALL if ends else (BEGUN,))
                if kind == COMPUTE or self._tags[number] == UNMATCHED:
                    continue
                key = (host, peer, self._tags[number])
                self._arrived[key] += 1
            if self._arrived[key] and self._posted[key]:
                self._arrived[key] -= 1
                received = self._posted[key].popleft()
                self._done[received] = 1
                self._happen(received, (DONE,))
        return self._done

    def _happen(self, number: int, events: Sequence[int]) -> None:
        edge = self._first[number]
        while edge != _NONE:
            if self._events[edge] in events:
                self._proceed(self._waits[edge])
            edge = self._next[edge]

    def _proceed(self, number: int) -> None:
        """Note that something has happened that an operation waits for, or a trigger counts."""
        if self._kinds[number] == TRIGGER:
            self._counted[number] += 1
            for waiting in self._of_trigger.pop((number, self._counted[number]), ()):
                self._proceed(waiting)
            return
        self._left[number] -= 1
        if not self._left[number]:
            self._ready.append(number)


def step(graph: Graph, host: str, after: Iterable[int] = ()) -> int:
    """Add an operation of no length, such as the beginning or the end of a host's part."""
    operation = Operation(COMPUTE, host, "", 0, stream=NO_STREAM, counted=False)
    number = graph.add(operation)
    for before in after:
        graph.after(number, before)
    return number


def ring(graph: Graph, begins: Sequence[int], size: int, messages: int, lead: int = 1) -> list[int]:
    """Messages around a ring: a host passes on what has arrived; `lead` of them go ahead.

    With 2(n - 1) messages of 1/n of a buffer it is an all-reduce among n hosts, with half as many
    an all-gather or a reduce-scatter.
    """
    hosts = [graph[begin].host for begin in begins]
    sent: list[list[int]] = [[] for _ in hosts]
    for message in range(messages):
        for i, host in enumerate(hosts):
            number = graph.add(Operation(SEND, host, hosts[(i + 1) % len(hosts)], size))
            if message < lead:
                graph.after(number, begins[i])
            else:
                graph.after(number, sent[i - 1][message - lead], ARRIVED)
            sent[i].append(number)
    ends = [step(graph, host) for host in hosts]
    for i, end in enumerate(ends):
        for number in sent[i]:
            graph.after(end, number)
        for number in sent[i - 1][-lead:]:
            graph.after(end, number, ARRIVED)
    return ends


def rings(
    graph: Graph, begins: Sequence[Sequence[int]], size: int, messages: int
) -> list[list[int]]:
    """A ring on each rail, with its share of the buffer; operations are given and returned by node.

    It enters and leaves each node by the NIC of its rail, as NCCL's do. Hops within a node take no
    time, so a node may be ahead by as many messages as it has ranks.
    """
    rails = []
    for nics in zip(*begins, strict=True):
        starts = [
            step(graph, graph[nic].host, node) for nic, node in zip(nics, begins, strict=True)
        ]
        rails.append(ring(graph, starts, size, messages, lead=len(begins[0])))
    return [
        [step(graph, graph[begin].host, ends) for begin in node]
        for node, *ends in zip(begins, *rails, strict=True)
    ]


def all_to_all(graph: Graph, begins: Sequence[int], size: int) -> list[int]:
    """A message from each host to each other, all at once."""
    hosts = [graph[begin].host for begin in begins]
    ends = [step(graph, host) for host in hosts]
    for i, host in enumerate(hosts):
        for distance in range(1, len(hosts)):
            to = (i + distance) % len(hosts)
            number = graph.add(Operation(SEND, host, hosts[to], size))
            graph.after(number, begins[i])
            graph.after(ends[i], number)
            graph.after(ends[to], number, ARRIVED)
    return ends


def in_order(
    graph: Graph, begins: Sequence[int], size: int, pairs: Iterable[tuple[int, int]]
) -> list[int]:
    """Messages between members, each after all that has arrived at its sender before."""
    hosts = [graph[begin].host for begin in begins]
    ends = [step(graph, host, (begin,)) for host, begin in zip(hosts, begins, strict=True)]
    arrived: list[list[int]] = [[] for _ in hosts]
    for source, to in pairs:
        number = graph.add(Operation(SEND, hosts[source], hosts[to], size))
        graph.after(number, begins[source])
        for before in arrived[source]:
            graph.after(number, before, ARRIVED)
        graph.after(ends[source], number)
        graph.after(ends[to], number, ARRIVED)
        arrived[to].append(number)
    return ends


def tree(count: int) -> list[tuple[int, int]]:
    """A binomial tree, from its root 0 down: the pairs of a broadcast, in order.

    Reversed, each pair too, it is that of a reduction.
    """
    distances = [1 << bit for bit in range((count - 1).bit_length())]
    return [
        (source, source + distance)
        for distance in distances
        for source in range(distance)
        if source + distance < count
    ]
