"""A TUN device for one plane: the kernel's packets out of it, those of the peers into it.

It is paced at the port's rate, as a NIC would pace it, and holds the rest in its queue. So TCP
feels the port (TCP small queues: it leaves data in the socket while its packets wait here) and a
retransmission does not queue behind a whole window.
"""

import os
import socket
from collections.abc import Iterator
from ipaddress import IPv6Address, IPv6Network
from typing import Any

from testbed.fabric.interfaces import open_tun
from testbed.fabric.link_model import shaping
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.socket import Request
from testbed.fabric.ordinary.routes import inner_mtu
from testbed.model.closeable import Closeable
from testbed.model.fabric.shape import NIC_QUEUE_BDP, Shape
from testbed.model.fabric.topology import LINK_MTU, Topology

RTAX_RTO_MIN = 13
"""linux/rtnetlink.h. TCP heeds this metric only if the route locks it."""

_NS_PER_MS = 1_000_000


class Tun(Closeable):
    """A TUN device in the network namespace that this process is in, gone when it is closed.

    Attributes:
        plane: the plane whose packets it carries.
        ifindex: its number.
    """

    def __init__(self, topology: Topology, plane: int) -> None:
        """Make the device, down.

        Raises:
            OSError: there are no TUN devices here.
        """
        self.plane = plane
        self._topology = topology
        self._name = f"tun{plane}"
        self._fd = open_tun(self._name)
        self.ifindex = socket.if_nametoindex(self._name)

    def requests(
        self, own: IPv6Address, peers: Iterator[IPv6Address], rto_min_ns: int | None
    ) -> Iterator[Request]:
        """Yield what brings the device up: its address, its pace, a route to every peer's address.

        Args:
            own: the host's address in the plane.
            peers: the peers' addresses in the plane.
            rto_min_ns: TCP's least retransmission timeout; the kernel's own if None.
        """
        topology = self._topology
        mtu = inner_mtu(topology)
        rate_bps = topology.port_rate_bps * mtu // topology.wire_bytes
        yield requests.set_link_attribute(self.ifindex, self._name, "IFLA_MTU", mtu)
        yield requests.one_packet_at_a_time(self.ifindex, self._name)
        yield from shaping.attach(self.ifindex, Shape(rate_bps, NIC_QUEUE_BDP * topology.bdp_bytes))
        yield requests.set_link(self.ifindex, self._name, up=True)
        yield requests.new_address(own)
        attributes: list[tuple[str, Any]] = [("RTA_PREFSRC", str(own))]
        if rto_min_ns is not None:
            floor_ms = max(round(rto_min_ns / _NS_PER_MS), 1)
            floor = [("RTAX_LOCK", 1 << RTAX_RTO_MIN), ("RTAX_RTO_MIN", floor_ms)]
            attributes.append(("RTA_METRICS", {"attrs": floor}))
        route = requests.route_template(own.max_prefixlen, attributes)
        for peer in peers:
            description = f"{peer} dev {self._name}"
            yield requests.new_route(IPv6Network(peer), self.ifindex, route, description)

    def read(self) -> Iterator[bytes]:
        """Yield the packets that the kernel has sent by it, without blocking."""
        while True:
            try:
                yield os.read(self._fd, LINK_MTU)
            except BlockingIOError:
                return

    def write(self, packet: bytes | memoryview) -> None:
        """Hand a packet to the kernel's stack, which has dealt with it when this returns."""
        os.write(self._fd, packet)

    def close(self) -> None:
        """Close the device, which removes it."""
        os.close(self._fd)
