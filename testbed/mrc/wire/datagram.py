"""The values that pass between the core and the I/O layer.

They are named tuples, since one is made for each packet: a frozen dataclass takes three times
longer to make.
"""

from typing import Final, NamedTuple

from testbed.mrc.constants import ECT0

new: Final = tuple.__new__
"""`new(T, fields)` makes a named tuple in half the time of `T(*fields)`."""


class Departure:
    """What the I/O layer reports of a data packet: how long it waits for its port, in ns."""

    __slots__ = ("port_wait_ns",)
    port_wait_ns: int

    def set_port_wait(self, wait_ns: int) -> None:
        """Record how long after it was sent the NIC's port begins to send the packet."""
        self.port_wait_ns = wait_ns


class Datagram(NamedTuple):
    """One inner packet to send, in three pieces so that the payload is never copied here.

    The I/O layer computes the outer header from `ev` (carrier address, flow label) and `dscp`, and
    sends header, payload and trailer behind it. `seq` and `retransmitted` are for recorders; `seq`
    is None for everything but data. `ecn` is the outer header's ECN field. For a data packet the
    I/O layer reports to `transmission` how long it waits for its port.
    """

    ev: int
    dscp: int
    header: bytes
    payload: bytes | memoryview
    trailer: bytes
    seq: int | None = None
    retransmitted: bool = False
    ecn: int = ECT0
    transmission: Departure | None = None

    @property
    def is_data(self) -> bool:
        """Whether this is a data packet (a WRITE) rather than a control packet."""
        return self.seq is not None

    def join(self) -> bytes:
        """Return the inner packet in one piece."""
        return b"".join((self.header, self.payload, self.trailer))


class Outbound(NamedTuple):
    """A datagram and the NIC address of the peer to send it to."""

    peer: bytes
    datagram: Datagram


class Arrival(NamedTuple):
    """How a packet arrived: ECN field and DSCP of the outer header, and the time in ns.

    The time is when the packet arrived at the NIC, not when it is handed to the core. It never
    decreases from one arrival to the next.
    """

    ecn: int
    dscp: int
    rx_ns: int
