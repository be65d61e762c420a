"""Raw sockets of a host: IPv6-in-IPv6 out with a header built by hand, inner packets in.

The kernel only forwards, and hands over what arrives for the NIC's uSID. Outgoing packets carry a
complete outer header (IPPROTO_RAW). The kernel removes the outer header of incoming packets, and
reports traffic class, hop limit and receive time in control messages.

Many packets go with one system call: sendmmsg(2) and recvmmsg(2), which Python lacks.
"""

import ctypes
import socket
import struct
from collections.abc import Callable, Iterator
from errno import EAGAIN, EINTR
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Final, NamedTuple

from testbed.model.units import NS_PER_S
from testbed.mrc.wire.datagram import new
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE, last_error, libc

_IOVEC: Final = struct.Struct("@PN")
_MESSAGE: Final = struct.Struct("@PIPNPNi0PI0P")
"""`struct mmsghdr`: name, length; iovecs, their number; control messages, length; flags; received
bytes."""
_RECEIVED: Final = struct.Struct("@40xN8xI0P")
"""The lengths that recvmmsg returns: of the control messages and of the packet."""

_SOCKADDR: Final = struct.Struct("@HHI16sI")
"""`struct sockaddr_in6`: family, port, flow information, address, scope."""
_NAME_BYTES: Final = _SOCKADDR.size
_ADDRESS_OFFSET: Final = 8
_ADDRESS_BYTES: Final = 16
_DESTINATION: Final = 24
"""The offset of the destination in an IPv6 header."""
_DESTINATION_END: Final = _DESTINATION + _ADDRESS_BYTES


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Outbox:
    """IPv6 packets with their headers for the kernel: `add` some, then `flush`."""

    def __init__(self, packets: int, packet_bytes: int) -> None:
        """Make room for `packets` of at most `packet_bytes` each."""
        self._room = packets
        self._packet_bytes = packet_bytes
        self._count = 0
        packet_room, name_room = bytearray(packets * packet_bytes), bytearray(packets * _NAME_BYTES)
        iovec_room = bytearray(packets * _IOVEC.size)
        self._messages = bytearray(packets * _MESSAGE.size)
        buffer, names, iovecs = map(_address, (packet_room, name_room, iovec_room))
        for i in range(packets):
            name, iovec = names + i * _NAME_BYTES, iovecs + i * _IOVEC.size
            _SOCKADDR.pack_into(name_room, i * _NAME_BYTES, socket.AF_INET6, 0, 0, b"", 0)
            _IOVEC.pack_into(iovec_room, i * _IOVEC.size, buffer + i * packet_bytes, 0)
            message = name, _NAME_BYTES, iovec, 1, 0, 0, 0, 0
            _MESSAGE.pack_into(self._messages, i * _MESSAGE.size, *message)
        # Views: assigning to a slice of a bytearray would copy the data twice.
        self._buffer, self._names = memoryview(packet_room), memoryview(name_room)
        self._iovecs = memoryview(iovec_room).cast("L")  # each an address and a length
        self._first = _address(self._messages)

    @property
    def full(self) -> bool:
        """Whether it must be flushed before more packets are added."""
        return self._count == self._room

    def add(self, header: bytes, payload: bytes | memoryview, trailer: bytes) -> None:
        """Copy a packet; its destination is that of the outer header in `header`."""
        i, buffer = self._count, self._buffer
        start, name = i * self._packet_bytes, i * _NAME_BYTES + _ADDRESS_OFFSET
        payload_start = start + len(header)
        trailer_start = payload_start + len(payload)
        end = trailer_start + len(trailer)
        buffer[start:payload_start] = header
        buffer[payload_start:trailer_start] = payload
        buffer[trailer_start:end] = trailer
        self._names[name : name + _ADDRESS_BYTES] = header[_DESTINATION:_DESTINATION_END]
        self._iovecs[2 * i + 1] = end - start
        self._count = i + 1

    def flush(self, fd: int) -> int:
        """Send everything through a socket; returns how many packets the kernel refused."""
        done = refused = 0
        while done < self._count:
            first = ctypes.c_void_p(self._first + done * _MESSAGE.size)
            sent = int(libc.sendmmsg(fd, first, self._count - done, 0))
            if sent > 0:
                done += sent
            elif ctypes.get_errno() != EINTR:  # the error is that of the first message
                done += 1
                refused += 1
        self._count = 0
        return refused


class Inbox:
    """Room for the packets of one system call."""

    def __init__(self, packets: int, packet_bytes: int, control_bytes: int) -> None:
        """Make the buffers.

        Args:
            packets: the most packets of one call.
            packet_bytes: the longest packet; longer ones are cut.
            control_bytes: room for the control messages of one packet.
        """
        self.control = bytearray(packets * control_bytes)
        self.room = packets
        self._packet_bytes = packet_bytes
        self._control_bytes = control_bytes
        buffer = bytearray(packets * packet_bytes)
        self._buffer = memoryview(buffer)
        self._iovecs = bytearray(packets * _IOVEC.size)
        first, iovecs, control = map(_address, (buffer, self._iovecs, self.control))
        messages = []
        for i in range(packets):
            _IOVEC.pack_into(self._iovecs, i * _IOVEC.size, first + i * packet_bytes, packet_bytes)
            iovec, ancillary = iovecs + i * _IOVEC.size, control + i * control_bytes
            messages.append(_MESSAGE.pack(0, 0, iovec, 1, ancillary, control_bytes, 0, 0))
        self._template = b"".join(messages)
        self._messages = bytearray(self._template)
        self._first = ctypes.c_void_p(_address(self._messages))

    def fill(self, fd: int) -> int:
        """Receive the packets that wait in a socket, without blocking; returns their number.

        Raises:
            OSError: the socket reports an error.
        """
        self._messages[:] = self._template
        count = int(libc.recvmmsg(fd, self._first, self.room, socket.MSG_DONTWAIT, None))
        if count >= 0:
            return count
        if ctypes.get_errno() in (EAGAIN, EINTR):
            return 0
        raise last_error("recvmmsg")

    def packets(self, count: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield each packet, copied, with offset and length of its part of `control`."""
        start = offset = 0
        messages = memoryview(self._messages)[: count * _RECEIVED.size]
        for control_length, length in _RECEIVED.iter_unpack(messages):
            yield bytes(self._buffer[start : start + length]), offset, control_length
            start += self._packet_bytes
            offset += self._control_bytes


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
