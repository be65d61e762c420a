"""Full packets from host to host, as fast as the kernel takes them: the load of measurements."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testbed.emulation.endpoint.carriers import Carriers
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.netlink.socket import Request
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import HEADERS, PAYLOAD_MTU, Topology
from testbed.mrc.constants import DscpClasses
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import SO_SNDBUFFORCE

BUFFER_BYTES = 1 << 29
_OUTER_BYTES = 40

Packet = tuple[bytes, tuple[str, int]]
"""An outer packet, whole, and the address to send it to."""


def two_host_topology(rate_bps: float, **changes: object) -> Topology:
    """Two hosts with a T1 between them: a path of four links of one emulated rate."""
    return Topology.model_validate(
        {
            "name": "line",
            "planes": 1,
            "t0_per_plane": 2,
            "t1_per_plane": 1,
            "hosts_per_t0": 1,
            "dilation": 100e9 / rate_bps,
            **changes,
        }
    )


def packet(topology: Topology, src: Node, dst: Node, inner_bytes: int = 0) -> Packet:
    """A data packet of the class that is never trimmed; by default a full one."""
    size = inner_bytes or HEADERS - _OUTER_BYTES + PAYLOAD_MTU
    carrier = Carriers(topology, src).to(
        nic_address(topology, dst).packed, 0, DscpClasses().no_trim
    )
    return carrier.outer_header(size) + bytes(size), carrier.address


def sender(node: Node) -> socket.socket:
    """A raw socket in a node that takes packets whole, and as many as are given to it."""
    opened = _raw_socket(node, socket.IPPROTO_RAW)
    opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    return opened


def receiver(node: Node) -> socket.socket:
    """A raw socket in a node that gets what arrives for its NIC, without the outer header."""
    return _raw_socket(node, socket.IPPROTO_IPV6)


def _raw_socket(node: Node, protocol: int) -> socket.socket:
    with namespaces.entered_by_name(node.name):
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)


@contextmanager
def in_background(job: Callable[[], None]) -> Iterator[None]:
    """Run a function in a process of its own until the end of the block."""

    def work(_: Channel) -> None:
        job()

    with spawn(work, title="the load", isolated=False) as process:
        yield
        process.kill()


def detach(fabric: Fabric, request: Callable[[int], Request]) -> None:
    """Take something off every port; `request` asks the kernel for it, given an ifindex."""
    for name, node in fabric.topology.nodes.items():
        ports = [port for port, _, _ in fabric.topology.adjacency[node]]
        fabric.namespaces[name].netlink.send(request(port.ifindex) for port in ports)
