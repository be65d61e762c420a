"""Transfers that begin each at its time, as a connection matrix says, and end when all has arrived.

A transfer goes by the flows to its destination, in pieces of at most `PIECE` bytes, turn by turn.
Pieces of several transfers on one flow are sent in the order in which the transfers begin.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from testbed.model.workload import PIECE
from testbed.mrc import NEVER
from testbed.workloads.program import End, Operation, Post


class Transfer:
    """One transfer from here. Times in ns from the start of the workload."""

    __slots__ = ("begun_ns", "dst", "number", "size", "start_ns", "under_way")

    def __init__(self, number: int, dst: str, start_ns: int, size: int) -> None:
        """`number` in the matrix, `size` in bytes."""
        self.number = number
        self.dst = dst
        self.start_ns = start_ns
        self.size = size
        self.begun_ns = 0
        self.under_way = 0


class Transfers:
    """Sends the transfers of one host."""

    def __init__(self, transfers: Sequence[Transfer], ends: Sequence[End], depth: int) -> None:
        """`ends` are the flows from here, each with `depth` messages outstanding at most."""
        self.wake_ns = NEVER
        self.finished: list[Operation] = []
        self._waiting = deque(sorted(transfers, key=lambda one: (one.start_ns, one.number)))
        self._flows: dict[str, list[int]] = defaultdict(list)
        for end in ends:
            self._flows[end.peer].append(end.flow)
        self._depth = depth
        self._queued: dict[int, deque[tuple[Transfer, int]]] = {e.flow: deque() for e in ends}
        self._posted: dict[int, deque[Transfer]] = {end.flow: deque() for end in ends}
        self._start_ns = 0
        self._stirred: set[int] = set()

    def begin(self, now_ns: int) -> None:
        """Times count from now."""
        self._start_ns = now_ns
        self._set_alarm()

    def completed(self, flow: int, now_ns: int) -> None:
        """A piece has arrived; with the last one its transfer is over."""
        transfer = self._posted[flow].popleft()
        transfer.under_way -= 1
        self._stirred.add(flow)
        if not transfer.under_way:
            self.finished.append(
                Operation(
                    "transfer", transfer.number, transfer.begun_ns, now_ns, transfer.size, hosts=1
                )
            )

    def told(self, flow: int, now_ns: int) -> None:
        """Receivers only receive."""

    def posts(self, now_ns: int) -> list[Post]:
        """Pieces of the transfers that have begun, as far as the depth lets them."""
        while self._waiting and self._start_ns + self._waiting[0].start_ns <= now_ns:
            self._enqueue(self._waiting.popleft(), now_ns)
            self._set_alarm()
        posts = []
        for flow in sorted(self._stirred):
            queued, posted = self._queued[flow], self._posted[flow]
            while queued and len(posted) < self._depth:
                transfer, size = queued.popleft()
                posted.append(transfer)
                posts.append(Post(flow, size))
        self._stirred.clear()
        return posts

    def _enqueue(self, transfer: Transfer, now_ns: int) -> None:
        transfer.begun_ns = now_ns
        flows = self._flows[transfer.dst]
        for i, offset in enumerate(range(0, transfer.size, PIECE)):
            flow = flows[i % len(flows)]
            self._queued[flow].append((transfer, min(PIECE, transfer.size - offset)))
            self._stirred.add(flow)
            transfer.under_way += 1

    def _set_alarm(self) -> None:
        self.wake_ns = self._start_ns + self._waiting[0].start_ns if self._waiting else NEVER
