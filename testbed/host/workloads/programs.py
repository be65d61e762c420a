"""The choice of the program that a host runs for a workload."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count, repeat
from math import ceil, inf
from typing import NamedTuple

from testbed.model import workload as model
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.graph import (
    ANY,
    ARRIVED,
    BEGUN,
    COMPUTE,
    DONE,
    NO_PART,
    NO_STREAM,
    PASS,
    SEND,
    TRIGGER,
    UNMATCHED,
    Event,
    Graph,
)
from testbed.model.scenario import Job, Scenario
from testbed.model.transport import Mrc
from testbed.model.workload import PIECE
from testbed.mrc import NEVER

# --------------------------------------------------------------------------------------------------
# The interface of a program: one host's part in a workload, sans-IO.


class FlowEnd(NamedTuple):
    """One end of a flow, as its host sees it.

    Attributes:
        flow: the flow's number.
        peer: the host at the other end.
        lane: the index of the queue pair among those to that host.
    """

    flow: int
    peer: str
    lane: int


class Post(NamedTuple):
    """A message to post.

    Attributes:
        flow: the flow to post it on.
        size: its length in bytes.
        immediate: the data with which the receiver's program learns of it, if it does.
    """

    flow: int
    size: int
    immediate: int | None = None


class Operation(NamedTuple):
    """An operation that a host has finished: a collective, a training step, a message.

    Attributes:
        kind: the name of the operation, such as `allreduce`.
        number: its index among those of its kind, from 0; equal at all hosts that take part.
        start_ns: when this host began it; a message from when it was due, also while it waits for
            its turn.
        end_ns: when this host finished it.
        size: the host's buffer in bytes, as it is sent; of a message, its size.
        hosts: the number of hosts that take part.
    """

    kind: str
    number: int
    start_ns: int
    end_ns: int
    size: int
    hosts: int


class Program:
    """One host's part in a workload. Times in ns; flows are known by their numbers.

    The driver calls `begin` once, then `completed` and `received_immediate` for what has happened,
    and posts what `posts` returns. It calls `posts` again no later than `wake_ns`.

    Attributes:
        wake_ns: when `posts` must be called even if nothing happens; `NEVER` if not at all.
        begun: how many operations with an end it has begun, by their kind; of messages, how many it
            has posted something of.
        finished: the operations finished so far; the driver clears the list as it records them.
    """

    def __init__(self) -> None:
        self.wake_ns = NEVER
        self.begun: Counter[str] = Counter()
        self.finished: list[Operation] = []

    def begin(self, now_ns: int) -> None:
        """Start the workload."""

    def completed(self, flow: int, now_ns: int) -> None:
        """Handle the completion of the oldest outstanding message of a flow from this host."""

    def received_immediate(self, flow: int, immediate: int, now_ns: int) -> None:
        """Handle the next WRITE with immediate of a flow to this host, given its data.

        It and all messages of the flow before it are in this host's memory.
        """

    def posts(self, now_ns: int) -> list[Post]:
        """Return the messages to post now, never more per flow than its depth leaves room for."""
        raise NotImplementedError


# --------------------------------------------------------------------------------------------------
# WRITEs back to back, and the operations of a graph.


class WriteBw(Program):
    """Keeps a number of WRITEs outstanding on every flow, as perftest's `ib_write_bw`."""

    def __init__(self, flows: Sequence[int], size: int, depth: int) -> None:
        """Prepare the first WRITEs.

        Args:
            flows: the flows from this host.
            size: bytes of each message.
            depth: outstanding messages per flow.
        """
        super().__init__()
        self._size = size
        self._due = [Post(flow, size) for _ in range(depth) for flow in flows]

    def completed(self, flow: int, _now_ns: int) -> None:
        """Let the next WRITE follow the completed one."""
        self._due.append(Post(flow, self._size))

    def posts(self, _now_ns: int) -> list[Post]:
        """Return one WRITE for each that has completed since the last call."""
        due, self._due = self._due, []
        return due


class _Message:
    """A message of this host that has begun."""

    __slots__ = ("due_ns", "immediate", "is_begun", "number", "outstanding", "size")

    def __init__(self, number: int, size: int, due_ns: int, immediate: int | None) -> None:
        self.number = number
        self.size = size
        self.due_ns = due_ns
        self.immediate = immediate
        self.is_begun = False
        self.outstanding = ceil(size / PIECE) if size else inf


