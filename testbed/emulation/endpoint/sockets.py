"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

The kernel only forwards, and hands over what arrives for the NIC's uSID. Outgoing packets carry a
complete outer header (IPPROTO_RAW). The kernel removes the outer header of incoming packets, and
reports traffic class, hop limit and receive time in control messages.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Final, NamedTuple

from testbed.emulation.endpoint.mmsg import Inbox, Outbox
from testbed.model.units import NS_PER_S
from testbed.mrc.wire.datagram import new
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE

SO_TIMESTAMPNS: Final = 35
SO_RXQ_OVFL: Final = 40
IPPROTO_IPV6_IN_IPV6: Final = 41
BUFFER_BYTES: Final = 8 << 20
MAX_PACKET: Final = 9000
BATCH: Final = 64
"""The most packets of one system call."""

_CONTROL_HEADER: Final = struct.Struct("@Nii")
_CONTROL_ALIGNMENT: Final = struct.calcsize("@N")


class Received(NamedTuple):
    """One inner packet, with fields of its outer header and the kernel's timestamp.

    Attributes:
        packet: the whole inner packet.
        traffic_class: the traffic class of the outer header: DSCP and ECN.
        hop_limit: the hop limit of the outer header, as it arrived.
        realtime_ns: when the kernel received it, CLOCK_REALTIME.
    """

    packet: bytes
    traffic_class: int
    hop_limit: int
    realtime_ns: int


_WORDS: Final = {
    (socket.IPPROTO_IPV6, socket.IPV6_TCLASS): ("i", ("traffic_class",)),
    (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT): ("i", ("hop_limit",)),
    (socket.SOL_SOCKET, SO_TIMESTAMPNS): ("qq", ("seconds", "nanoseconds")),
    (socket.SOL_SOCKET, SO_RXQ_OVFL): ("I", ("overflowed",)),
}
"""The control messages that are requested: the format of their data, and its names."""

_ANCILLARY_BYTES: Final = sum(
    socket.CMSG_SPACE(struct.calcsize(f"={code}")) for code, _ in _WORDS.values()
)


class _Layout(NamedTuple):
    """How all control messages of a packet are read at once.

    Attributes:
        words: their data, in the kernel's order.
        select: picks from the data traffic class, hop limit, seconds, nanoseconds.
        overflowed: the index of the count of packets that the socket had no room for, if present.
    """

    words: struct.Struct
    select: Callable[[tuple[int, ...]], tuple[int, int, int, int]]
    overflowed: int | None


def _find_layout(control: bytearray, start: int, length: int) -> _Layout:
    """The layout of a packet's control messages.

    Packets whose control messages have the same length have the same layout: a kernel always uses
    the same order, and only the count of overflows may be missing.
    """
    words, fields, position = "=", list[str](), 0
    while position < length:
        size, level, kind = _CONTROL_HEADER.unpack_from(control, start + position)
        code, names = _WORDS[level, kind]
        space = -(-size // _CONTROL_ALIGNMENT) * _CONTROL_ALIGNMENT
        rest = space - _CONTROL_HEADER.size - struct.calcsize(f"={code}")
        words += f"{_CONTROL_HEADER.size}x{code}{rest}x"
        fields += names
        position += space
    indexes = map(fields.index, ("traffic_class", "hop_limit", "seconds", "nanoseconds"))
    overflowed = fields.index("overflowed") if "overflowed" in fields else None
    return _Layout(struct.Struct(words), itemgetter(*indexes), overflowed)


class HostSockets:
    """The sending and the receiving raw socket of the network namespace that this process is in."""

    def __init__(self, source: IPv6Address) -> None:
        """Open them.

        Args:
            source: an address of this namespace. Packets carry their own source address, but for
                an unbound socket the kernel looks one up for each packet: a seventh of the cost of
                sending.
        """
        self._out = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._out.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        self._out.bind((str(source), 0))
        self._in = socket.socket(socket.AF_INET6, socket.SOCK_RAW, IPPROTO_IPV6_IN_IPV6)
        self._in.setblocking(False)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._in.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        self._outbox = Outbox(BATCH, MAX_PACKET)
        self._inbox = Inbox(BATCH, MAX_PACKET, _ANCILLARY_BYTES)
        self._layouts: dict[int, _Layout] = {}
        self.send_errors = 0
        self.overflowed = 0
        """Arrivals that the socket had no room for."""

    def send(
        self, outer: bytes, header: bytes, payload: bytes | memoryview, trailer: bytes
    ) -> None:
        """Queue a packet for the next `flush`; if the queue is full, flush it first."""
        outbox = self._outbox
        if outbox.full:
            self.flush()
        outbox.add(outer + header, payload, trailer)

    def flush(self) -> None:
        """Hand the queued packets to the kernel; a port without carrier loses them, as a NIC does.

        Packets that the kernel refuses are counted in `send_errors`.
        """
        self.send_errors += self._outbox.flush(self._out.fileno())

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits in the socket, without blocking."""
        inbox, fd = self._inbox, self._in.fileno()
        control, layouts = inbox.control, self._layouts
        count = inbox.room
        while count == inbox.room:
            count = inbox.fill(fd)
            for packet, offset, length in inbox.packets(count):
                layout = layouts.get(length)
                if layout is None:
                    layout = layouts[length] = _find_layout(control, offset, length)
                words, select, overflowed = layout
                data = words.unpack_from(control, offset)
                if overflowed is not None:
                    self.overflowed = data[overflowed]
                traffic_class, hop_limit, seconds, nanoseconds = select(data)
                realtime_ns = seconds * NS_PER_S + nanoseconds
                yield new(Received, (packet, traffic_class, hop_limit, realtime_ns))

    def close(self) -> None:
        self._out.close()
        self._in.close()
