"""sendmmsg(2) and recvmmsg(2), which Python lacks: many packets with one system call.

All buffers and the kernel's structures are made once. Only the fields that change from packet to
packet are written, as bytes: setting the fields of a ctypes structure takes longer than sending.
"""

import ctypes
import socket
import struct
from collections.abc import Iterator
from errno import EAGAIN, EINTR
from typing import Final

from testbed.sandbox.system_calls import last_error, libc

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
