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
