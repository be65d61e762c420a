"""recvmmsg(2), which Python lacks: many packets with one system call into buffers made once."""

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from errno import EAGAIN, EINTR

_CONTROL_HEADER = struct.Struct("@Nii")
_CONTROL_ALIGNMENT = struct.calcsize("@N")

Ancillary = Iterator[tuple[int, int, int]]
"""Level, type and where the data begins, of each control message of a packet."""


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MessageHeader(ctypes.Structure):
    """`struct msghdr` of recvmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("iovec", ctypes.POINTER(_Iovec)),
        ("iovec_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """`struct mmsghdr` of recvmmsg(2)."""

    _fields_ = (("header", _MessageHeader), ("length", ctypes.c_uint))


class Batch:
    """Room for the packets of one call: `fill` it, then look at each by its number."""

    def __init__(self, packets: int, packet_bytes: int, control_bytes: int) -> None:
        """Make the buffers.

        Args:
            packets: most packets of one call.
            packet_bytes: the longest packet; what is longer is cut.
            control_bytes: room for the control messages of one.
        """
        self.control = bytearray(packets * control_bytes)
        self._packets = packets
        self._packet_bytes = packet_bytes
        self._control_bytes = control_bytes
        self._buffer = bytearray(packets * packet_bytes)
        self._iovecs = (_Iovec * packets)()
        self._messages = (_Message * packets)()
        self._headers = [message.header for message in self._messages]
        first_packet = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        first_control = ctypes.addressof(ctypes.c_char.from_buffer(self.control))
        for i, header in enumerate(self._headers):
            self._iovecs[i] = _Iovec(first_packet + i * packet_bytes, packet_bytes)
            header.iovec, header.iovec_count = ctypes.pointer(self._iovecs[i]), 1
            header.control, header.control_length = first_control + i * control_bytes, control_bytes
        self._recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg

    def fill(self, fd: int) -> int:
        """Take what waits in a socket, without blocking; returns the number of packets.

        Raises:
            OSError: the socket reports an error.
        """
        count = int(self._recvmmsg(fd, self._messages, self._packets, socket.MSG_DONTWAIT, None))
        if count >= 0:
            return count
        code = ctypes.get_errno()
        if code in (EAGAIN, EINTR):
            return 0
        raise OSError(code, f"recvmmsg: {os.strerror(code)}")

    def packet(self, number: int) -> bytes:
        """Return a copy of a packet."""
        start = number * self._packet_bytes
        return bytes(memoryview(self._buffer)[start : start + self._messages[number].length])

    def ancillary(self, number: int) -> Ancillary:
        """Yield a packet's control messages, once: their data are in `control`."""
        header = self._headers[number]
        position = number * self._control_bytes
        end = position + header.control_length
        header.control_length = self._control_bytes  # as the next call wants it
        while position < end:
            length, level, kind = _CONTROL_HEADER.unpack_from(self.control, position)
            yield level, kind, position + _CONTROL_HEADER.size
            position += -(-length // _CONTROL_ALIGNMENT) * _CONTROL_ALIGNMENT
