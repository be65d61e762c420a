"""The memory of a program, read and written from the NIC process.

By process_vm_readv(2), as far as ptrace's rules allow it: to root, and to the owner of a process
where no security module forbids it. Otherwise by a thread of the library in the program.
"""

import ctypes
import socket
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Final, Protocol

from testbed.device.protocol import COPY, COPY_BYTES, MAX_SGE, SGE
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc.message import BoundsError, PayloadError, Region
from testbed.sandbox.system_calls import libc

_IOVEC: Final = struct.Struct("@PN")
_REMOTE: Final = {count: struct.Struct("@" + "PN" * count) for count in range(1, MAX_SGE + 1)}

libc.process_vm_readv.restype = libc.process_vm_writev.restype = ctypes.c_ssize_t


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


_THREAD_ANSWERS_S: Final = 2.0
"""The NIC waits so long for the thread of a program. One that is stopped is lost then, as to a peer
that does not answer: the NIC has other programs."""


class Memory(Protocol):
    """The memory of one process, by its addresses there."""

    def forget(self) -> None:
        """Touch it no more: the process has ended."""

    def read(self, places: Sequence[tuple[int, int]], size: int) -> bytes:
        """Return the bytes of some places, each an address and a length, `size` in all.

        Raises:
            PayloadError: they cannot be read.
        """

    def write(self, address: int, payload: bytes | bytearray | memoryview) -> None:
        """Write a packet's payload, its last byte last: programs wait for that one.

        Raises:
            BoundsError: it cannot be written.
        """


class ProcessMemory:
    """Memory that this process may reach itself."""

    def __init__(self, pid: int) -> None:
        self._pid: int | None = pid
        self._scratch = bytearray(PAYLOAD_MTU)
        self._view = memoryview(self._scratch)
        self._local = bytearray(_IOVEC.size)
        self._remote = bytearray(_IOVEC.size * MAX_SGE)
        self._scratch_address = _address(self._scratch)
        self._local_pointer = ctypes.c_void_p(_address(self._local))
        self._remote_pointer = ctypes.c_void_p(_address(self._remote))

    def forget(self) -> None:
        """Touch it no more: its PID may be another's."""
        self._pid = None

    def read(self, places: Sequence[tuple[int, int]], size: int) -> bytes:
        """See `Memory`."""
        assert size <= PAYLOAD_MTU  # noqa: S101 - the kernel would write beyond the buffer
        _IOVEC.pack_into(self._local, 0, self._scratch_address, size)
        _REMOTE[len(places)].pack_into(self._remote, 0, *chain.from_iterable(places))
        if self._pid is None or size != libc.process_vm_readv(
            self._pid, self._local_pointer, 1, self._remote_pointer, len(places), 0
        ):
            raise PayloadError(f"{size} bytes of process {self._pid} cannot be read")
        return bytes(self._view[:size])

    def write(self, address: int, payload: bytes | bytearray | memoryview) -> None:
        """See `Memory`."""
        size = len(payload)
        self._view[:size] = payload
        _IOVEC.pack_into(self._local, 0, self._scratch_address, size)
        last = address + size - 1
        _REMOTE[2].pack_into(self._remote, 0, address, size - 1, last, 1)
        if self._pid is None or size != libc.process_vm_writev(
            self._pid, self._local_pointer, 1, self._remote_pointer, 2, 0
        ):
            raise BoundsError(f"{size} bytes of process {self._pid} cannot be written")


class ThreadMemory:
    """Memory that a thread in the process reaches for the NIC (c/payload.c)."""

    def __init__(self, connection: socket.socket) -> None:
        """Use a connection to the thread; it is closed with `forget`."""
        self._connection = connection
        connection.settimeout(_THREAD_ANSWERS_S)
        self._scratch = bytearray(1 + PAYLOAD_MTU)

    def forget(self) -> None:
        """See `Memory`."""
        self._connection.close()

    def read(self, places: Sequence[tuple[int, int]], size: int) -> bytes:
        """See `Memory`."""
        if not self._ask(False, places, None, size):
            raise PayloadError(f"{size} bytes of a program cannot be read")
        return bytes(self._scratch[1 : 1 + size])

    def write(self, address: int, payload: bytes | bytearray | memoryview) -> None:
        """See `Memory`."""
        size = len(payload)
        if not self._ask(True, [(address, size - 1), (address + size - 1, 1)], payload, 0):
            raise BoundsError(f"{size} bytes of a program cannot be written")

    def _ask(
        self,
        writes: bool,
        places: Sequence[tuple[int, int]],
        payload: bytes | bytearray | memoryview | None,
        size: int,
    ) -> bool:
        """Have the thread do it; returns whether it has, and answered with `size` bytes."""
        entries = (SGE.pack(address, length, 0) for address, length in places)
        request = COPY.pack(writes, len(places)) + b"".join(entries)
        try:
            self._connection.send(request.ljust(COPY_BYTES, b"\0"))
            if payload is not None:
                self._connection.send(payload)
            count = self._connection.recv_into(self._scratch)
        except OSError:  # the thread has ended, or does not answer
            self.forget()
            return False
        return count == 1 + size and not self._scratch[0]


class ProcessRegion(Region):
    """A region in the memory of a process: `va` is how peers and work requests name `address`."""

    def __init__(self, rkey: int, va: int, size: int, address: int, memory: Memory) -> None:
        super().__init__(rkey, va, size)
        self._shift = address - va
        self._memory = memory

    def place(self, va: int, size: int) -> tuple[int, int] | None:
        """Where in the process some bytes are; None if they are not all in the region."""
        if va < self.va or va + size > self.va + self.size:
            return None
        return va + self._shift, size

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        """Write a packet's payload at an offset within the region.

        Raises:
            BoundsError: the process has no such memory any more.
        """
        self._memory.write(self.va + self._shift + start, payload)


class ProcessPayload:
    """A message in the memory of a process, read when a packet needs it."""

    def __init__(self, memory: Memory, places: Sequence[tuple[int, int]]) -> None:
        self._memory = memory
        self._places = places
        self._size = sum(size for _, size in places)

    def __len__(self) -> int:
        """Return the length of the message in bytes."""
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        """Return the bytes of one packet.

        Raises:
            PayloadError: they cannot be read.
        """
        start, end = part.start, part.stop
        if start == end:
            return b""
        if len(self._places) == 1:
            ((address, _),) = self._places
            return self._memory.read([(address + start, end - start)], end - start)
        parts, offset = list[tuple[int, int]](), 0
        for address, size in self._places:
            first, last = max(start, offset), min(end, offset + size)
            if first < last:
                parts.append((address + first - offset, last - first))
            offset += size
        return self._memory.read(parts, end - start)


class ForbiddenPayload:
    """A message of which a part is in no region that its work request may read."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        """Return the length of the message in bytes."""
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        """Refuse.

        Raises:
            PayloadError: always.
        """
        raise PayloadError("a part of the message is in no registered region")
