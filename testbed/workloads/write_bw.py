"""RDMA WRITEs back to back, as perftest's `ib_write_bw`."""

from collections.abc import Sequence

from testbed.mrc import NEVER
from testbed.workloads.program import Operation, Post


class WriteBw:
    """Keeps `depth` WRITEs outstanding on every flow."""

    def __init__(self, flows: Sequence[int], size: int, depth: int) -> None:
        """`flows` from here, with messages of `size` bytes."""
        self.wake_ns = NEVER
        self.finished: list[Operation] = []
        self._size = size
        self._due = [Post(flow, size) for _ in range(depth) for flow in flows]

    def begin(self, now_ns: int) -> None:
        """Everything is due from the start."""

    def completed(self, flow: int, _now_ns: int) -> None:
        """One is followed by the next."""
        self._due.append(Post(flow, self._size))

    def told(self, flow: int, now_ns: int) -> None:
        """Nobody is told of plain WRITEs."""

    def posts(self, _now_ns: int) -> list[Post]:
        """As many as have completed since."""
        due, self._due = self._due, []
        return due
