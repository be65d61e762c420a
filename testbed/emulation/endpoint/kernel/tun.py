"""A TUN device for one plane: the kernel sends packets through it, and takes in those of peers.

It sends at the port's rate, as a NIC does, and queues the rest. So TCP notices a busy port (TCP
small queues: data stays in the socket while packets wait here), and a retransmission does not queue
behind a whole window.
"""

import os
import socket
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from typing import Any

from testbed.emulation.fabric.interfaces import open_tun
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.netlink import requests
from testbed.emulation.fabric.netlink.socket import Request
from testbed.emulation.fabric.ordinary.routes import inner_mtu
from testbed.model.closeable import Closeable
from testbed.model.fabric.shape import NIC_QUEUE_BDP, Shape
from testbed.model.fabric.topology import LINK_MTU, Topology
from testbed.sandbox.system_calls import until_blocked

RTAX_RTO_MIN = 13
"""linux/rtnetlink.h. TCP uses this metric only if the route locks it."""

_NS_PER_MS = 1_000_000


class Tun(Closeable):
    """A TUN device in the network namespace that this process is in, gone when it is closed.

    Attributes:
        plane: the plane whose packets it carries.
        ifindex: its interface index.
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
        self, address: IPv6Address, peers: Iterator[IPv6Address], rto_min_ns: int | None
    ) -> Iterator[Request]:
        """Yield the requests that bring the device up: address, rate, a route to every peer.

        Args:
            address: the host's address in the plane.
            peers: the peers' addresses in the plane.
            rto_min_ns: TCP's minimum retransmission timeout; the kernel's own if None.
        """
        topology = self._topology
        mtu = inner_mtu(topology)
        rate_bps = topology.port_rate_bps * mtu // topology.wire_bytes
        yield requests.set_link_attribute(self.ifindex, self._name, "IFLA_MTU", mtu)
        yield requests.one_packet_at_a_time(self.ifindex, self._name)
        yield from shaping.attach(self.ifindex, Shape(rate_bps, NIC_QUEUE_BDP * topology.bdp_bytes))
        yield requests.set_link(self.ifindex, self._name, up=True)
        yield requests.new_address(address)
        attributes: list[tuple[str, Any]] = [("RTA_PREFSRC", str(address))]
        if rto_min_ns is not None:
            floor_ms = max(round(rto_min_ns / _NS_PER_MS), 1)
            floor = [("RTAX_LOCK", 1 << RTAX_RTO_MIN), ("RTAX_RTO_MIN", floor_ms)]
            attributes.append(("RTA_METRICS", {"attrs": floor}))
        route = requests.route_template(address.max_prefixlen, attributes)
        for peer in peers:
            description = f"{peer} dev {self._name}"
            yield requests.new_route(IPv6Network(peer), self.ifindex, route, description)

    def read(self) -> Iterator[bytes]:
        """The packets that the kernel has sent through it, read without blocking."""
        return until_blocked(partial(os.read, self._fd, LINK_MTU))

    def write(self, packet: bytes | memoryview) -> None:
        """Hand a packet to the kernel's stack, which has processed it when this returns."""
        os.write(self._fd, packet)

    def close(self) -> None:
        """Close the device, which removes it."""
        os.close(self._fd)
