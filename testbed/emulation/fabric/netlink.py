"""Netlink sockets: packed requests to the kernel, and its answers, by the classes of pyroute2.

pyroute2 knows neither the flavours nor the counters of seg6local routes, and silently drops what it
does not know: a uN route would become a plain End. It turns `encap.red` into `encap`, which would
put a segment routing header on the wire. It also drops size tables (`stab`) of queueing
disciplines. The classes here derive from pyroute2's and leave those unchanged.

pyroute2 encodes and decodes the messages. They are sent here, because one system call for each
message costs about twenty times as much as one buffer of many messages. The kernel answers such a
buffer with an error for each request that it refuses, and with one acknowledgement, for the last.
"""

import errno
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pyroute2.netlink import (
    NLA_F_NESTED,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_ECHO,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
    nla,
    nlmsg,
)
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import LWTUNNEL_ENCAP_SEG6, LWTUNNEL_ENCAP_SEG6_LOCAL, rtmsg_base
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.model.closeable import Closeable
from testbed.model.errors import ExitStatus, TestbedError
from testbed.sandbox import namespaces
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE

SEG6_IPTUN_MODE_ENCAP_RED = 3
"""H.Encaps.Red (RFC 8986, section 5.2): linux/seg6_iptunnel.h."""

SEG6_LOCAL_ACTION_END = 1
SEG6_LOCAL_ACTION_END_DT6 = 7
NEXT_CSID = 1 << 4
"""Flavour bit of NEXT-C-SID (RFC 9800): linux/seg6_local.h, SEG6_LOCAL_FLV_OP_NEXT_CSID."""

WITHOUT_COUNTERS = ("IFLA_EXT_MASK", 1 << 3)
"""Attribute of a request for links without their counters, which take longer to gather:
linux/rtnetlink.h, RTEXT_FILTER_SKIP_STATS."""

Message: TypeAlias = nlmsg
LinkMessage = ifinfmsg
AddressMessage = ifaddrmsg
NeighbourMessage = ndmsg
RuleMessage = fibmsg


class _Nested(nla):  # type: ignore[misc] # pyroute2 is untyped
    nla_flags = NLA_F_NESTED


class Seg6Encapsulation(_Nested):
    """The encapsulation of a seg6 route: linux/seg6_iptunnel.h, struct seg6_iptunnel_encap."""

    nla_map = ((0, "SEG6_IPTUNNEL_UNSPEC", "none"), (1, "SEG6_IPTUNNEL_SRH", "cdata"))


class Seg6Local(_Nested):
    """The behaviour of a seg6local route: linux/seg6_local.h."""

    nla_map = (
        (0, "SEG6_LOCAL_UNSPEC", "none"),
        (1, "SEG6_LOCAL_ACTION", "uint32"),
        (3, "SEG6_LOCAL_TABLE", "uint32"),
        (10, "SEG6_LOCAL_COUNTERS", "counters"),
        (11, "SEG6_LOCAL_FLAVORS", "flavors"),
    )

    class counters(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Packets, bytes and errors of one SID."""

        nla_map = (
            ("SEG6_LOCAL_CNT_UNSPEC", "none"),
            ("SEG6_LOCAL_CNT_PAD", "none"),
            ("SEG6_LOCAL_CNT_PACKETS", "uint64"),
            ("SEG6_LOCAL_CNT_BYTES", "uint64"),
            ("SEG6_LOCAL_CNT_ERRORS", "uint64"),
        )

    class flavors(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Flavours of an End behaviour, with the lengths of a compressed SID's parts in bits."""

        nla_map = (
            ("SEG6_LOCAL_FLV_UNSPEC", "none"),
            ("SEG6_LOCAL_FLV_OPERATION", "uint32"),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", "uint8"),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", "uint8"),
        )