class Operations(Program):
    """One host's part in a graph of operations: each begins when what it waits for has happened.

    A message goes in pieces of at most `PIECE` bytes, which the flows to its receiver take in
    turn, first those that have been given the fewest bytes so far: so short messages share the
    flows as well. On one flow pieces are sent in the order in which their messages begin; those
    of messages without end take turns with them, piece by piece, so that none waits for ever. They
    are shorter: what has been posted cannot be overtaken.

    A message is done when all of it is acknowledged. It has arrived when all of its pieces have,
    each with the message's number as immediate data; those that nobody waits for have none.
    """

    def __init__(
        self,
        graph: Graph,
        host: str,
        ends: Sequence[FlowEnd],
        *,
        depth: int,
        endless_piece: int,
        dilation: float,
        unit_ns: float,
        label: Callable[[str], str],
        mailbox: "Mailbox | None" = None,
    ) -> None:
        """Find the host's operations, and what they wait for.

        Args:
            graph: the operations of all hosts.
            host: the host.
            ends: the flows from this host.
            depth: the most outstanding messages per flow.
            endless_piece: bytes of a piece of a message without end.
            dilation: ns here for each real ns.
            unit_ns: real ns of a computation of 1.
            label: what the records call an operation, given the name of its kind.
            mailbox: what it passes to other NICs of its node, and they to it.
        """
        super().__init__()
        self._graph = graph
        self._names = {kind: label(name) for kind, name in graph.names.items()}
        self._label = label
        self._taking_part: dict[int, int] = {}  # in collectives: since when
        self._depth = depth
        self._compute_ns = unit_ns * dilation
        self._given_bytes: dict[str, dict[int, int]] = defaultdict(dict)  # by receiver and flow
        for end in ends:
            self._given_bytes[end.peer][end.flow] = 0
        self._queued: dict[int, _Turns] = defaultdict(partial(_Turns, endless_piece))
        self._posted: dict[int, deque[_Message]] = defaultdict(deque)
        self._ready_flows: set[int] = set()
        self._followers: dict[Event, list[int]] = defaultdict(list)
        self._left: Counter[int] = Counter()  # what they wait for; of triggers, what has happened
        self._due: list[tuple[int, int, int | None]] = []  # when, which; of a computation, its end
        for number in graph.of_host(host):
            operation, events = graph[number], [*graph.waits_for(number)]
            for event in events:
                self._followers[event].append(number)
            if operation.kind != TRIGGER:
                self._left[number] = len(events)
                if not events:
                    self._due.append((round(operation.start_ns * dilation), number, None))
        self._arriving: dict[int, int] = {}  # messages: the pieces that are still to come
        self._free_ns: Counter[int] = Counter()  # by stream
        self._receipts = _Receipts()
        self._mailbox = mailbox

    def begin(self, now_ns: int) -> None:
        """Count times from now on."""
        self._due = [(now_ns + due_ns, number, end) for due_ns, number, end in self._due]
        heapify(self._due)
        self._set_wake()

    def completed(self, flow: int, now_ns: int) -> None:
        """Note that a piece has arrived; the last piece finishes its message."""
        message = self._posted[flow].popleft()
        message.outstanding -= 1
        self._ready_flows.add(flow)
        if not message.outstanding:
            self._finish(message.number, message.due_ns, now_ns)

    def received_immediate(self, _flow: int, immediate: int, now_ns: int) -> None:
        """Note that a piece of a message to this host has arrived."""
        left = self._arriving.pop(immediate, None)
        if left is None:
            left = ceil(self._graph[immediate].amount / PIECE)
        if left > 1:
            self._arriving[immediate] = left - 1
            return
        self._arrived(immediate, now_ns)

    def _arrived(self, number: int, now_ns: int) -> None:
        """Note that all of a message to this host has arrived."""
        self._happen((number, ARRIVED), now_ns)
        message = self._graph[number]
        if message.tag != UNMATCHED:
            receipt = self._receipts.arrived(message.host, message.tag)
            if receipt is not None:
                self._finish(*receipt, now_ns)

    def posts(self, now_ns: int) -> list[Post]:
        """Begin what is due; return pieces of the messages that have begun, as the depth allows."""
        if self._mailbox is not None:
            for number in self._mailbox.received():
                self._arrived(number, now_ns)
        while self._due and self._due[0][0] <= now_ns:
            due_ns, number, start_ns = heappop(self._due)
            if start_ns is None:
                self._begin(number, due_ns, now_ns)
            else:  # when it was due: however seldom a host looks, computations take their time
                self._finish(number, start_ns, due_ns)
        posts = []
        for flow in sorted(self._ready_flows):
            queued, posted = self._queued[flow], self._posted[flow]
            while len(posted) < self._depth and (piece := queued.next_piece()) is not None:
                message, size = piece
                if message.size and not message.is_begun:
                    message.is_begun = True
                    self._count_begun(message.number)
                posted.append(message)
                posts.append(Post(flow, size, message.immediate))
        self._ready_flows.clear()
        self._set_wake()
        if self._mailbox is not None and self._mailbox.is_awaited:
            self.wake_ns = min(self.wake_ns, now_ns + self._mailbox.look_ns)
        return posts

    def _begin(self, number: int, due_ns: int, now_ns: int) -> None:
        """Begin an operation: a computation when it was due, a message or a receipt now."""
        operation = self._graph[number]
        self._happen((number, BEGUN), due_ns)
        if operation.kind == SEND:
            announced = operation.amount and self._graph.is_announced(number)
            immediate = number if announced else None
            self._enqueue(_Message(number, operation.amount, now_ns, immediate), operation.peer)
            return
        if operation.kind == PASS and self._mailbox is not None:
            self._mailbox.send(operation.peer, number)
            self._finish(number, now_ns, now_ns)
            return
        self._count_begun(number)
        if operation.kind == COMPUTE:
            waits = operation.stream != NO_STREAM
            start_ns = max(due_ns, self._free_ns[operation.stream]) if waits else due_ns
            end_ns = start_ns + round(operation.amount * self._compute_ns)
            self._free_ns[operation.stream] = end_ns
            heappush(self._due, (end_ns, number, start_ns))
        elif self._receipts.posted(number, operation.peer, operation.tag, now_ns):
            self._finish(number, now_ns, now_ns)

    def _enqueue(self, message: _Message, peer: str) -> None:
        given = self._given_bytes[peer]
        for lane, flow in enumerate(sorted(given, key=given.__getitem__)):
            if lane < message.outstanding:
                given[flow] += _total(message.size, lane, len(given))
                self._queued[flow].add(message, lane, len(given))
                self._ready_flows.add(flow)

    def _finish(self, number: int, start_ns: int, now_ns: int) -> None:
        """Record that an operation is done, and let others begin."""
        operation = self._graph[number]
        name = self._names.get(operation.kind)
        if operation.part != NO_PART:
            self._take_part(operation.part, now_ns, ends=operation.counted)
        elif operation.counted and name is not None:
            size = 0 if operation.kind == COMPUTE else operation.amount
            self.finished.append(Operation(name, number, start_ns, now_ns, size, hosts=1))
        self._happen((number, DONE), now_ns)

    def _take_part(self, part: int, now_ns: int, *, ends: bool) -> None:
        """Note that this host begins or ends its part in a collective."""
        if not ends:
            self._taking_part[part] = now_ns
            return
        name, size, hosts, _ = self._graph.collectives[part]
        begun_ns = self._taking_part.pop(part)
        self.finished.append(Operation(self._label(name), part, begun_ns, now_ns, size, hosts))

    def _happen(self, event: Event, now_ns: int) -> None:
        """Let those begin that have waited for an event only; triggers count it."""
        events = [event]
        while events:
            for number in self._followers.pop(events.pop(), ()):
                if self._graph[number].kind == TRIGGER:
                    self._left[number] += 1
                    events.append((number, self._left[number]))
                    continue
                self._left[number] -= 1
                if not self._left[number]:
                    heappush(self._due, (now_ns, number, None))
                    self._set_wake()

    def _count_begun(self, number: int) -> None:
        operation = self._graph[number]
        if operation.part != NO_PART:
            collective = self._graph.collectives[operation.part]
            if collective.begin == number:
                self.begun[self._label(collective.name)] += 1
        elif operation.counted and operation.kind in self._names:
            self.begun[self._names[operation.kind]] += 1

    def _set_wake(self) -> None:
        self.wake_ns = self._due[0][0] if self._due else NEVER


