"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

No function of the kernel stands in for MRC here: it forwards, and hands over what arrives for the
NIC's uSID. Outgoing packets carry a complete outer header (IPPROTO_RAW); an incoming packet loses
its outer header to the kernel, which tells traffic class, hop limit and receive time beside it.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SO_TIMESTAMPNS = 35
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_RXQ_OVFL = 40
IPPROTO_IPV6_IN_IPV6 = 41
BUFFER_BYTES = 8 << 20
MAX_PACKET = 9000

_TIMESPEC = struct.Struct("@qq")
_INT = struct.Struct("@i")
_U32 = struct.Struct("@I")
_ANCILLARY_BYTES = (
    socket.CMSG_SPACE(_TIMESPEC.size) + 2 * socket.CMSG_SPACE(_INT.size) + socket.CMSG_SPACE(4)
)


@dataclass(frozen=True, slots=True)
class Received:
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
        receive = self._in.recvmsg
        while True:
            try:
                packet, ancillary, _, _ = receive(MAX_PACKET, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            traffic_class = hop_limit = realtime_ns = 0
            for level, kind, data in ancillary:
                if level == socket.IPPROTO_IPV6:
                    if kind == socket.IPV6_TCLASS:
                        traffic_class = _INT.unpack(data)[0]
                    else:
                        hop_limit = _INT.unpack(data)[0]
                elif kind == SO_TIMESTAMPNS:
                    seconds, nanoseconds = _TIMESPEC.unpack(data)
                    realtime_ns = seconds * 1_000_000_000 + nanoseconds
                else:
                    self.overflowed = _U32.unpack(data)[0]
            yield Received(packet, traffic_class, hop_limit, realtime_ns)

    def close(self) -> None:
        """Close both sockets."""
        self._out.close()
        self._in.close()
