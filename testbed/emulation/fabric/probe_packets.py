"""Packets that prove a path: IPv6 in IPv6, with a payload that belongs to no protocol."""

import socket
from ipaddress import IPv6Address

from testbed.emulation.fabric.netlink.namespaces import NodeNamespace
from testbed.model.fabric.addressing import Path, carrier_address, nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT
from testbed.mrc.wire.headers import IPV6

IPV6_HEADER = IPV6.struct()
"""Version, traffic class and flow label; payload length; next header; hop limit; addresses."""

IPPROTO_NONE = 59


def probe_packet(
    topology: Topology, src: Node, dst: Node, path: Path, payload: bytes, flow_label: int = 0
) -> tuple[bytes, IPv6Address]:
    """A packet whose carrier address leads it over a path.

    Returns the packet with its outer header, which has the flow label, and the carrier address. The
    receiver's raw socket delivers it from the inner header on.
    """
    own, peer = nic_address(topology, src), nic_address(topology, dst)
    destination = carrier_address(topology, src, dst, path)
    inner = _header(own, peer, len(payload), IPPROTO_NONE) + payload
    outer = _header(own, destination, len(inner), socket.IPPROTO_IPV6, flow_label)
    return outer + inner, destination


def _header(
    src: IPv6Address, dst: IPv6Address, size: int, next_header: int, flow_label: int = 0
) -> bytes:
    first_word = 6 << 28 | flow_label
    return IPV6_HEADER.pack(first_word, size, next_header, HOP_LIMIT, src.packed, dst.packed)


def raw_socket(namespace: NodeNamespace, protocol: int) -> socket.socket:
    """Open a raw IPv6 socket in a node: IPPROTO_RAW to send, IPPROTO_IPV6 to receive."""
    with namespace.entered():
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
