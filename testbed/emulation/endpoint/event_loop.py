"""A host's rounds in real time, over its NIC: shared by a run's endpoints and the RDMA device.

The loop never waits for packets, only for times: the NIC (nic.py) keeps what arrives until it is
due. It wakes a few hundred times a second and does all that has become due.

The kernel announces every change of a link in the network namespace (rtnetlink, RTMGRP_LINK), so
nothing has to be polled. If it loses announcements because the socket's buffer is full, it reports
that, and the whole state is requested.
"""

import errno
import select
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from pyroute2.netlink import NLM_F_DUMP
from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_NEWLINK, RTMGRP_LINK

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.nic import Nic
from testbed.emulation.fabric.netlink import LinkMessage, Netlink
from testbed.host.rounds import HostTransport, Rounds
from testbed.model.closeable import Closeable
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER

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


class EventLoop(Closeable):
    """Hands arrivals, carrier changes and times to a host's queue pairs; sends; sleeps."""

    def __init__(self, nic: Nic, monitor: PortMonitor, transport: HostTransport) -> None:
        """Drive `transport` over a NIC; closing the loop closes NIC and monitor."""
        self._nic = nic
        self._monitor = monitor
        self._transport = transport
        self._rounds = Rounds(transport, nic.ports, nic.round_ns)
        self._core_ns = now_ns()  # the latest time that the queue pairs have been given

    def time_ns(self) -> int:
        """Read the clock for the queue pairs: no later arrival is given an earlier time."""
        self._core_ns = now_ns()
        return self._core_ns

    def receive(self, now: int) -> Iterator[int]:
        """Hand over the arrivals that are due; yield for each how long ago it was due, in ns."""
        for packet, arrival, late_ns in self._nic.arrivals(now, self._core_ns):
            self._transport.receive(memoryview(packet), arrival)
            yield late_ns

    def check_ports(self, now: int) -> None:
        """Hand over the carrier changes since the last call."""
        for plane, up in self._monitor.changes():
            self._transport.port_changed(plane, up=up, now_ns=now)

    def send(self, now: int) -> None:
        self._core_ns = now
        self._rounds.send(now)
        self._nic.sockets.flush()

    def sleep(
        self, now: int, watched: Sequence[socket.socket | int] = (), until_ns: int = NEVER
    ) -> tuple[int, bool]:
        """Sleep until the next round, or until a port changes or a descriptor is readable.

        Args:
            now: when this round began.
            watched: the descriptors.
            until_ns: the latest time to wake.

        Returns:
            When the loop meant to wake, or was woken; and whether a descriptor is readable.
        """
        next_ns = min(self._nic.next_arrival_ns(now), self._rounds.next_ns(now))
        wake_ns = min(max(next_ns, now + self._rounds.round_ns), until_ns)
        timeout_s = max(wake_ns - now_ns(), 0) / NS_PER_S
        ready = select.select([self._monitor, *watched], [], [], timeout_s)[0]
        if ready:
            wake_ns = self.time_ns()
        if self._monitor in ready:
            ready.remove(self._monitor)
            self.check_ports(wake_ns)
        return wake_ns, bool(ready)

    def close(self) -> None:
        self._nic.close()
        self._monitor.close()
