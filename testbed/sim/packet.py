"""What crosses the simulated fabric."""

from typing import TYPE_CHECKING, Final

from testbed.model.fabric.topology import ETHERNET_HEADER
from testbed.mrc import Datagram
from testbed.mrc.constants import ECT0, IPV6_BYTES
from testbed.mrc.wire.codec import TRIMMED_BYTES
from testbed.sim.engine import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.sim.link import LinkDirection

OUTER_BYTES: Final = ETHERNET_HEADER + IPV6_BYTES
TRIMMED_WIRE_BYTES: Final = OUTER_BYTES + TRIMMED_BYTES


class Packet(Event):
    """A datagram on its way. On a link, what happens next is that it reaches the other end.

    Attributes:
        datagram: what the core handed over: the inner packet.
        route: the link directions that it crosses, in order.
        hop: which of them it is on.
        deliver: called with the time and the packet where the route ends.
        size: bytes on the wire, Ethernet header included.
        dscp: DSCP of the outer header.
        ecn: ECN field of the outer header.
        trimmed: whether a switch has cut its payload off.
        flips: bits that the way has flipped, as (byte, mask) of the inner packet.
    """

    __slots__ = ("datagram", "deliver", "dscp", "ecn", "flips", "hop", "route", "size", "trimmed")

    def __init__(
        self,
        datagram: Datagram,
        route: "tuple[LinkDirection, ...]",
        deliver: "Callable[[int, Packet], None]",
    ) -> None:
        """Stand before the first hop."""
        self.datagram = datagram
        self.route = route
        self.deliver = deliver
        self.hop = 0
        self.size = (
            OUTER_BYTES + len(datagram.header) + len(datagram.payload) + len(datagram.trailer)
        )
        self.dscp = datagram.dscp
        self.ecn = ECT0
        self.trimmed = False
        self.flips: list[tuple[int, int]] = []

    def happen(self, now_ns: int) -> None:
        """Reach the end of the link."""
        self.route[self.hop].arrive(now_ns, self)

    def trim(self, dscp: int) -> None:
        """Lose the payload: what is left is a header in another class, without a mark."""
        self.size = TRIMMED_WIRE_BYTES
        self.dscp = dscp
        self.ecn = 0
        self.trimmed = True

    def flip(self, random_bits: int) -> None:
        """Flip one bit behind the outer header."""
        at = (random_bits >> 3) % (self.size - OUTER_BYTES)
        self.flips.append((at, 1 << (random_bits & 7)))

    def inner(self) -> bytes:
        """The inner packet as it arrives."""
        data = self.datagram.join()
        if self.trimmed:
            data = data[:TRIMMED_BYTES]
        if self.flips:
            damaged = bytearray(data)
            for at, mask in self.flips:
                if at < len(damaged):
                    damaged[at] ^= mask
            data = bytes(damaged)
        return data
