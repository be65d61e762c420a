"""Carrier of the host's own ports, as the kernel announces it (rtnetlink, RTMGRP_LINK).

The kernel announces every change of a link in the network namespace, so nothing has to be polled.
If it loses announcements because the socket's buffer is full, it reports that, and the whole state
is requested.
"""

import errno
import struct
from collections.abc import Iterator, Mapping
from typing import Self

from pyroute2.netlink import NLM_F_DUMP
from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_NEWLINK, RTMGRP_LINK

from testbed.emulation.fabric.netlink.messages import LinkMessage
from testbed.emulation.fabric.netlink.socket import Netlink
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

_IFF_UP = 0x1
_IFF_LOWER_UP = 0x10000
_WORKING = _IFF_UP | _IFF_LOWER_UP

_LINK = struct.Struct("=16x4xiI")  # header, family and type, ifindex, flags


class PortMonitor(Netlink):
    """The ports of the network namespace that this process is in, and whether they have carrier."""

    groups = RTMGRP_LINK

    def __init__(self, planes: Mapping[int, int]) -> None:
        """Listen from now on; `planes` gives the planes of the ports by interface index."""
        super().__init__("the host")
        self._planes = planes
        self._up: dict[int, bool] = {}
        self._socket.setblocking(False)
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
                links = [reply for reply in self._receive() if reply.kind == RTM_NEWLINK]
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._request_state()
                continue
            for link in links:
                index, flags = _LINK.unpack_from(link.buffer, link.start)
                plane, up = self._planes.get(index), flags & _WORKING == _WORKING
                if plane is not None and self._up.get(plane, True) != up:
                    self._up[plane] = up
                    yield plane, up

    def _request_state(self) -> None:
        self._post(LinkMessage, RTM_GETLINK, NLM_F_DUMP, {})
