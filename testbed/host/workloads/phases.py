"""Programs that go through phases, all hosts in step: collectives and training.

A host's phase is over when all that it sends has completed and all immediates that it expects have
arrived. A peer may be one phase ahead. The messages of a flow arrive in order, so a surplus of
immediates belongs to the next phase.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.host.workloads.program import Operation, Post, Program
from testbed.mrc import NEVER


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
    """

    outgoing: tuple[int, ...] = ()
    incoming: tuple[int, ...] = ()
    size: int = 0
    messages: int = 1
    lead: int = 1
    compute_ns: int = 0


class Phases(Program):
    """Repeats a sequence of phases; each round is one operation."""

    def __init__(
        self, phases: Sequence[Phase], *, kind: str, size: int, hosts: int, depth: int
    ) -> None:
        """Prepare the first round.

        Args:
            phases: the phases of one round.
            kind: the name of a round, for the record.
            size: the host's buffer in bytes as it is sent, for the record.
            hosts: the number of hosts that take part, for the record.
            depth: the most outstanding messages per flow.
        """
        super().__init__()
        self._phases = tuple(phases)
        self._kind, self._size, self._hosts, self._depth = kind, size, hosts, depth
        self._round = self._index = 0
        self._round_start_ns = 0
        self._received: Counter[int] = Counter()  # immediates of this phase and later ones
        self._sent: Counter[int] = Counter()  # in this phase
        self._outstanding: Counter[int] = Counter()
        self._changed = False

    def begin(self, now_ns: int) -> None:
        """Begin the first phase."""
        self._round_start_ns = now_ns
        self._enter(0, now_ns)

    def completed(self, flow: int, _now_ns: int) -> None:
        """Count a completed message of this phase."""
        self._outstanding[flow] -= 1
        self._changed = True

    def received_immediate(self, flow: int) -> None:
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
        return posts

    def _enter(self, index: int, now_ns: int) -> None:
        phase = self._phases[index]
        self._index = index
        self.wake_ns = now_ns + phase.compute_ns if phase.compute_ns else NEVER
        self._changed = True

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
                posts += [Post(flow, phase.size, immediate=True)] * (until - sent)
                self._sent[flow] = until
                self._outstanding[flow] += until - sent
        return posts

    def _is_over(self, now_ns: int) -> bool:
        phase = self._phases[self._index]
        if phase.compute_ns and now_ns < self.wake_ns:
            return False
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
