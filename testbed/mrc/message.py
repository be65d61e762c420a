"""Messages: what is posted to a queue pair, and what its completion queue says about it."""

from dataclasses import dataclass
from enum import Enum


class CompletionStatus(Enum):
    """How a posted WRITE ended (the words of the verbs API)."""

    SUCCESS = "success"
    RETRY_EXCEEDED = "transport retry counter exceeded"
    REMOTE_ACCESS_ERROR = "remote access error"
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
