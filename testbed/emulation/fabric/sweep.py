"""Prove before a run that every link direction and every uN route carries packets.

Every host sends one small packet by every plane and T1 back to itself: T0 | T1 | T0 | own NIC.
Together these cross every link in both directions and use every route of every switch. A packet
that arrives proves its whole path. The counters prove the same a second time, and show where a
packet that did not arrive was lost.
"""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address

from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.link_model.link_control import LinkCounters
from testbed.emulation.fabric.netlink.socket import NodeNamespace, NodeNamespaces
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import (
    Path,
    carrier_address,
    directions_of_path,
    nic_address,
    paths,
)
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT
from testbed.mrc.wire.headers import IPV6
from testbed.sandbox.system_calls import until_blocked

# --------------------------------------------------------------------------------------------------
# Packets that prove a path: IPv6 in IPv6, with a payload that belongs to no protocol.


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


SILENCE_NS = 200_000_000
"""If nothing arrives for this long, the missing packets are lost."""

_TOKEN = struct.Struct(">8sI")
_MARK = b"MRCsweep"


@dataclass(frozen=True, slots=True)
class Loop:
    """One packet of the sweep: from a host by a plane and a T1 back to itself."""

    host: Node
    path: Path


def sweep(layout: Layout, namespaces: NodeNamespaces) -> None:
    """Send the packets and account for every one. Needs an otherwise idle fabric.

    Raises:
        RunFailedError: a link direction or a uN route did not carry what it should; names it.
    """
    topology = layout.topology
    loops = [Loop(host, path) for host in topology.hosts for path in paths(topology, host, host)]
    counters = LinkCounters(layout, namespaces)
    before, sids_before = counters.directions(), counters.sids()
    lost = _run(topology, loops, namespaces)
    after, sids_after = counters.directions(), counters.sids()
    carried = {name: after[name].packets - before[name].packets for name in after}
    dropped = {name: after[name].dropped - before[name].dropped for name in after}
    processed = {node.name: sids_after[node] - sids_before[node] for node in sids_after}
    problems = _places_of_loss(topology, loops, lost, carried, dropped) or _uncounted(
        topology, loops, carried, processed
    )
    if lost or problems:
        listed = "\n  ".join(problems)
        raise RunFailedError(
            f"{len(lost)} of {len(loops)} packets of the sweep did not come back:\n  {listed}"
        )


def _directions(topology: Topology, loop: Loop) -> list[tuple[str, str]]:
    """The link directions that a loop crosses, in order, each with the node that sends."""
    names = directions_of_path(topology, loop.host, loop.host, loop.path)
    return [(name.partition(">")[0], name) for name in names]


def _places_of_loss(
    topology: Topology,
    loops: list[Loop],
    lost: list[Loop],
    carried: Mapping[str, int],
    dropped: Mapping[str, int],
) -> list[str]:
    """Describe, for every lost packet, the first link of its path that carried too little."""
    expected = Counter(name for loop in loops for _, name in _directions(topology, loop))
    problems: dict[str, None] = {}
    for loop in lost:
        before = ""
        for sender, name in _directions(topology, loop):
            if carried[name] < expected[name]:
                count = f"carried {carried[name]} of {expected[name]} packets"
                if dropped[name] or not before:
                    problems[f"link {name} {count}, dropped {dropped[name]}"] = None
                else:
                    problems[f"link {before} or the routes of {sender}: {name} {count}"] = None
                break
            before = name
        else:
            problems[f"link {before} carried a packet that {loop.host.name} did not get"] = None
    return list(problems)


def _uncounted(
    topology: Topology, loops: list[Loop], carried: Mapping[str, int], processed: Mapping[str, int]
) -> list[str]:
    """Describe the counters that missed packets, where every packet arrived."""
    hops = [hop for loop in loops for hop in _directions(topology, loop)]
    expected = Counter(name for _, name in hops)
    visits = Counter(sender for sender, _ in hops if sender in processed)
    return [
        f"link {name} counted {carried[name]} of {count} packets"
        for name, count in expected.items()
        if carried[name] < count
    ] + [
        f"the SID of {switch} counted {processed[switch]} of {count} packets"
        for switch, count in visits.items()
        if processed[switch] < count
    ]


def _run(topology: Topology, loops: list[Loop], namespaces: NodeNamespaces) -> list[Loop]:
    """Send all packets, wait for them, and return the loops whose packet did not arrive."""
    with ExitStack() as stack:
        poller = select.poll()
        receivers: dict[int, socket.socket] = {}
        senders: dict[Node, socket.socket] = {}
        for host in topology.hosts:
            namespace = namespaces[host.name]
            receiver = stack.enter_context(raw_socket(namespace, socket.IPPROTO_IPV6))
            senders[host] = stack.enter_context(raw_socket(namespace, socket.IPPROTO_RAW))
            receivers[receiver.fileno()] = receiver
            poller.register(receiver, select.POLLIN)
        for number, loop in enumerate(loops):
            token = _TOKEN.pack(_MARK, number)
            packet, address = probe_packet(topology, loop.host, loop.host, loop.path, token)
            senders[loop.host].sendto(packet, (str(address), 0))
        missing = dict(enumerate(loops))
        deadline = time.monotonic_ns() + SILENCE_NS
        while missing and (remaining_ns := deadline - time.monotonic_ns()) > 0:
            for fd, _ in poller.poll(remaining_ns / 1e6):
                for number in _arrivals(receivers[fd]):
                    missing.pop(number, None)
                    deadline = time.monotonic_ns() + SILENCE_NS
    return list(missing.values())


def _arrivals(receiver: socket.socket) -> Iterator[int]:
    """Yield the numbers of the packets that have arrived."""
    for packet in until_blocked(partial(receiver.recv, 2048, socket.MSG_DONTWAIT)):
        if packet[IPV6_HEADER.size :].startswith(_MARK):
            yield _TOKEN.unpack_from(packet, IPV6_HEADER.size)[1]