class _Receipts:
    """Matches the messages that arrive at a host with the receipts that it has posted (MPI).

    Each message goes to the oldest receipt that takes it, each receipt to the oldest message.
    """

    def __init__(self) -> None:
        self._order = count()
        self._arrived: dict[tuple[str, int], deque[int]] = defaultdict(deque)
        self._posted: dict[tuple[str, int], deque[tuple[int, int, int]]] = defaultdict(deque)

    def arrived(self, source: str, tag: int) -> tuple[int, int] | None:
        """The receipt of a message, with when it was posted; None: the message waits for one."""
        keys = ((source, tag), ("", tag), (source, ANY), ("", ANY))
        taking = [self._posted[key] for key in keys if self._posted.get(key)]
        if not taking:
            self._arrived[source, tag].append(next(self._order))
            return None
        _, number, posted_ns = min(taking, key=lambda receipts: receipts[0]).popleft()
        return number, posted_ns

    def posted(self, number: int, source: str, tag: int, now_ns: int) -> bool:
        """Post a receipt; returns whether a message for it has arrived before."""
        keys: Iterable[tuple[str, int]] = ((source, tag),)
        if not source or tag == ANY:
            keys = self._arrived
        waiting = [
            (self._arrived[key][0], key)
            for key in keys
            if source in ("", key[0]) and tag in (ANY, key[1]) and key in self._arrived
        ]
        if waiting:
            _, key = min(waiting)
            self._arrived[key].popleft()
            if not self._arrived[key]:
                del self._arrived[key]  # the next receipt of any sender looks at those that wait
            return True
        self._posted[source, tag].append((next(self._order), number, now_ns))
        return False


