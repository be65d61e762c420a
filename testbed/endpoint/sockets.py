"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

No function of the kernel stands in for MRC here: it forwards, and hands over what arrives for the
NIC's uSID. Outgoing packets carry a complete outer header (IPPROTO_RAW); an incoming packet loses
its outer header to the kernel, which tells traffic class, hop limit and receive time beside it.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Final, NamedTuple

from testbed.endpoint.mmsg import Inbox, Outbox
from testbed.mrc.wire.datagram import new

SO_TIMESTAMPNS: Final = 35
SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
SO_RXQ_OVFL: Final = 40
IPPROTO_IPV6_IN_IPV6: Final = 41
BUFFER_BYTES: Final = 8 << 20
MAX_PACKET: Final = 9000
BATCH: Final = 64
"""Most packets of one system call."""

_CONTROL_HEADER: Final = struct.Struct("@Nii")
_CONTROL_ALIGNMENT: Final = struct.calcsize("@N")


class Received(NamedTuple):
    """One inner packet and what its outer header and the kernel said.

    Attributes:
        packet: the inner packet, whole.
        traffic_class: of the outer header: DSCP and ECN.
        hop_limit: of the outer header, as it arrived.
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
"""The control messages that are asked for: the form of their data, and its names."""

_ANCILLARY_BYTES: Final = sum(
    socket.CMSG_SPACE(struct.calcsize(f"={code}")) for code, _ in _WORDS.values()
)


class _Layout(NamedTuple):
    """How the control messages of a packet are read, all at once.

    Attributes:
        words: their data, in the order in which the kernel gives them.
        wanted: from these: traffic class, hop limit, seconds, nanoseconds.
        overflowed: which of them counts what the socket had no room for, if one does.
    """

    words: struct.Struct
    wanted: Callable[[tuple[int, ...]], tuple[int, int, int, int]]
    overflowed: int | None


def _find_layout(control: bytearray, start: int, length: int) -> _Layout:
    """Walk through the control messages of a packet.

    One has the same words at the same places as every other with as many: a kernel gives them in
    its own order, and only the count of overflows may be missing.
    """
    words, found, position = "=", list[str](), 0
    while position < length:
        size, level, kind = _CONTROL_HEADER.unpack_from(control, start + position)
        code, names = _WORDS[level, kind]
        space = -(-size // _CONTROL_ALIGNMENT) * _CONTROL_ALIGNMENT
        rest = space - _CONTROL_HEADER.size - struct.calcsize(f"={code}")
        words += f"{_CONTROL_HEADER.size}x{code}{rest}x"
        found += names
        position += space
    wanted = map(found.index, ("traffic_class", "hop_limit", "seconds", "nanoseconds"))
    overflowed = found.index("overflowed") if "overflowed" in found else None
    return _Layout(struct.Struct(words), itemgetter(*wanted), overflowed)


class HostSockets:
    """The sending and the receiving raw socket of the network namespace that this process is in."""

    def __init__(self, source: IPv6Address) -> None:
        """Open them.

        Args:
            source: an address of this namespace. Packets bear their own, but for a socket that is
                bound to none the kernel seeks one with each: a seventh of what sending costs.
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

    def send(
        self, outer: bytes, header: bytes, payload: bytes | memoryview, trailer: bytes
    ) -> None:
        """Take one packet for the next `flush`; where too many wait, they go at once."""
        outbox = self._outbox
        if outbox.full:
            self.flush()
        outbox.add(outer + header, payload, trailer)

    def flush(self) -> None:
        """Hand what waits to the kernel; a port without carrier loses it, as a NIC would.

        What the kernel refuses is counted in `send_errors`.
        """
        self.send_errors += self._outbox.flush(self._out.fileno())

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits in the socket, without blocking."""
        inbox, fd = self._inbox, self._in.fileno()
        control, layouts = inbox.control, self._layouts
        count = inbox.room
        while count == inbox.room:
            count = inbox.fill(fd)
            for packet, place, length in inbox.packets(count):
                layout = layouts.get(length)
                if layout is None:
                    layout = layouts[length] = _find_layout(control, place, length)
                words, wanted, overflowed = layout
                said = words.unpack_from(control, place)
                if overflowed is not None:
                    self.overflowed = said[overflowed]
                traffic_class, hop_limit, seconds, nanoseconds = wanted(said)
                realtime_ns = seconds * 1_000_000_000 + nanoseconds
                yield new(Received, (packet, traffic_class, hop_limit, realtime_ns))

    def close(self) -> None:
        """Close both sockets."""
        self._out.close()
        self._in.close()
