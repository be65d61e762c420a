"""Programs whose flows are independent of each other: WRITEs back to back, and timed transfers."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from math import ceil, inf

from testbed.host.workloads.program import FlowEnd, Operation, Post, Program
from testbed.model.workload import PIECE, Connections
from testbed.mrc import NEVER


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


class Transfer:
    """One transfer from this host. Times in ns from the start of the workload."""

    __slots__ = ("begun_ns", "dst", "number", "outstanding", "size", "start_ns")

    def __init__(self, number: int, dst: str, start_ns: int, size: int) -> None:
        """Describe it: its row in the connection matrix, its receiver, start time and bytes."""
        self.number = number
        self.dst = dst
        self.start_ns = start_ns
        self.size = size
        self.begun_ns = 0
        self.outstanding: float = 0


class Transfers(Program):
    """Sends the transfers of one host, each from its start time on, as a connection matrix says.

    A transfer goes in pieces of at most `PIECE` bytes, which the flows to its receiver take in
    turn, first those that have been given the fewest bytes so far: so short transfers share the
    flows as well. On one flow pieces are sent in the order in which their transfers begin.
    """

    def __init__(self, transfers: Sequence[Transfer], ends: Sequence[FlowEnd], depth: int) -> None:
        """Queue the transfers.

        Args:
            transfers: all transfers of this host.
            ends: the flows from this host.
            depth: the most outstanding messages per flow.
        """
        super().__init__()
        self._waiting = deque(sorted(transfers, key=lambda transfer: transfer.start_ns))
        self._given_bytes: dict[str, dict[int, float]] = defaultdict(dict)  # by receiver and flow
        for end in ends:
            self._given_bytes[end.peer][end.flow] = 0
        self._depth = depth
        self._queued: dict[int, deque[tuple[Transfer, Iterator[int]]]] = defaultdict(deque)
        self._posted: dict[int, deque[Transfer]] = defaultdict(deque)
        self._start_ns = 0
        self._ready_flows: set[int] = set()

    def begin(self, now_ns: int) -> None:
        """Count start times from now on."""
        self._start_ns = now_ns
        self._set_wake()

    def completed(self, flow: int, now_ns: int) -> None:
        """Note that a piece has arrived; the last piece finishes its transfer."""
        transfer = self._posted[flow].popleft()
        transfer.outstanding -= 1
        self._ready_flows.add(flow)
        if not transfer.outstanding:
            self.finished.append(
                Operation(
                    Connections.operation,
                    transfer.number,
                    transfer.begun_ns,
                    now_ns,
                    transfer.size,
                    hosts=1,
                )
            )

    def posts(self, now_ns: int) -> list[Post]:
        """Return pieces of the transfers that have begun, as many as the depth allows."""
        while self._waiting and self._start_ns + self._waiting[0].start_ns <= now_ns:
            self._enqueue(self._waiting.popleft(), now_ns)
            self._set_wake()
        posts = []
        for flow in sorted(self._ready_flows):
            queued, posted = self._queued[flow], self._posted[flow]
            while queued and len(posted) < self._depth:
                transfer, sizes = queued[0]
                size = next(sizes, None)
                if size is None:
                    queued.popleft()
                    continue
                posted.append(transfer)
                posts.append(Post(flow, size))
        self._ready_flows.clear()
        return posts

    def _enqueue(self, transfer: Transfer, now_ns: int) -> None:
        transfer.begun_ns = now_ns
        given = self._given_bytes[transfer.dst]
        pieces = ceil(transfer.size / PIECE) if transfer.size else inf
        transfer.outstanding = pieces
        for lane, flow in enumerate(sorted(given, key=given.__getitem__)):
            if lane < pieces:
                sizes = _sizes(transfer.size, lane, len(given))
                given[flow] += _total(transfer.size, lane, len(given))
                self._queued[flow].append((transfer, sizes))
                self._ready_flows.add(flow)

    def _set_wake(self) -> None:
        self.wake_ns = self._start_ns + self._waiting[0].start_ns if self._waiting else NEVER


def _sizes(size: int, first: int, step: int) -> Iterator[int]:
    """The sizes of every `step`th piece of a transfer from the `first` on; of size 0 without end.

    They are made when they are due: a transfer may have millions of pieces.
    """
    if not size:
        return repeat(PIECE)
    offsets = range(first * PIECE, size, step * PIECE)
    return (min(PIECE, size - offset) for offset in offsets)


def _total(size: int, first: int, step: int) -> float:
    """The bytes of the pieces of `_sizes`."""
    if not size:
        return inf
    pieces = len(range(first * PIECE, size, step * PIECE))
    last = (first + (pieces - 1) * step) * PIECE
    return (pieces - 1) * PIECE + min(PIECE, size - last)