class _Turns:
    """What a flow has to send: messages that end, in order, and in turn with them each without."""

    def __init__(self, endless_piece: int) -> None:
        self._endless_piece = endless_piece
        self._with_end: deque[tuple[_Message, Iterator[int]]] = deque()
        self._lines = deque([self._with_end])  # a message without end has one of its own

    def add(self, message: _Message, first: int, step: int) -> None:
        """Queue every `step`th piece of a message from the `first` on."""
        if message.size:
            self._with_end.append((message, _sizes(message.size, first, step)))
        else:
            self._lines.append(deque([(message, repeat(self._endless_piece))]))

    def next_piece(self) -> tuple[_Message, int] | None:
        """The message and the size of the next piece; None: there is none."""
        for _ in range(len(self._lines)):
            line = self._lines[0]
            self._lines.rotate(-1)
            while line:
                message, sizes = line[0]
                size = next(sizes, None)
                if size is not None:
                    return message, size
                line.popleft()
        return None


def _sizes(size: int, first: int, step: int) -> Iterator[int]:
    """The sizes of every `step`th piece of a message from the `first` on.

    They are made when they are due: a message may have millions of pieces.
    """
    offsets = range(first * PIECE, size, step * PIECE)
    return (min(PIECE, size - offset) for offset in offsets)


def _total(size: int, first: int, step: int) -> int:
    """The bytes of the pieces of `_sizes`; 0 of a message without end, which all flows share."""
    if not size:
        return 0
    pieces = len(range(first * PIECE, size, step * PIECE))
    last = (first + (pieces - 1) * step) * PIECE
    return (pieces - 1) * PIECE + min(PIECE, size - last)


# --------------------------------------------------------------------------------------------------
# Programs that go through phases, all hosts in step: collectives and training.
#
# A host's phase is over when all that it sends has completed and all immediates that it expects
# have arrived. A peer may be one phase ahead. The messages of a flow arrive in order, so a surplus
# of immediates belongs to the next phase.


@dataclass(frozen=True, slots=True)
class Phase:
    """Messages from and to this host, all of one size, each with an immediate; or only a time.

    Attributes:
        outgoing: the flows from this host.
        incoming: the flows to this host.
        size: bytes of a message.
        messages: how many messages each flow carries.
        lead: how many messages may be sent on a flow before any has arrived. Each message that
            arrives on `incoming[i]` allows one more on `outgoing[i]`: in a ring, a host passes on
            what it has received.
        compute_ns: how long the phase lasts at least: the host computes.
        meets: whether the NICs of the node wait for one another: nothing is sent.
    """

    outgoing: tuple[int, ...] = ()
    incoming: tuple[int, ...] = ()
    size: int = 0
    messages: int = 1
    lead: int = 1
    compute_ns: int = 0
    meets: bool = False


