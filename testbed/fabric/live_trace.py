"""Send one real packet through a live fabric: by which ports it goes, with which address."""

import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address

from testbed.fabric.capture import Frame, PortCapture
from testbed.fabric.fabric import Fabric
from testbed.model.fabric.addressing import Path, carrier, flow_label_of_ev, nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from testbed.mrc.constants import HOP_LIMIT
from testbed.sandbox import namespaces
from testbed.sandbox.processes import call

IPPROTO_NONE = 59
ARRIVAL_S = 1.0
"""How long the packet may take; idle, the fabric needs a thousandth of it."""

_SETTLE_S = 0.05
_RING_FRAMES = 4
_IPV6 = struct.Struct(">IHBB16s16s")
_MARK = b"MRCtrace"


@dataclass(frozen=True, slots=True)
class Seen:
    """The packet as a capture saw it leave a port.

    Attributes:
        port: the port's name.
        destination: the outer destination address.
        hop_limit: the outer hop limit.
        next_header: what follows the outer header: 41, IPv6.
        flow_label: the outer flow label.
    """

    port: str
    destination: str
    hop_limit: int
    next_header: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class LiveTrace:
    """What became of the packet.

    Attributes:
        seen: every port of the fabric that it left by, in the order of time.
        delivered: whether the receiver got it, at its NIC's address and undamaged.
    """

    seen: tuple[Seen, ...]
    delivered: bool


def trace_live(topology: Topology, src: Node, dst: Node, path: Path, ev: int) -> LiveTrace:
    """Build the fabric in a sandbox, send one packet with an EV's flow label, return what it did.

    Raises:
        RunFailedError: the fabric did not come up as the model says.
    """
    trace = call(lambda: asdict(_in_sandbox(topology, src, dst, path, ev)))
    return LiveTrace(tuple(Seen(**seen) for seen in trace["seen"]), trace["delivered"])


def _in_sandbox(topology: Topology, src: Node, dst: Node, path: Path, ev: int) -> LiveTrace:
    with Fabric(topology) as fabric, ExitStack() as stack:
        fabric.verify()
        ports = [port for link in topology.links.values() for port in link.ports]
        captures = {
            port.name: stack.enter_context(PortCapture(port, _RING_FRAMES)) for port in ports
        }
        receiver = stack.enter_context(_raw_socket(dst, socket.IPPROTO_IPV6))
        sender = stack.enter_context(_raw_socket(src, socket.IPPROTO_RAW))
        to = carrier(topology, src, dst, path)
        packet, inner = _packet(topology, src, dst, to, ev)
        sender.sendto(packet, (str(to), 0))
        receiver.settimeout(ARRIVAL_S)
        try:
            delivered = receiver.recv(len(packet)) == inner
        except TimeoutError:
            delivered = False
        time.sleep(_SETTLE_S)  # whatever else the packet may have set off
        found = [(frame, name) for name, one in captures.items() for frame in one.read()]
        marked = sorted(pair for pair in found if _MARK in pair[0].data)
        return LiveTrace(tuple(_seen(name, frame) for frame, name in marked), delivered)


def _raw_socket(node: Node, protocol: int) -> socket.socket:
    with namespaces.entered_by_name(node.name):
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)


def _packet(
    topology: Topology, src: Node, dst: Node, to: IPv6Address, ev: int
) -> tuple[bytes, bytes]:
    """The packet, and what of it is to be delivered."""
    own, peer = nic_address(topology, src), nic_address(topology, dst)
    inner = _header(own, peer, 0, len(_MARK), IPPROTO_NONE) + _MARK
    label = flow_label_of_ev(ev)
    return _header(own, to, label, len(inner), socket.IPPROTO_IPV6) + inner, inner


def _header(src: IPv6Address, dst: IPv6Address, label: int, size: int, following: int) -> bytes:
    return _IPV6.pack(6 << 28 | label, size, following, HOP_LIMIT, src.packed, dst.packed)


def _seen(port: str, frame: Frame) -> Seen:
    first, _, following, hop_limit, _, dst = _IPV6.unpack_from(frame.data, ETHERNET_HEADER)
    return Seen(port, str(IPv6Address(dst)), hop_limit, following, first & 0xF_FFFF)
