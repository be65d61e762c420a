"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

No function of the kernel stands in for MRC here: it forwards, and hands over what arrives for the
NIC's uSID. Outgoing packets carry a complete outer header (IPPROTO_RAW); an incoming packet loses
its outer header to the kernel, which tells traffic class, hop limit and receive time beside it.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from testbed.endpoint.recvmmsg import Batch

SO_TIMESTAMPNS = 35
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_RXQ_OVFL = 40
IPPROTO_IPV6_IN_IPV6 = 41
BUFFER_BYTES = 8 << 20
MAX_PACKET = 9000
BATCH = 64
"""Most packets taken from the socket with one system call."""

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
        self._batch = Batch(BATCH, MAX_PACKET, _ANCILLARY_BYTES)
        self.send_errors = 0
        self.overflowed = 0

    def send(
        self,
        outer: bytes,
        header: bytes,
        payload: bytes | memoryview,
        trailer: bytes,
        to: tuple[str, int],
    ) -> None:
        """Hand one packet to the kernel; a port without carrier loses it, as a NIC would.

        What the kernel refuses is counted in `send_errors`.
        """
        try:
            self._out.sendmsg((outer, header, payload, trailer), (), 0, to)
        except OSError:
            self.send_errors += 1

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits in the socket, without blocking."""
        batch, fd = self._batch, self._in.fileno()
        count = BATCH
        while count == BATCH:
            count = batch.fill(fd)
            for number in range(count):
                yield self._received(batch, number)

    def _received(self, batch: Batch, number: int) -> Received:
        traffic_class = hop_limit = realtime_ns = 0
        for level, kind, start in batch.ancillary(number):
            if level == socket.IPPROTO_IPV6:
                (value,) = _INT.unpack_from(batch.control, start)
                if kind == socket.IPV6_TCLASS:
                    traffic_class = value
                else:
                    hop_limit = value
            elif kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack_from(batch.control, start)
                realtime_ns = seconds * 1_000_000_000 + nanoseconds
            else:
                (self.overflowed,) = _U32.unpack_from(batch.control, start)
        return Received(batch.packet(number), traffic_class, hop_limit, realtime_ns)

    def close(self) -> None:
        """Close both sockets."""
        self._out.close()
        self._in.close()