class Meeting:
    """Where a NIC waits for the others of its node, which work on the same operations.

    They share memory, as the processes of a machine do: no packet is sent. Each looks there so
    often that an operation ends at most a small part of a round trip late.
    """

    def __init__(self, rounds: memoryview, nic: int, look_ns: int) -> None:
        """Take the node's shared memory.

        Args:
            rounds: for each NIC of the node how many rounds it has finished.
            nic: the place of this one there.
            look_ns: how often it looks.
        """
        self._rounds, self._nic, self.look_ns = rounds, nic, look_ns

    def arrive(self, rounds: int) -> None:
        """Say that this NIC has finished so many rounds."""
        self._rounds[self._nic] = rounds

    def is_over(self) -> bool:
        """Whether the others have finished as many."""
        return bool(min(self._rounds) >= self._rounds[self._nic])


class Mailbox:
    """The messages between a NIC and the others of its node; no packet is sent, as in `Meeting`.

    Each sender and receiver share the numbers of all messages of that way, plus 1, in the order in
    which they were sent; 0 has not been sent.

    Attributes:
        look_ns: how often the NIC looks for messages that are still to come.
    """

    def __init__(
        self, sends: Mapping[str, memoryview], receives: Sequence[memoryview], look_ns: int
    ) -> None:
        """Take the shared memory: to each receiver, and from each sender."""
        self._sends, self._receives, self.look_ns = sends, receives, look_ns
        self._sent: Counter[str] = Counter()
        self._taken = [0] * len(receives)
        self._tell: Callable[[str], None] | None = None

    def tell(self, tell: Callable[[str], None]) -> None:
        """Call this with the receiver of each message, so that no NIC has to look: time is ours."""
        self._tell, self.look_ns = tell, NEVER

    def send(self, peer: str, number: int) -> None:
        """Pass a message on."""
        self._sends[peer][self._sent[peer]] = number + 1
        self._sent[peer] += 1
        if self._tell is not None:
            self._tell(peer)

    def received(self) -> Iterator[int]:
        """The messages that have come since the last call."""
        for i, numbers in enumerate(self._receives):
            while self._taken[i] < len(numbers) and (number := numbers[self._taken[i]]):
                self._taken[i] += 1
                yield number - 1

    @property
    def is_awaited(self) -> bool:
        """Whether messages are still to come."""
        return any(n < len(numbers) for n, numbers in zip(self._taken, self._receives, strict=True))


class Phases(Program):
    """Repeats a sequence of phases; each round is one operation."""

    def __init__(
        self,
        phases: Sequence[Phase],
        *,
        kind: str,
        size: int,
        hosts: int,
        depth: int,
        meeting: Meeting | None = None,
    ) -> None:
        """Prepare the first round.

        Args:
            phases: the phases of one round.
            kind: the name of a round, for the record.
            size: the host's buffer in bytes as it is sent, for the record.
            hosts: the number of hosts that take part, for the record.
            depth: the most outstanding messages per flow.
            meeting: where the NICs of the node wait for one another before a round ends.
        """
        super().__init__()
        self._phases = (*phases, Phase(meets=True)) if meeting else tuple(phases)
        self._meeting = meeting
        self._kind, self._size, self._hosts, self._depth = kind, size, hosts, depth
        self._round = self._index = 0
        self._round_start_ns = 0
        self._received: Counter[int] = Counter()  # immediates of this phase and later ones
        self._sent: Counter[int] = Counter()  # in this phase
        self._outstanding: Counter[int] = Counter()
        self._changed = False

    def begin(self, now_ns: int) -> None:
        self._round_start_ns = now_ns
        self._enter(0, now_ns)

    def completed(self, flow: int, _now_ns: int) -> None:
        """Count a completed message of this phase."""
        self._outstanding[flow] -= 1
        self._changed = True

    def received_immediate(self, flow: int, _immediate: int, _now_ns: int) -> None:
        """Count a message of this phase, or of the next one if the sender is ahead."""
        self._received[flow] += 1
        self._changed = True

    def posts(self, now_ns: int) -> list[Post]:
        """Return what this phase may send; if the phase is over, what the next one may send."""
        if not self._changed and now_ns < self.wake_ns:
            return []
        self._changed = False
        posts = self._due()
        while not posts and self._is_over(now_ns):
            self._leave(now_ns)
            posts = self._due()
        if self._meeting is not None and self._phases[self._index].meets:
            self.wake_ns = now_ns + self._meeting.look_ns
        return posts

    def _enter(self, index: int, now_ns: int) -> None:
        phase = self._phases[index]
        self._index = index
        self.wake_ns = now_ns + phase.compute_ns if phase.compute_ns else NEVER
        self._changed = True
        if self._meeting is not None and phase.meets:
            self._meeting.arrive(self._round + 1)

    def _due(self) -> list[Post]:
        phase = self._phases[self._index]
        posts = []
        for i, flow in enumerate(phase.outgoing):
            sent = self._sent[flow]
            passed_on = self._received[phase.incoming[i]] if i < len(phase.incoming) else 0
            until = min(
                phase.messages, phase.lead + passed_on, sent + self._depth - self._outstanding[flow]
            )
            if until > sent:
                posts += [Post(flow, phase.size, immediate=0)] * (until - sent)
                self._sent[flow] = until
                self._outstanding[flow] += until - sent
        return posts

    def _is_over(self, now_ns: int) -> bool:
        phase = self._phases[self._index]
        if phase.compute_ns and now_ns < self.wake_ns:
            return False
        if self._meeting is not None and phase.meets:
            return self._meeting.is_over()
        return all(
            self._sent[flow] == phase.messages and not self._outstanding[flow]
            for flow in phase.outgoing
        ) and all(self._received[flow] >= phase.messages for flow in phase.incoming)

    def _leave(self, now_ns: int) -> None:
        phase = self._phases[self._index]
        self._sent.clear()
        for flow in phase.incoming:
            self._received[flow] -= phase.messages
        following = (self._index + 1) % len(self._phases)
        if following == 0:
            start_ns, self._round_start_ns = self._round_start_ns, now_ns
            self.finished.append(
                Operation(self._kind, self._round, start_ns, now_ns, self._size, self._hosts)
            )
            self._round += 1
        self._enter(following, now_ns)


