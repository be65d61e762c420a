"""Packets by hand: IPv6-in-IPv6 on a chosen path, and what arrives of it."""

import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address

from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.fabric.addressing import Path, carrier_address, nic_address
from testbed.model.fabric.names import directions_of
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.sandbox import namespaces

HEADER = struct.Struct(">IHBB16s16s")
ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_RX_RING = 5
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h


@contextmanager
def in_node(node: Node) -> Iterator[None]:
    """Be in a node's namespace."""
    fd = namespaces.open_netns(node.name)
    try:
        with namespaces.entered(fd):
            yield
    finally:
        os.close(fd)


def raw_socket(node: Node, protocol: int) -> socket.socket:
    """Open a raw IPv6 socket in a node."""
    with in_node(node):
        opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)
    for buffer in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):  # a busy machine lets it wait for long
        opened.setsockopt(socket.SOL_SOCKET, buffer, 1 << 24)
    return opened


class Capture:
    """What a node sends, copied the moment that it is sent.

    A plain packet socket shares the packet with the next hop, which shifts its uSIDs before
    anybody has read it here; only a ring is filled at once (packet(7), PACKET_RX_RING).
    """

    frame_bytes = 2048
    frames = 64
    header = struct.Struct("@LIIHHII")  # linux/if_packet.h, struct tpacket_hdr
    sender = struct.Struct("=HHiHBB")  # struct sockaddr_ll
    outgoing = 4

    def __init__(self, node: Node) -> None:
        """Listen from now on."""
        with in_node(node):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        size = self.frame_bytes * self.frames
        request = struct.pack("=IIII", size, 1, self.frame_bytes, self.frames)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self._ring = mmap.mmap(self._socket.fileno(), size)

    def sent(self) -> list[bytes]:
        """Every IPv6 packet that the node has sent."""
        found = []
        for start in range(0, len(self._ring), self.frame_bytes):
            status, _, size, mac, net, _, _ = self.header.unpack_from(self._ring, start)
            where = start + 32  # TPACKET_ALIGN(sizeof(struct tpacket_hdr))
            kind = self.sender.unpack_from(self._ring, where)[4]
            if status & 1 and kind == self.outgoing:
                found.append(self._ring[start + net : start + mac + size])
        return found


def encapsulated(
    topology: Topology, src: Node, dst: Node, path: Path, payload: bytes
) -> tuple[bytes, str]:
    """A packet with its outer header, and the carrier address to send it to."""
    outer_dst = carrier_address(topology, src, dst, path)
    own, peer = nic_address(topology, src), nic_address(topology, dst)
    inner = header(own, peer, len(payload), 59) + payload
    return header(own, outer_dst, len(inner), socket.IPPROTO_IPV6) + inner, str(outer_dst)


def header(src: IPv6Address, dst: IPv6Address, size: int, following: int) -> bytes:
    return HEADER.pack(6 << 28, size, following, 64, src.packed, dst.packed)


def arrives(topology: Topology, src: Node, dst: Node, path: Path, wait_s: float = 0.3) -> bool:
    """Send one packet on a path and say whether it arrives."""
    token = struct.pack("=q", time.monotonic_ns())
    data, to = encapsulated(topology, src, dst, path, token)
    with (
        raw_socket(src, socket.IPPROTO_RAW) as sender,
        raw_socket(dst, socket.IPPROTO_IPV6) as receiver,
    ):
        receiver.settimeout(wait_s)
        try:
            sender.sendto(data, (to, 0))
            return receiver.recv(9000)[HEADER.size :] == token
        except (TimeoutError, OSError):
            return False


def set_blackhole(control: LinkControl, link: str, *, on: bool) -> None:
    """Have both directions of a link swallow every packet, or heal both."""
    for direction in directions_of(link):
        control.impair(direction, Impairment(blackhole=on))
