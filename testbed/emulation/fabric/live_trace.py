"""Send one real packet through a live fabric and record the ports and addresses on its way."""

import socket
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address

from testbed.emulation.fabric.capture import CapturedFrame, PortCapture
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.sweep import IPV6_HEADER, probe_packet, raw_socket
from testbed.model.fabric.addressing import Path, flow_label_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from testbed.sandbox.processes import call

ARRIVAL_S = 1.0
"""How long the packet may take; an idle fabric needs a thousandth of it."""

_SETTLE_S = 0.05
_RING_FRAMES = 4
_MARK = b"MRCtrace"


@dataclass(frozen=True, slots=True)
class Seen:
    """The packet as it was captured when it left a port.

    Attributes:
        port: the port's name.
        destination: the outer destination address.
        hop_limit: the outer hop limit.
        next_header: the protocol behind the outer header: 41, IPv6.
        flow_label: the outer flow label.
    """

    port: str
    destination: str
    hop_limit: int
    next_header: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class LiveTrace:
    """The way of the packet.

    Attributes:
        seen: the packet at every port of the fabric that it left by, in the order of time.
        delivered: whether the receiver got it, at its NIC's address and undamaged.
    """

    seen: tuple[Seen, ...]
    delivered: bool


def trace_live(topology: Topology, src: Node, dst: Node, path: Path, ev: int) -> LiveTrace:
    """Build the fabric in a sandbox, send one packet with an EV's flow label, return its way.

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
        from_node, to_node = fabric.namespaces[src.name], fabric.namespaces[dst.name]
        receiver = stack.enter_context(raw_socket(to_node, socket.IPPROTO_IPV6))
        sender = stack.enter_context(raw_socket(from_node, socket.IPPROTO_RAW))
        label = flow_label_of_ev(ev)
        packet, address = probe_packet(topology, src, dst, path, _MARK, label)
        sender.sendto(packet, (str(address), 0))
        receiver.settimeout(ARRIVAL_S)
        try:
            delivered = receiver.recv(len(packet)) == packet[IPV6_HEADER.size :]
        except TimeoutError:
            delivered = False
        time.sleep(_SETTLE_S)  # the kernel may have sent more packets because of this one
        frames = [(frame, name) for name, capture in captures.items() for frame in capture.read()]
        marked = sorted(pair for pair in frames if _MARK in pair[0].data)
        return LiveTrace(tuple(_seen(name, frame) for frame, name in marked), delivered)


def _seen(port: str, frame: CapturedFrame) -> Seen:
    first, _, next_header, hop_limit, _, dst = IPV6_HEADER.unpack_from(frame.data, ETHERNET_HEADER)
    return Seen(port, str(IPv6Address(dst)), hop_limit, next_header, first & 0xF_FFFF)
