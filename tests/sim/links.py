"""A single link direction with packets of chosen sizes and classes: what its tests share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.host.rounds import OUTER_BYTES
from testbed.model.fabric.topology import Shape
from testbed.model.faults.impairment import Impairment
from testbed.mrc import Datagram, DscpClasses
from testbed.mrc.wire.codec import encode_write
from testbed.mrc.wire.kinds import TRIMMED_BYTES, Opcode
from testbed.sim.engine import Engine
from testbed.sim.link import LinkDirection, Packet

DSCP = DscpClasses()
BYTE_A_NS = 8_000_000_000
"""A rate of one byte in a ns."""

TRIMMED_WIRE_BYTES = OUTER_BYTES + TRIMMED_BYTES
"""What is left on the wire of a trimmed WRITE with TSETH; without it there are 4 bytes less."""


def write_header(dscp: int, *, timed: bool = True) -> bytes:
    """The header of a WRITE, with TSETH or without it."""
    host, timestamp = bytes(16), 0 if timed else None
    opcode = Opcode.WRITE_MIDDLE
    header, _ = encode_write(
        host, host, 0, 17, 0, opcode, False, False, 0, 0, timestamp, 0, 0, 1 << 20, b"", dscp
    )
    return header


def offer_over(
    engine: Engine,
    route: tuple[LinkDirection, ...],
    dscp: int,
    deliver: Callable[[int, Packet], None],
    size: int = 1000,
    *,
    timed: bool = True,
) -> None:
    """Offer a WRITE of that size to the first direction of a route now."""
    header = write_header(dscp, timed=timed)
    datagram = Datagram(0, dscp, header, bytes(size - OUTER_BYTES - len(header)), b"")
    route[0].offer(engine.now_ns, Packet(datagram, route, deliver))


@dataclass(frozen=True)
class Arrived:
    """One packet at the far end: its number, when, how."""

    number: int
    at_ns: int
    size: int
    dscp: int
    ecn: int
    flips: int


class OneLink:
    """A direction, what is offered to it and what comes out."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        self.engine = Engine()
        self.link = LinkDirection("a>b", shape, self.engine, DSCP, seed)
        self.arrived: list[Arrived] = []
        self.offered = 0

    def offer(self, size: int = 1000, dscp: int = DSCP.trimmable, *, timed: bool = True) -> None:
        """Offer a packet of that size on the wire now, with TSETH or without it."""
        number, self.offered = self.offered, self.offered + 1
        offer_over(
            self.engine,
            (self.link,),
            dscp,
            lambda now_ns, p: self.arrived.append(
                Arrived(number, now_ns, p.size, p.dscp, p.ecn, len(p.flips))
            ),
            size,
            timed=timed,
        )

    def offer_all(self, sizes: Sequence[int], dscp: int = DSCP.trimmable) -> None:
        """Offer packets one after the other, all now."""
        for size in sizes:
            self.offer(size, dscp)

    def impair(self, state: Impairment) -> None:
        """Bring the direction into a state now."""
        self.link.impair(self.engine.now_ns, state)

    def run(self, for_ns: int = 1_000_000_000) -> None:
        """Let time pass."""
        self.engine.run(self.engine.now_ns + for_ns)

    @property
    def numbers(self) -> list[int]:
        """Which packets arrived, in order."""
        return [packet.number for packet in self.arrived]
