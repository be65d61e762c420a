"""A program: what one host does in a workload, sans-IO.

Whoever drives it calls `begin` once, then tells it what has happened (`completed`, `told`), takes
the messages to post now (`posts`), and comes back no later than `wake_ns`. It knows flows by their
number, and no time but what it is given.
"""

from typing import NamedTuple, Protocol


class End(NamedTuple):
    """One end of a flow, as its host sees it.

    Attributes:
        flow: its number.
        peer: the host at the other end.
        lane: which of the queue pairs to that host.
    """

    flow: int
    peer: str
    lane: int


class Post(NamedTuple):
    """A message to post.

    Attributes:
        flow: on which flow.
        size: its bytes.
        tell: whether the receiver's program is told of it (a WRITE with immediate).
    """

    flow: int
    size: int
    tell: bool = False


class Operation(NamedTuple):
    """What a host has finished: a collective, a training step, a transfer. Times in ns.

    Attributes:
        kind: what it was.
        number: which of its kind, from 0; the same at every host that took part.
        start_ns: when this host began it.
        end_ns: when this host was done with it.
        size: the host's buffer, in bytes.
        hosts: how many take part.
    """

    kind: str
    number: int
    start_ns: int
    end_ns: int
    size: int
    hosts: int


class Program(Protocol):
    """One host's part in a workload. Times in ns.

    Attributes:
        wake_ns: when it wants `posts` to be called even if nothing happens; `NEVER` if never.
        finished: the operations finished so far; whoever takes them clears the list.
    """

    wake_ns: int
    finished: list[Operation]

    def begin(self, now_ns: int) -> None:
        """The workload starts."""

    def completed(self, flow: int, now_ns: int) -> None:
        """The oldest message outstanding on a flow from here has completed."""

    def told(self, flow: int, now_ns: int) -> None:
        """The next message with `tell` of a flow to here is in memory, and so is all before it."""

    def posts(self, now_ns: int) -> list[Post]:
        """What to post now: no more than the flow's depth is ever outstanding."""
