"""Carrier of the host's own ports, as the kernel announces it (rtnetlink, RTMGRP_LINK).

The kernel announces every change of a link in the network namespace, so nothing has to be polled.
If it loses announcements because the socket's buffer is full, it reports that, and the whole state
is requested.
"""

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Self

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

_RTMGRP_LINK = 1
_RTM_NEWLINK = 16
_RTM_GETLINK = 18
_NLM_F_REQUEST = 0x1
_NLM_F_DUMP = 0x300
_IFF_UP = 0x1
_IFF_LOWER_UP = 0x10000
_WORKING = _IFF_UP | _IFF_LOWER_UP
_BUFFER_BYTES = 1 << 16

_HEADER = struct.Struct("=IHHII")
"""`struct nlmsghdr`: length, type, flags, sequence number, port."""

_LINK = struct.Struct("=BxHiII")
"""`struct ifinfomsg`: family, type, index, flags, change mask."""


class PortMonitor:
    """The ports of the network namespace that this process is in, and whether they have carrier."""

    def __init__(self, planes: Mapping[int, int]) -> None:
        """Listen from now on; `planes` gives the planes of the ports by interface index."""
        self._planes = planes
        self._up: dict[int, bool] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.bind((0, _RTMGRP_LINK))
        self._request_state()

    @classmethod
    def of(cls, topology: Topology, host: Node) -> Self:
        """Listen to the ports of a host, whose network namespace this process is in."""
        links = (topology.nic_link(host, plane) for plane in range(topology.planes))
        return cls({link.lower.ifindex: link.plane for link in links})

    def fileno(self) -> int:
        """The file descriptor that is readable after a change."""
        return self._socket.fileno()

    def changes(self) -> Iterator[tuple[int, bool]]:
        """Yield every change since the last call: a plane, and whether its port has carrier.

        All ports count as having carrier at first, so a port without it is a change.
        """
        while True:
            try:
                data = self._socket.recv(_BUFFER_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._request_state()
                continue
            for index, up in _links_in(data):
                plane = self._planes.get(index)
                if plane is not None and self._up.get(plane, True) != up:
                    self._up[plane] = up
                    yield plane, up

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _request_state(self) -> None:
        length = _HEADER.size + _LINK.size
        header = _HEADER.pack(length, _RTM_GETLINK, _NLM_F_REQUEST | _NLM_F_DUMP, 1, 0)
        self._socket.send(header + _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0))


def _links_in(data: bytes) -> Iterator[tuple[int, bool]]:
    """The interfaces in netlink messages: index, and whether it is up with carrier."""
    position = 0
    while position + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, position)
        if kind == _RTM_NEWLINK:
            _, _, index, flags, _ = _LINK.unpack_from(data, position + _HEADER.size)
            yield index, flags & _WORKING == _WORKING
        position += max(length + 3 & ~3, _HEADER.size)
