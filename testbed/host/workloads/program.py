"""The interface of a program: one host's part in a workload, sans-IO."""

from typing import NamedTuple

from testbed.mrc import NEVER


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
        immediate: whether it is a WRITE with immediate, which the receiver's program learns of.
    """

    flow: int
    size: int
    immediate: bool = False


class Operation(NamedTuple):
    """An operation that a host has finished: a collective, a training step, a transfer.

    Attributes:
        kind: the name of the operation, such as `allreduce`.
        number: its index among those of its kind, from 0; equal at all hosts that take part.
        start_ns: when this host began it.
        end_ns: when this host finished it.
        size: the host's buffer in bytes, as it is sent; of a transfer, its size.
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
        finished: the operations finished so far; the driver clears the list as it records them.
    """

    def __init__(self) -> None:
        self.wake_ns = NEVER
        self.finished: list[Operation] = []

    def begin(self, now_ns: int) -> None:
        """Start the workload."""

    def completed(self, flow: int, now_ns: int) -> None:
        """Handle the completion of the oldest outstanding message of a flow from this host."""

    def received_immediate(self, flow: int) -> None:
        """Handle the next WRITE with immediate of a flow to this host.

        It and all messages of the flow before it are in this host's memory.
        """

    def posts(self, now_ns: int) -> list[Post]:
        """Return the messages to post now, never more per flow than its depth leaves room for."""
        raise NotImplementedError