def _endless_piece(scenario: Scenario, depth: int) -> int:
    """Bytes of a piece of a message without end: all but one of those outstanding fill the window.

    So the sender never waits for the next piece, and others do not wait longer than they must.
    """
    topology, transport = scenario.topology, scenario.transport
    bdps = transport.window if isinstance(transport, Mrc) else Mrc().window
    needed = bdps * topology.planes * topology.bdp_bytes / (depth - 1)
    return min(PIECE, ceil(needed / PAYLOAD_MTU) * PAYLOAD_MTU)


def program_of(
    scenario: Scenario,
    job: Job,
    host: str,
    sends: Sequence[FlowEnd],
    receives: Sequence[FlowEnd],
    meeting: Meeting | Mailbox | None = None,
) -> Program:
    """The program of a host in a job, with the flows that leave it and those that end at it."""
    workload, topology = job.workload, scenario.topology
    match workload:
        case model.WriteBw() | model.Permutation() | model.Incast():
            return WriteBw([end.flow for end in sends], workload.message_size, workload.depth)
        case model.Graphed():
            return Operations(
                workload.graph,
                host,
                sends,
                depth=workload.depth,
                endless_piece=_endless_piece(scenario, workload.depth),
                dilation=topology.dilation,
                unit_ns=workload.unit_ns,
                label=job.label,
                mailbox=meeting if isinstance(meeting, Mailbox) else None,
            )
        case model.Program():
            raise ValueError("programs of the user's own run in processes of their own")
        case _:
            rails = workload.rails(topology)
            (hosts,) = (rail for rail in rails if host in rail)
            lanes = 1 + max(end.lane for end in sends)
            return Phases(
                _Member(host, hosts, sends, receives).phases(workload, topology, lanes),
                kind=job.label(workload.operation),
                size=workload.sent_bytes(topology, lanes),
                hosts=sum(map(len, rails)),
                depth=model.outstanding(workload, topology),
                meeting=meeting if isinstance(meeting, Meeting) else None,
            )


class Part(NamedTuple):
    """A host's part in one of its jobs.

    Attributes:
        start_ns: when the job begins, from the start of the run.
        program: what the host does in it.
        flows: the job's flows from and to the host.
    """

    start_ns: int
    program: Program
    flows: Collection[int]


