"""Packets in the simulated fabric, and the hops of their routes."""

from collections.abc import Callable
from typing import Final

from testbed.host.rounds import OUTER_BYTES
from testbed.mrc import Datagram
from testbed.mrc.constants import ECT0
from testbed.mrc.wire.codec import sealed_trailer
from testbed.mrc.wire.packets import TRIMMED_BYTES, kept_bytes
from testbed.sim.engine import Event

TRIMMABLE_WIRE_BYTES: Final = OUTER_BYTES + 2 * TRIMMED_BYTES
"""Only longer packets are trimmed: a reliability probe is as short as what is left of a WRITE.
Ours; the link model of the emulation does the same."""


class Hop(Event):
    """A link direction on a packet's route."""

    def offer(self, now_ns: int, packet: "Packet") -> None:
        """Accept a packet that is to leave by this port."""
        raise NotImplementedError

    def arrive(self, now_ns: int, packet: "Packet") -> None:
        """Hand a packet that has crossed the wire to the next hop, or to the host."""
        raise NotImplementedError

    def count_waiting(self, now_ns: int, size: int) -> None:
        """Count bytes that came over this link and now wait at the next switch.

        A negative `size` is bytes that wait no more.
        """
        raise NotImplementedError


Deliver = Callable[[int, "Packet"], None]
"""Receives a packet at the end of its route, at a time in ns."""


class Packet(Event):
    """A datagram in flight. As an event it is the arrival at the end of the link that it is on.

    Attributes:
        datagram: what the core handed over: the inner packet.
        route: the link directions that it crosses, in order.
        hop: the index of the current one.
        deliver: called with the time and the packet at the end of the route.
        size: bytes on the wire, Ethernet header included.
        dscp: DSCP of the outer header.
        ecn: ECN field of the outer header.
        trimmed: whether a switch has cut off its payload.
        flips: the bits flipped on the way, as (byte, mask) of the inner packet.
    """

    __slots__ = ("datagram", "deliver", "dscp", "ecn", "flips", "hop", "route", "size", "trimmed")

    def __init__(self, datagram: Datagram, route: tuple[Hop, ...], deliver: Deliver) -> None:
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
        self.flips: tuple[tuple[int, int], ...] = ()

    def happen(self, now_ns: int) -> None:
        """Reach the end of the link."""
        self.route[self.hop].arrive(now_ns, self)

    def trim(self, dscp: int) -> None:
        """Cut off the payload: the headers travel on in another class, without an ECN mark."""
        self.size = OUTER_BYTES + kept_bytes(self.datagram.header)
        self.dscp = dscp
        self.ecn = 0
        self.trimmed = True

    def flip(self, random_bits: int) -> None:
        """Flip one bit behind the outer header, chosen by random bits."""
        at = (random_bits >> 3) % (self.size - OUTER_BYTES)
        self.flips += ((at, 1 << (random_bits & 7)),)

    def inner(self) -> bytes:
        """The inner packet as it arrives, trimmed and damaged."""
        datagram = self.datagram
        if self.trimmed:
            data = datagram.join()
            data = data[: kept_bytes(data)]
        else:
            header, payload = datagram.header, datagram.payload
            data = b"".join((header, payload, sealed_trailer(header, payload, datagram.trailer)))
        if self.flips:
            damaged = bytearray(data)
            for at, mask in self.flips:
                if at < len(damaged):
                    damaged[at] ^= mask
            data = bytes(damaged)
        return data
