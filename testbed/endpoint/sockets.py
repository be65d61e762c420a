"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

No function of the kernel stands in for MRC here: it forwards, and hands over what arrives for the
NIC's uSID. Outgoing packets carry a complete outer header (IPPROTO_RAW); an incoming packet loses
its outer header to the kernel, which tells traffic class, hop limit and receive time beside it.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from testbed.endpoint.mmsg import Inbox, Outbox

SO_TIMESTAMPNS = 35
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_RXQ_OVFL = 40
IPPROTO_IPV6_IN_IPV6 = 41
BUFFER_BYTES = 8 << 20
MAX_PACKET = 9000
BATCH = 64
"""Most packets of one system call."""

_CONTROL_HEADER = struct.Struct("@Nii")
_CONTROL_ALIGNMENT = struct.calcsize("@N")
_TIMESPEC = struct.Struct("@qq")
_INT = struct.Struct("@i")
_U32 = struct.Struct("@I")
_ANCILLARY_BYTES = (
    socket.CMSG_SPACE(_TIMESPEC.size) + 2 * socket.CMSG_SPACE(_INT.size) + socket.CMSG_SPACE(4)
)


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


class _Words(NamedTuple):
    """Where each control message has its data, from the first one on; 0 where there is none."""

    traffic_class: int = 0
    hop_limit: int = 0
    time: int = 0
    overflowed: int = 0


_WORDS = {
    (socket.IPPROTO_IPV6, socket.IPV6_TCLASS): "traffic_class",
    (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT): "hop_limit",
    (socket.SOL_SOCKET, SO_TIMESTAMPNS): "time",
    (socket.SOL_SOCKET, SO_RXQ_OVFL): "overflowed",
}


def _find_words(control: bytearray, start: int, length: int) -> _Words:
    """Walk through the control messages of a packet.

    One has the same words at the same places as every other with as many: a kernel gives them in
    its own order, and only the count of overflows may be missing.
    """
    found: dict[str, int] = {}
    position = 0
    while position < length:
        size, level, kind = _CONTROL_HEADER.unpack_from(control, start + position)
        found[_WORDS[level, kind]] = position + _CONTROL_HEADER.size
        position += -(-size // _CONTROL_ALIGNMENT) * _CONTROL_ALIGNMENT
    return _Words(**found)


class HostSockets:
    """The sending and the receiving raw socket of the network namespace that this process is in."""

    def __init__(self) -> None:
        self._out = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._out.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        self._in = socket.socket(socket.AF_INET6, socket.SOCK_RAW, IPPROTO_IPV6_IN_IPV6)
        self._in.setblocking(False)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._in.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        self._in.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
        self._outbox = Outbox(BATCH, MAX_PACKET)
        self._inbox = Inbox(BATCH, MAX_PACKET, _ANCILLARY_BYTES)
        self._words: dict[int, _Words] = {}
        self.send_errors = 0
        self.overflowed = 0

    def send(
        self, outer: bytes, header: bytes, payload: bytes | memoryview, trailer: bytes
    ) -> None:
        """Take one packet for the next `flush`; where too many wait, they go at once."""
        outbox = self._outbox
        if outbox.full:
            self.flush()
        outbox.add(b"".join((outer, header, payload, trailer)))

    def flush(self) -> None:
        """Hand what waits to the kernel; a port without carrier loses it, as a NIC would.

        What the kernel refuses is counted in `send_errors`.
        """
        self.send_errors += self._outbox.flush(self._out.fileno())

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits in the socket, without blocking."""
        inbox, fd = self._inbox, self._in.fileno()
        control = inbox.control
        count = inbox.room
        while count == inbox.room:
            count = inbox.fill(fd)
            for packet, place, length in inbox.packets(count):
                words = self._words.get(length)
                if words is None:
                    words = self._words[length] = _find_words(control, place, length)
                if words.overflowed:
                    (self.overflowed,) = _U32.unpack_from(control, place + words.overflowed)
                seconds, nanoseconds = _TIMESPEC.unpack_from(control, place + words.time)
                yield Received(
                    packet,
                    _INT.unpack_from(control, place + words.traffic_class)[0],
                    _INT.unpack_from(control, place + words.hop_limit)[0],
                    seconds * 1_000_000_000 + nanoseconds,
                )

    def close(self) -> None:
        """Close both sockets."""
        self._out.close()
        self._in.close()