class Jobs(Program):
    """All that a host does: its part in each of its jobs, from that job's start on."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self._parts = parts
        self._programs = [part.program for part in parts]
        self._waiting = sorted(parts, key=lambda part: part.start_ns)
        self._of_flow = {flow: part.program for part in parts for flow in part.flows}
        self._start_ns = 0
        for program in self._programs:
            program.finished = self.finished

    def begin(self, now_ns: int) -> None:
        self._start_ns = now_ns
        self._begin_due(now_ns)

    def completed(self, flow: int, now_ns: int) -> None:
        """Tell the program whose flow it is."""
        self._of_flow[flow].completed(flow, now_ns)

    def received_immediate(self, flow: int, immediate: int, now_ns: int) -> None:
        """Tell the program whose flow it is."""
        self._of_flow[flow].received_immediate(flow, immediate, now_ns)

    def posts(self, now_ns: int) -> list[Post]:
        """Return what all programs that have begun post now, in the order of the jobs."""
        self._begin_due(now_ns)
        waiting = {id(part.program) for part in self._waiting}
        begun = (program for program in self._programs if id(program) not in waiting)
        due = [post for program in begun for post in program.posts(now_ns)]
        self._set_wake()
        return due

    @property
    def begun_by_kind(self) -> dict[str, int]:
        """How many operations with an end it has begun, by what they are called."""
        return dict(sum((program.begun for program in self._programs), Counter()))

    def _begin_due(self, now_ns: int) -> None:
        while self._waiting and self._start_ns + self._waiting[0].start_ns <= now_ns:
            self._waiting.pop(0).program.begin(now_ns)
        self._set_wake()

    def _set_wake(self) -> None:
        self.wake_ns = min((program.wake_ns for program in self._programs), default=NEVER)
        if self._waiting:
            self.wake_ns = min(self.wake_ns, self._start_ns + self._waiting[0].start_ns)


@dataclass(frozen=True, slots=True)
class _Member:
    """One host's place in the group of a collective.

    Attributes:
        host: the host.
        hosts: all hosts of the group on the same rail, in the order of the ring.
        sends: the flows from the host.
        receives: the flows to the host.
    """

    host: str
    hosts: Sequence[str]
    sends: Sequence[FlowEnd]
    receives: Sequence[FlowEnd]

    def phases(self, workload: model.Collective, topology: Topology, lanes: int) -> list[Phase]:
        """The phases of one round of a collective or of training."""
        size = workload.longest_bytes(topology, lanes)
        match workload:
            case model.SendRecv():
                return [self._ring(size)]
            case model.AllToAll():
                outgoing = tuple(end.flow for end in self.sends)
                incoming = tuple(end.flow for end in self.receives)
                return [Phase(outgoing, incoming, size)]
            case model.AllReduce():
                return [self._all_reduce(workload, topology, size)]
            case model.Training():
                all_reduce = self._all_reduce(workload, topology, size)
                return [Phase(compute_ns=workload.compute), all_reduce, *self._barrier()]

    def _ring(self, size: int, messages: int = 1, lead: int = 1) -> Phase:
        """Messages to the next host of the ring, from the one before."""
        place = self.hosts.index(self.host)
        following = self.hosts[(place + 1) % len(self.hosts)]
        return Phase(
            _flows(following, self.sends),
            _flows(self.hosts[place - 1], self.receives),
            size,
            messages,
            lead,
        )

    def _all_reduce(
        self, workload: model.AllReduce | model.Training, topology: Topology, size: int
    ) -> Phase:
        """All-reduce around a ring: each chunk goes around twice, less one hop each time.

        The first time it gathers every rank's share of the sum, the second time it brings the sum
        to every rank. Each lane of each rail is a ring of its own, as a channel of NCCL is. Hops
        within a node take no time, so it may be ahead by as many chunks as it has ranks.
        """
        lead = workload.slices * model.rail_count(workload.hosts, topology)
        return self._ring(size, workload.messages(topology), lead)

    def _barrier(self) -> list[Phase]:
        """One byte from every host to the first; when it has all, one byte back to each."""
        first, *others = self.hosts
        if self.host != first:
            return [Phase(_flows(first, self.sends)[:1], _flows(first, self.receives)[:1], size=1)]
        incoming = tuple(_flows(peer, self.receives)[0] for peer in others)
        outgoing = tuple(_flows(peer, self.sends)[0] for peer in others)
        return [Phase((), incoming, size=1), Phase(outgoing, (), size=1)]


def _flows(peer: str, ends: Sequence[FlowEnd]) -> tuple[int, ...]:
    """The flows to or from a peer, lane by lane."""
    return tuple(end.flow for end in sorted(ends, key=lambda end: end.lane) if end.peer == peer)
