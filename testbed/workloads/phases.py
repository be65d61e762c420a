"""Programs that go from phase to phase, all hosts in step: collectives, training.

A phase is over at a host when all that it sends has completed and all that it is to be told has
come. Another host may be a phase ahead: its messages are counted for the phase that they belong to,
which the order of each flow tells.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.mrc import NEVER
from testbed.workloads.program import Operation, Post


@dataclass(frozen=True, slots=True)
class Compute:
    """A time in which a host sends nothing.

    Attributes:
        duration_ns: how long.
    """

    duration_ns: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Messages from here and to here, all of one size; the receiver is told of each.

    Attributes:
        outs: flows from here.
        ins: flows to here.
        size: bytes of a message.
        messages: how many go by each flow.
        lead: how many may be sent before any has come. Each that comes by `ins[i]` lets another go
            by `outs[i]`: around a ring, a host passes on what it has got.
    """

    outs: tuple[int, ...]
    ins: tuple[int, ...]
    size: int
    messages: int = 1
    lead: int = 1


class Phases:
    """Goes through its phases again and again; each round is an operation."""

    def __init__(
        self, phases: Sequence[Compute | Exchange], *, kind: str, size: int, hosts: int, depth: int
    ) -> None:
        """Set out.

        Args:
            phases: one round.
            kind: what a round is called.
            size: the host's buffer, in bytes, for the record.
            hosts: how many take part.
            depth: messages outstanding per flow at most.
        """
        self.wake_ns = NEVER
        self.finished: list[Operation] = []
        self._phases = tuple(phases)
        self._kind, self._size, self._hosts, self._depth = kind, size, hosts, depth
        self._round = self._index = 0
        self._round_start_ns = 0
        self._told: Counter[int] = Counter()  # in this phase and of later ones
        self._sent: Counter[int] = Counter()  # in this phase
        self._outstanding: Counter[int] = Counter()
        self._stirred = False

    def begin(self, now_ns: int) -> None:
        """Begin the first phase."""
        self._round_start_ns = now_ns
        self._enter(0, now_ns)

    def completed(self, flow: int, _now_ns: int) -> None:
        """A message of this phase: the next one waits for all of them."""
        self._outstanding[flow] -= 1
        self._stirred = True

    def told(self, flow: int, _now_ns: int) -> None:
        """A message of this phase, or of a later one if the sender is ahead."""
        self._told[flow] += 1
        self._stirred = True

    def posts(self, now_ns: int) -> list[Post]:
        """What this phase lets go; where it is over, the next one's."""
        if not self._stirred and now_ns < self.wake_ns:
            return []
        self._stirred = False
        posts = self._due()
        while not posts and self._over(now_ns):
            self._leave(now_ns)
            posts = self._due()
        return posts

    def _enter(self, index: int, now_ns: int) -> None:
        phase = self._phases[index]
        self._index = index
        self.wake_ns = now_ns + phase.duration_ns if isinstance(phase, Compute) else NEVER
        self._stirred = True

    def _due(self) -> list[Post]:
        phase = self._phases[self._index]
        if isinstance(phase, Compute):
            return []
        posts = []
        for i, flow in enumerate(phase.outs):
            sent = self._sent[flow]
            passed_on = self._told[phase.ins[i]] if i < len(phase.ins) else 0
            until = min(
                phase.messages, phase.lead + passed_on, sent + self._depth - self._outstanding[flow]
            )
            if until > sent:
                posts += [Post(flow, phase.size, tell=True)] * (until - sent)
                self._sent[flow] = until
                self._outstanding[flow] += until - sent
        return posts

    def _over(self, now_ns: int) -> bool:
        phase = self._phases[self._index]
        if isinstance(phase, Compute):
            return now_ns >= self.wake_ns
        return all(
            self._sent[flow] == phase.messages and not self._outstanding[flow]
            for flow in phase.outs
        ) and all(self._told[flow] >= phase.messages for flow in phase.ins)

    def _leave(self, now_ns: int) -> None:
        phase = self._phases[self._index]
        if isinstance(phase, Exchange):
            self._sent.clear()
            for flow in phase.ins:
                self._told[flow] -= phase.messages
        if self._index + 1 < len(self._phases):
            self._enter(self._index + 1, now_ns)
            return
        self.finished.append(
            Operation(
                self._kind, self._round, self._round_start_ns, now_ns, self._size, self._hosts
            )
        )
        self._round += 1
        self._round_start_ns = now_ns
        self._enter(0, now_ns)
