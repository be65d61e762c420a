"""One netlink socket in one network namespace: packed requests out, dumps in.

Encoding is pyroute2's work; sending is not, as a call for every message costs some twenty times
as much as a buffer of many. The kernel answers a buffer with the errors in it and one
acknowledgement, that of the last message.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pyroute2.netlink import (
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_ECHO,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
)

from testbed.fabric.netlink.messages import Message
from testbed.model.closeable import Closeable
from testbed.model.errors import ExitStatus, TestbedError
from testbed.sandbox import namespaces

NETLINK_CAP_ACK = 10
NETLINK_EXT_ACK = 11
NETLINK_GET_STRICT_CHK = 12
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
NLM_F_ACK_TLVS = 0x200
NLMSGERR_ATTR_MSG = 1

_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 1 << 18
_READ_BYTES = 1 << 17
_TIMEOUT_S = 10
"""The kernel answers within its system call; anything longer is a fault of ours."""

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type


@dataclass(frozen=True, slots=True)
class Request:
    """An encoded message that changes something.

    Attributes:
        data: the whole message; its sequence number is set when it is sent.
        what: what it is about, for the error that names it.
    """

    data: bytes
    what: str


class NetlinkError(TestbedError):
    """The kernel refused a request."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.MACHINE_CANNOT

    def __init__(self, where: str, what: str, code: int, detail: str) -> None:
        """Say which request was refused, in which namespace, and the kernel's reason."""
        reason = os.strerror(code) + (f" ({detail})" if detail else "")
        super().__init__(f"{where}: {what}: {reason}")
        self.code = code
        """errno of the refusal."""


class Netlink(Closeable):
    """A NETLINK_ROUTE socket in the namespace in which it was opened.

    Attributes:
        where: the namespace's name, for error messages.
    """

    def __init__(self, where: str) -> None:
        """Open a socket in the network namespace that this thread is in."""
        self.where = where
        self._sequence = 0
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _BUFFER_BYTES)
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)

    @classmethod
    def at(cls, name: str) -> Self:
        """Open a socket in a named namespace of this sandbox."""
        fd = namespaces.open_netns(name)
        try:
            with namespaces.entered(fd):
                return cls(name)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # --- changing things ----------------------------------------------------------------------

    def send(self, requests: Iterable[Request]) -> None:
        """Have the kernel carry out requests, in order, as few system calls as possible.

        Raises:
            NetlinkError: one was refused; those after it have been tried all the same.
        """
        batch: list[Request] = []
        size = 0
        for request in requests:
            if size + len(request.data) > _BATCH_BYTES:
                self._send_batch(batch)
                batch, size = [], 0
            batch.append(request)
            size += len(request.data)
        if batch:
            self._send_batch(batch)

    def _send_batch(self, batch: list[Request]) -> None:
        first = self._sequence + 1
        self._sequence = last = self._sequence + len(batch)
        buffer = bytearray()
        for number, request in enumerate(batch, first):
            flags = struct.unpack_from("=H", request.data, 6)[0] | NLM_F_REQUEST
            if number == last:
                flags |= NLM_F_ACK
            buffer += request.data
            buffer += bytes(-len(buffer) & 3)
            start = len(buffer) - (len(request.data) + 3 & ~3)
            struct.pack_into("=HI", buffer, start + 6, flags, number)
        self._socket.send(buffer)
        refused: NetlinkError | None = None
        for kind, flags, sequence, data, start, end in self._replies():
            if kind != NLMSG_ERROR or not first <= sequence <= last:
                continue
            code = -struct.unpack_from("=i", data, start + _HEADER.size)[0]
            if code and refused is None:
                detail = _detail(flags, data, start, end)
                refused = NetlinkError(self.where, batch[sequence - first].what, code, detail)
            if sequence == last:
                break
        if refused is not None:
            raise refused

    # --- reading ------------------------------------------------------------------------------

    def dump(self, request: Message, kind: int) -> list[Any]:
        """Ask for all objects of a kind and decode them by the request's own class.

        Args:
            request: the message that filters; its attributes and fields are set already.
            kind: the request's message type, such as RTM_GETROUTE.

        Raises:
            NetlinkError: the kernel refused.
        """
        found = []
        for data, start, end in self.dump_raw(request, kind):
            message = type(request)(data[start:end])
            message.decode()
            found.append(message)
        return found

    def dump_raw(self, request: Message, kind: int) -> Iterator[tuple[bytes, int, int]]:
        """Ask for all objects of a kind; yield (buffer, start, end) of every message."""
        self._sequence += 1
        own = self._sequence
        request["header"].update(type=kind, flags=NLM_F_REQUEST | NLM_F_DUMP, sequence_number=own)
        request.encode()
        self._socket.send(request.data)
        for answer, _flags, sequence, data, start, end in self._replies():
            if sequence != own:
                continue
            if answer == NLMSG_DONE:
                return
            if answer == NLMSG_ERROR:
                code = -struct.unpack_from("=i", data, start + _HEADER.size)[0]
                raise NetlinkError(self.where, f"dump {type(request).__name__}", code, "")
            yield data, start, end

    def get(self, request: Message, kind: int, what: str) -> Any:
        """Ask for one object and decode it.

        Raises:
            NetlinkError: there is none.
        """
        self._sequence += 1
        own = self._sequence
        flags = NLM_F_REQUEST | NLM_F_ECHO | NLM_F_ACK  # queues answer only to who wants an echo
        request["header"].update(type=kind, flags=flags, sequence_number=own)
        request.encode()
        self._socket.send(request.data)
        message = None
        for answer, answer_flags, sequence, data, start, end in self._replies():
            if sequence != own:
                continue
            if answer != NLMSG_ERROR:
                message = type(request)(data[start:end])
                message.decode()
                continue
            code = -struct.unpack_from("=i", data, start + _HEADER.size)[0]
            if code or message is None:
                detail = _detail(answer_flags, data, start, end)
                raise NetlinkError(self.where, what, code or errno.ENOENT, detail)
            return message
        raise AssertionError("unreachable: replies have no end")

    def _replies(self) -> Iterator[tuple[int, int, int, bytes, int, int]]:
        """Yield (type, flags, sequence number, buffer, start, end) of messages as they come."""
        while True:
            data = self._socket.recv(_READ_BYTES)
            start = 0
            while start < len(data):
                length, kind, flags, sequence, _port = _HEADER.unpack_from(data, start)
                yield kind, flags, sequence, data, start, start + length
                start += length + 3 & ~3


def attributes(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Walk attributes without decoding them: yield (type, start, end) of each payload."""
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, start + _ATTRIBUTE.size, start + length
        start += length + 3 & ~3


def _detail(flags: int, data: bytes, start: int, end: int) -> str:
    """Return the kernel's own words about an error, if it said any (extended acknowledgement)."""
    if not flags & NLM_F_ACK_TLVS:
        return ""
    after_original = start + _HEADER.size + 4 + _HEADER.size
    for kind, first, last in attributes(data, after_original, end):
        if kind == NLMSGERR_ATTR_MSG:
            return data[first:last].rstrip(b"\0").decode()
    return ""