class RouteMessage(rtmsg_base, nlmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A route message that knows seg6local's flavours and counters, and every mode of seg6."""

    encaps = {  # noqa: RUF012 - as in pyroute2
        **rtmsg_base.encaps,
        LWTUNNEL_ENCAP_SEG6: Seg6Encapsulation,
        LWTUNNEL_ENCAP_SEG6_LOCAL: Seg6Local,
    }


class QdiscMessage(tcmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A message about a queueing discipline or its class, with size tables."""

    nla_map = (*tcmsg.nla_map[:-1], ("TCA_STAB", "stab"))
    _nlmsg_base__compiled_nla = False  # inherited as true once pyroute2's class has been used

    class stab(_Nested):  # noqa: N801 - pyroute2 looks it up by this name
        """Size table: the bytes charged for a packet (linux/pkt_sched.h, tc_sizespec)."""

        nla_map = (("TCA_STAB_UNSPEC", "none"), ("TCA_STAB_BASE", "base"))

        class base(nla):  # type: ignore[misc] # noqa: N801 - pyroute2 looks it up by this name
            """struct tc_sizespec."""

            fields = (
                ("cell_log", "B"),
                ("size_log", "B"),
                ("cell_align", "h"),
                ("overhead", "i"),
                ("linklayer", "I"),
                ("mpu", "I"),
                ("mtu", "I"),
                ("tsize", "I"),
            )


NETLINK_CAP_ACK = 10
NETLINK_EXT_ACK = 11
NETLINK_GET_STRICT_CHK = 12
NLM_F_ACK_TLVS = 0x200
NLMSGERR_ATTR_MSG = 1

_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 1 << 18
_BATCH = 512
"""Requests of one buffer: if the kernel refuses all, its errors fit into the socket's buffer."""

_READ_BYTES = 1 << 17
_TIMEOUT_S = 10
"""The kernel answers within its system call. A longer wait is a defect of this program."""

_REFILL_S = 0.001
_MOST_REFILL_S = 2.0
"""How often a request is repeated that found no memory, and for how long if no other succeeds.

The kernel takes the caches of a route with seg6 encapsulation from a pool of memory for each CPU
(`seg6_build_state`: `dst_cache_init` with GFP_ATOMIC). It does not wait for more there: an empty
pool is ENOMEM on a machine with any amount of free memory, and a worker of the kernel fills it, a
few pages each time (mm/percpu.c). One buffer of many routes empties it sooner than that.
"""

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_ERRNO = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")  # length, type


@dataclass(frozen=True, slots=True)
class Request:
    """An encoded message that changes something.

    Attributes:
        data: the whole message; its sequence number is set when it is sent.
        description: what it does, for the error message if the kernel refuses it.
    """

    data: bytes
    description: str


class NetlinkError(TestbedError):
    """The kernel refused a request.

    Attributes:
        code: the errno of the refusal.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.MACHINE_CANNOT

    def __init__(self, namespace: str, description: str, code: int, detail: str = "") -> None:
        """Name the namespace, the refused request and the kernel's reason."""
        reason = os.strerror(code) + (f" ({detail})" if detail else "")
        super().__init__(f"{namespace}: {description}: {reason}")
        self.code = code


class Reply(NamedTuple):
    """A message of the kernel, undecoded, between two offsets of a receive buffer."""

    kind: int
    flags: int
    sequence: int
    buffer: bytes
    start: int
    end: int

    def decoded(self, message_type: type[Message]) -> Any:
        message = message_type(self.buffer[self.start : self.end])
        message.decode()
        return message

    def error_code(self) -> int:
        code: int = _ERRNO.unpack_from(self.buffer, self.start + _HEADER.size)[0]
        return -code

    def error_detail(self) -> str:
        """The kernel's text about the error (extended acknowledgement), if there is one."""
        if not self.flags & NLM_F_ACK_TLVS:
            return ""
        first_attribute = self.start + _HEADER.size + _ERRNO.size + _HEADER.size
        for kind, start, end in attributes(self.buffer, first_attribute, self.end):
            if kind == NLMSGERR_ATTR_MSG:
                return self.buffer[start:end].rstrip(b"\0").decode()
        return ""


class Netlink(Closeable):
    """A netlink socket in the namespace in which it was opened.

    Attributes:
        namespace: the namespace's name, for error messages.
    """

    protocol: ClassVar[int] = socket.NETLINK_ROUTE
    groups: ClassVar[int] = 0
    """Bits of the multicast groups whose announcements it receives."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._sequence = 0
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, self.protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _BUFFER_BYTES)
        for option in (NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        self._socket.bind((0, self.groups))
        self._socket.settimeout(_TIMEOUT_S)

    def close(self) -> None:
        self._socket.close()

    # --- changing things ----------------------------------------------------------------------

    def send(self, requests: Iterable[Request]) -> None:
        """Have the kernel carry out requests in order, with as few system calls as possible.

        What finds no memory is repeated after those that do: the kernel may have some a moment
        later.

        Raises:
            NetlinkError: the kernel refused a request; those after it in its buffer were carried
                out all the same.
        """
        batch: list[Request] = []
        size = 0
        for request in requests:
            if len(batch) == _BATCH or size + len(request.data) > _BATCH_BYTES:
                self._send_batch(batch)
                batch, size = [], 0
            batch.append(request)
            size += len(request.data)
        if batch:
            self._send_batch(batch)

    def _send_batch(self, batch: list[Request]) -> None:
        until = time.monotonic() + _MOST_REFILL_S
        while refused := self._refused(batch):
            error = next((error for _, error in refused if error.code != errno.ENOMEM), None)
            if len(refused) < len(batch):
                until = time.monotonic() + _MOST_REFILL_S
            if error is not None or time.monotonic() > until:
                raise error or refused[0][1]
            batch = [request for request, _ in refused]
            time.sleep(_REFILL_S)

    def _refused(self, batch: list[Request]) -> list[tuple[Request, NetlinkError]]:
        """Send requests in one buffer; returns those that the kernel refused, with the errors."""
        first = self._sequence + 1
        self._sequence = last = self._sequence + len(batch)
        buffer = bytearray()
        for number, request in enumerate(batch, first):
            flags = struct.unpack_from("=H", request.data, 6)[0] | NLM_F_REQUEST
            if number == last:
                flags |= NLM_F_ACK
            start = len(buffer)
            buffer += request.data
            buffer += bytes(-len(buffer) & 3)
            struct.pack_into("=HI", buffer, start + 6, flags, number)
        self._socket.send(buffer)
        refused: list[tuple[Request, NetlinkError]] = []
        for reply in self._replies(first, last):
            if reply.kind == NLMSG_ERROR:
                request = batch[reply.sequence - first]
                error = self._error(reply, request.description)
                if error is not None:
                    refused.append((request, error))
                if reply.sequence == last:
                    break
        return refused

    # --- reading ------------------------------------------------------------------------------

    def dump(self, message_type: type[Message], kind: int, **fields: Any) -> list[Any]:
        """Read all objects of a kind, as decoded messages.

        Args:
            message_type: class of the request and of the answers.
            kind: the request's message type, such as RTM_GETROUTE.
            fields: fields and attributes of the request, which select the objects.

        Raises:
            NetlinkError: the kernel refused.
        """
        replies = self.dump_raw(message_type, kind, **fields)
        return [reply.decoded(message_type) for reply in replies]

    def dump_raw(self, message_type: type[Message], kind: int, **fields: Any) -> Iterator[Reply]:
        """Read the same, undecoded."""
        for reply in self._replies(self._post(message_type, kind, NLM_F_DUMP, fields)):
            if reply.kind == NLMSG_DONE:
                return
            error = self._error(reply, f"dump {message_type.__name__}")
            if error is not None:
                raise error
            yield reply

    def get(self, message_type: type[Message], kind: int, description: str, **fields: Any) -> Any:
        """Read one object, as a decoded message; `description` is for the error message.

        Raises:
            NetlinkError: the kernel has no such object, or refused.
        """
        # The kernel returns a queueing discipline only if an echo is asked for.
        answer = self._exchange(message_type, kind, NLM_F_ECHO, description, fields)
        if answer is None:
            raise NetlinkError(self.namespace, description, errno.ENOENT)
        return answer

    def _exchange(
        self,
        message_type: type[Message],
        kind: int,
        flags: int,
        description: str,
        fields: Mapping[str, Any],
    ) -> Any:
        """Send one request; returns the decoded answer, None if the kernel only acknowledges."""
        answer = None
        for reply in self._replies(self._post(message_type, kind, flags | NLM_F_ACK, fields)):
            if reply.kind != NLMSG_ERROR:
                answer = reply.decoded(message_type)
                continue
            error = self._error(reply, description)
            if error is not None:
                raise error
            break
        return answer

    def _post(
        self, message_type: type[Message], kind: int, flags: int, fields: Mapping[str, Any]
    ) -> int:
        """Send one request; returns its sequence number."""
        self._sequence += 1
        request = message_type()
        request.update(fields)
        header = {"type": kind, "flags": flags | NLM_F_REQUEST, "sequence_number": self._sequence}
        request["header"].update(header)
        request.encode()
        self._socket.send(request.data)
        return self._sequence

    def _replies(self, first: int, last: int | None = None) -> Iterator[Reply]:
        """Yield messages as they come: those whose sequence number is `first`, or up to `last`."""
        expected = range(first, (first if last is None else last) + 1)
        while True:
            yield from (reply for reply in self._receive() if reply.sequence in expected)

    def _receive(self) -> Iterator[Reply]:
        """Yield the messages that one system call receives."""
        data = self._socket.recv(_READ_BYTES)
        start = 0
        while start < len(data):
            length, kind, flags, sequence, _port = _HEADER.unpack_from(data, start)
            yield Reply(kind, flags, sequence, data, start, start + length)
            start += length + 3 & ~3

    def _error(self, reply: Reply, description: str) -> NetlinkError | None:
        """The error that a reply reports; None for an acknowledgement or any other message."""
        code = reply.error_code() if reply.kind == NLMSG_ERROR else 0
        if not code:
            return None
        return NetlinkError(self.namespace, description, code, reply.error_detail())


def attributes(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (type, start, end) of the payload of every attribute, without decoding it."""
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, start + _ATTRIBUTE.size, start + length
        start += length + 3 & ~3


# --------------------------------------------------------------------------------------------------
# The network namespaces of a fabric's nodes, as one process has them open.


class NodeNamespace(Closeable):
    """A node's network namespace: the only owner of its descriptor and of its netlink socket."""

    def __init__(self, name: str, fd: int) -> None:
        """Open the socket; the descriptor belongs to this object from here on."""
        self.fd = fd
        with self.entered():
            self.netlink = Netlink(name)

    def entered(self) -> AbstractContextManager[None]:
        """Be in the namespace for the duration of a block."""
        return namespaces.entered(self.fd)

    def close(self) -> None:
        self.netlink.close()
        os.close(self.fd)


class NodeNamespaces(Closeable):
    """The namespaces of this sandbox's nodes by name, each opened at its first use and once."""

    def __init__(self) -> None:
        self._open: dict[str, NodeNamespace] = {}

    def __getitem__(self, name: str) -> NodeNamespace:
        """Return a node's namespace.

        Raises:
            OSError: there is no namespace of that name.
        """
        if name not in self._open:
            self._open[name] = NodeNamespace(name, namespaces.open_netns(name))
        return self._open[name]

    def create(self, name: str) -> NodeNamespace:
        self._open[name] = NodeNamespace(name, namespaces.create_netns(name))
        return self._open[name]

    def remove(self, name: str) -> None:
        self._open.pop(name).close()
        namespaces.unmount(str(namespaces.NETNS_DIR / name))
        (namespaces.NETNS_DIR / name).unlink()

    def close(self) -> None:
        for namespace in self._open.values():
            namespace.close()
        self._open.clear()
