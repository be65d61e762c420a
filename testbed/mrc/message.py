"""Messages posted to a queue pair, and the entries of its completion queue."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from testbed.mrc.constants import NakCode

_VA_END: Final = 1 << 64
_LENGTH_END: Final = 1 << 32
_IMMEDIATE_END: Final = 1 << 32


class CompletionStatus(Enum):
    """How a posted WRITE ended (as in the verbs API)."""

    SUCCESS = "success"
    RETRY_EXCEEDED = "transport retry counter exceeded"
    REMOTE_ACCESS_ERROR = "remote access error"
    REMOTE_INVALID_REQUEST = "remote invalid request error"
    REMOTE_OPERATION_ERROR = "remote operation error"
    FLUSHED = "work request flushed"
    LOCAL_PROTECTION_ERROR = "local protection error"


STATUS_OF_NAK: Final = {
    NakCode.INVALID_REQUEST: CompletionStatus.REMOTE_INVALID_REQUEST,
    NakCode.REMOTE_ACCESS_ERROR: CompletionStatus.REMOTE_ACCESS_ERROR,
    NakCode.REMOTE_OPERATION_ERROR: CompletionStatus.REMOTE_OPERATION_ERROR,
}
"""How a WRITE ends that the peer answers by a NAK (IBTA)."""


class PayloadError(Exception):
    """The memory that a message is read from cannot be read, or may not be."""


class Payload(Protocol):
    """The bytes of a message: a view of them, or what reads them when a packet needs them."""

    def __len__(self) -> int:
        """Return the length of the message in bytes."""
        ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview:
        """Return the bytes of one packet.

        Raises:
            PayloadError: they cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion queue entry. `message` counts the QP's messages from 0; `length` in bytes."""

    wr_id: int
    status: CompletionStatus
    message: int
    length: int


@dataclass(frozen=True, slots=True)
class ReceiveCompletion:
    """A posted receive has been consumed: by a WRITE with immediate, or flushed.

    The WRITE has arrived, as have all WRITEs before it. `message` counts the peer's messages from
    0, `immediate` has 32 bits, `length` is in bytes; they are 0 where the receive was flushed.
    `wr_id` is that of the receive.
    """

    message: int
    immediate: int
    length: int
    wr_id: int = 0
    status: CompletionStatus = CompletionStatus.SUCCESS


@dataclass(slots=True, eq=False)
class Message:
    """A posted WRITE that has not completed.

    `first_seq` and `last_seq` are known once its first and its last packet have been sent.

    `number` counts messages, `immediates` the WRITEs with immediate before this one.
    """

    number: int
    wr_id: int
    payload: Payload
    va: int
    rkey: int
    immediate: int | None = None
    immediates: int = 0
    length: int = field(init=False)
    offset: int = 0
    first_seq: int = -1
    last_seq: int = -1

    def __post_init__(self) -> None:
        """Keep the length: the payload is released when the message completes."""
        self.length = len(self.payload)


def check_write(payload: Payload, remote_va: int, rkey: int, immediate: int | None) -> None:
    """Check that a WRITE fits the fields of the wire format.

    Raises:
        ValueError: the message, the addresses or the immediate do not fit.
    """
    if immediate is not None and not 0 <= immediate < _IMMEDIATE_END:
        raise ValueError(f"immediate data has 32 bits, {immediate} does not fit")
    if isinstance(payload, memoryview) and (payload.itemsize != 1 or not payload.contiguous):
        raise ValueError("the payload must be a contiguous view of bytes")
    if len(payload) >= _LENGTH_END or not 0 <= rkey < _LENGTH_END:
        raise ValueError("a message is shorter than 2^32 bytes, an rkey less than 2^32")
    if not 0 <= remote_va <= _VA_END - len(payload):
        raise ValueError("the message must end within the 64-bit address space")


# --------------------------------------------------------------------------------------------------
# Registered memory, the target of RDMA WRITEs; rkey and bounds are checked for every packet.


View = memoryview
"""A view of bytes. mypyc does not find `memoryview` itself in these annotations."""


class AccessError(Exception):
    """A WRITE to memory that it may not write."""


class RkeyError(AccessError):
    """The rkey is not registered."""


class BoundsError(AccessError):
    """The bytes lie outside the region of the rkey."""


class Region:
    """`size` bytes, reachable by peers as `va` to `va + size` under `rkey`."""

    def __init__(self, rkey: int, va: int, size: int) -> None:
        self.rkey = rkey
        self.va = va
        self.size = size

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        raise NotImplementedError


class MemoryRegion(Region):
    """A region in `buffer`, all of it.

    Raises:
        ValueError: the buffer is read-only or not made of bytes.
    """

    def __init__(self, rkey: int, va: int, buffer: View) -> None:
        if buffer.readonly or buffer.itemsize != 1:
            raise ValueError("a memory region needs a writable buffer of bytes")
        super().__init__(rkey, va, len(buffer))
        self.buffer = buffer

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        self.buffer[start : start + len(payload)] = payload


class PayloadRegion(Region):
    """A region that keeps the payloads themselves, by their offset, without copying them.

    For a simulator: there a payload is a view of what the peer posted, so nothing is stored twice.
    """

    def __init__(self, rkey: int, va: int, size: int) -> None:
        super().__init__(rkey, va, size)
        self.payloads: dict[int, View] = {}

    def write(self, start: int, payload: bytes | bytearray | memoryview) -> None:
        self.payloads[start] = memoryview(payload)

    def take(self, start: int, end: int) -> list[View]:
        """Remove and return the payloads from `start` on, in order, up to `end` or to a gap."""
        taken: list[View] = []
        while start < end:
            payload = self.payloads.pop(start, None)
            if payload is None:
                break
            taken.append(payload)
            start += len(payload)
        return taken


class MemoryTable:
    """The memory regions of one endpoint, shared by its queue pairs."""

    def __init__(self) -> None:
        self._regions: dict[int, Region] = {}

    def register(self, region: Region) -> None:
        """Register a region: peers may write to it.

        Raises:
            ValueError: the rkey is taken.
        """
        if region.rkey in self._regions:
            raise ValueError(f"rkey {region.rkey:#x} is already registered")
        self._regions[region.rkey] = region

    def deregister(self, rkey: int) -> None:
        """Remove the region of `rkey`; later WRITEs to it are refused.

        Raises:
            KeyError: no such region.
        """
        del self._regions[rkey]

    def place(self, rkey: int, va: int, payload: bytes | bytearray | memoryview) -> None:
        """Write all of `payload` to `va`, or nothing; an empty payload is not checked.

        Raises:
            RkeyError: unknown rkey.
            BoundsError: any byte out of bounds.
        """
        if not payload:
            return
        region = self._regions.get(rkey)
        if region is None:
            raise RkeyError(f"rkey {rkey:#x} is not registered")
        start = va - region.va
        if start < 0 or start + len(payload) > region.size:
            raise BoundsError(f"{va:#x} + {len(payload)} is outside the region of rkey {rkey:#x}")
        region.write(start, payload)
