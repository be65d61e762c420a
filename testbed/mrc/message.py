"""Messages: what is posted to a queue pair, and what its completion queue says about it."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

_VA_END: Final = 1 << 64
_LENGTH_END: Final = 1 << 32
_IMMEDIATE_END: Final = 1 << 32


class CompletionStatus(Enum):
    """How a posted WRITE ended (the words of the verbs API)."""

    SUCCESS = "success"
    RETRY_EXCEEDED = "transport retry counter exceeded"
    REMOTE_ACCESS_ERROR = "remote access error"
    REMOTE_INVALID_REQUEST = "remote invalid request error"
    FLUSHED = "work request flushed"


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion queue entry. `message` counts the QP's messages from 0; `length` in bytes."""

    wr_id: int
    status: CompletionStatus
    message: int
    length: int


@dataclass(frozen=True, slots=True)
class ReceiveCompletion:
    """A WRITE with immediate has arrived, and so has every WRITE before it.

    `message` counts the peer's messages from 0, `immediate` are its 32 bits, `length` is in bytes.
    """

    message: int
    immediate: int
    length: int


class Message:
    """A posted WRITE on its way. `last_seq` is known once its last packet has been sent."""

    __slots__ = (
        "immediate",
        "last_seq",
        "length",
        "number",
        "offset",
        "payload",
        "rkey",
        "va",
        "wr_id",
    )

    def __init__(
        self,
        number: int,
        wr_id: int,
        payload: memoryview,
        va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        self.number = number
        self.wr_id = wr_id
        self.payload = payload
        self.length = len(payload)
        self.va = va
        self.rkey = rkey
        self.immediate = immediate
        self.offset = 0
        self.last_seq = -1


def check_write(payload: memoryview, remote_va: int, rkey: int, immediate: int | None) -> None:
    """Refuse a WRITE that the wire's fields cannot hold.

    Raises:
        ValueError: the message, the addresses or the immediate do not fit.
    """
    if immediate is not None and not 0 <= immediate < _IMMEDIATE_END:
        raise ValueError(f"immediate data has 32 bits, {immediate} does not fit")
    if payload.itemsize != 1 or not payload.contiguous:
        raise ValueError("the payload must be a contiguous view of bytes")
    if len(payload) >= _LENGTH_END or not 0 <= rkey < _LENGTH_END:
        raise ValueError("a message is shorter than 2^32 bytes, an rkey less than 2^32")
    if not 0 <= remote_va <= _VA_END - len(payload):
        raise ValueError("the message must end within the 64-bit address space")
