"""What faults do to the packets on the wire of one link direction."""

from random import Random
from typing import Final

from testbed.model.fabric.addressing import flow_label_of_ev
from testbed.model.faults.impairment import Impairment
from testbed.mrc import NEVER
from testbed.sim.packet import Packet

_RANDOM_BITS: Final = 32

CUT: Final = "cut"
BLACKHOLED: Final = "blackholed"
LOST: Final = "lost"
CORRUPTED: Final = "corrupted"


def random_stream(seed: int, name: str, purpose: str) -> Random:
    """The random numbers of one link direction for one purpose, repeated by the run's seed."""
    return Random(f"{seed}/{name}/{purpose}")  # noqa: S311 - repeatable chance


class Outages:
    """The periods in which a wire lost every packet; those long past are forgotten."""

    def __init__(self) -> None:
        self._from_ns: list[int] = []
        self._until_ns: list[int] = []

    def set(self, now_ns: int, memory_ns: int, *, dark: bool) -> None:
        """Begin or end an outage; forget those that ended more than `memory_ns` ago."""
        if dark == (self._until_ns[-1:] == [NEVER]):
            return
        if not dark:
            self._until_ns[-1] = now_ns
            return
        while self._until_ns and self._until_ns[0] < now_ns - memory_ns:
            del self._from_ns[0], self._until_ns[0]
        self._from_ns.append(now_ns)
        self._until_ns.append(NEVER)

    def cover(self, time_ns: int) -> bool:
        """Whether the wire lost every packet at that time."""
        return any(
            begin <= time_ns < end for begin, end in zip(self._from_ns, self._until_ns, strict=True)
        )


class Wire:
    """An impaired wire. Each kind of chance has a random stream of its own."""

    def __init__(self, name: str, seed: int) -> None:
        """Begin without impairments; `name` is the link direction's."""
        self._cuts = Outages()
        self._blackholes = Outages()
        self._loss = self._corruption = self._path_loss = 0.0
        self._path_bits = 0
        self._losses = random_stream(seed, name, "loss")
        self._corruptions = random_stream(seed, name, "corrupt")
        self._path_losses = random_stream(seed, name, "path")

    def impair(self, now_ns: int, state: Impairment, memory_ns: int) -> None:
        """Bring the wire into a state from now on.

        Args:
            now_ns: the time.
            state: the state.
            memory_ns: how long a packet may have been on the wire, at most.
        """
        self._cuts.set(now_ns, memory_ns, dark=state.cut)
        self._blackholes.set(now_ns, memory_ns, dark=state.blackhole)
        self._loss = state.loss
        self._corruption = state.corrupt
        self._path_loss, self._path_bits = state.path_loss, state.path_bits

    def fate(self, left_ns: int, packet: Packet) -> str:
        """What happens to a packet that left the port at that time; draws random numbers.

        Returns the reason why it does not arrive: `CUT`, `BLACKHOLED` or `LOST`; or `CORRUPTED` if
        it arrives with a bit flipped; or nothing.
        """
        if self._cuts.cover(left_ns):
            return CUT
        if self._blackholes.cover(left_ns):
            return BLACKHOLED
        if self._loss and self._losses.random() < self._loss:
            return LOST
        if (
            self._path_loss
            and flow_label_of_ev(packet.datagram.ev) == self._path_bits
            and self._path_losses.random() < self._path_loss
        ):
            return LOST
        if self._corruption and self._corruptions.random() < self._corruption:
            packet.flip(self._corruptions.getrandbits(_RANDOM_BITS))
            return CORRUPTED
        return ""
