"""Prove before a run that every link direction and every uN route carries packets.

Every host sends one small packet by every plane and T1 back to itself: T0 | T1 | T0 | own NIC.
Together these cross every link in both directions and use every route of every switch. What
arrives proves its whole path; the counters prove the same a second time, and say where a packet
that did not arrive was lost.
"""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address

from testbed.fabric.layout import Layout
from testbed.fabric.link_model.counters import Counters
from testbed.fabric.mininet.nodes import NamespaceNode
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import Path, carrier, links_of_path, nic_address, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT
from testbed.sandbox import namespaces

IPPROTO_NONE = 59
SILENCE_NS = 200_000_000
"""Without an arrival for this long, what is missing is lost."""

_IPV6 = struct.Struct(">IHBB16s16s")
_TOKEN = struct.Struct(">8sI")
_MARK = b"MRCsweep"


@dataclass(frozen=True, slots=True)
class Loop:
    """One packet of the sweep: from a host by a plane and a T1 back to itself."""

    host: Node
    path: Path


def sweep(layout: Layout, node: Callable[[Node], NamespaceNode]) -> None:
    """Send the packets and account for every one. Needs an otherwise idle fabric.

    Args:
        layout: the fabric.
        node: gives a node's namespace.

    Raises:
        RunFailedError: a link direction or a uN route did not carry what it should have; names it.
    """
    topology = layout.topology
    loops = [Loop(host, path) for host in topology.hosts for path in paths(topology, host, host)]
    with Counters(layout) as counters:
        before, sids_before = counters.directions(), counters.sids()
        lost = _run(topology, loops, node)
        after, sids_after = counters.directions(), counters.sids()
    carried = {name: after[name].packets - before[name].packets for name in after}
    dropped = {name: after[name].dropped - before[name].dropped for name in after}
    processed = {one: sids_after[one].packets - sids_before[one].packets for one in sids_after}
    problems = _culprits(topology, loops, lost, carried, dropped) or _uncounted(
        topology, loops, carried, processed
    )
    if lost or problems:
        listed = "\n  ".join(problems)
        raise RunFailedError(
            f"{len(lost)} of {len(loops)} packets of the sweep did not come back:\n  {listed}"
        )


def _directions(topology: Topology, loop: Loop) -> list[tuple[Node, str]]:
    """The link directions that a loop crosses, in order, each with the node that sends."""
    at = loop.host
    found = []
    for link in links_of_path(topology, loop.host, loop.host, loop.path):
        far = link.upper.node if link.lower.node == at else link.lower.node
        found.append((at, f"{at.name}>{far.name}"))
        at = far
    return found


def _culprits(
    topology: Topology,
    loops: list[Loop],
    lost: list[Loop],
    carried: dict[str, int],
    dropped: dict[str, int],
) -> list[str]:
    """Name what is to blame: on every lost packet's way the first link that carried too little."""
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
                    problems[f"link {before} or the routes of {sender.name}: {name} {count}"] = None
                break
            before = name
        else:
            problems[f"link {before} carried a packet that {loop.host.name} did not get"] = None
    return list(problems)


def _uncounted(
    topology: Topology, loops: list[Loop], carried: dict[str, int], processed: dict[Node, int]
) -> list[str]:
    """Name the counters that missed packets, where every packet arrived."""
    hops = [hop for loop in loops for hop in _directions(topology, loop)]
    directions = Counter(name for _, name in hops)
    visits = Counter(sender for sender, _ in hops if sender in processed)
    return [
        f"link {name} counted {carried[name]} of {count} packets"
        for name, count in directions.items()
        if carried[name] < count
    ] + [
        f"the SID of {switch.name} counted {processed[switch]} of {count} packets"
        for switch, count in visits.items()
        if processed[switch] < count
    ]


def _run(
    topology: Topology, loops: list[Loop], node: Callable[[Node], NamespaceNode]
) -> list[Loop]:
    """Send all packets, wait for them, and return the loops whose packet did not arrive."""
    with ExitStack() as stack:
        poller = select.poll()
        receivers: dict[int, socket.socket] = {}
        senders: dict[Node, socket.socket] = {}
        for host in topology.hosts:
            with namespaces.entered(node(host).netns):
                receiver = stack.enter_context(_raw_socket(socket.IPPROTO_IPV6))
                senders[host] = stack.enter_context(_raw_socket(socket.IPPROTO_RAW))
            receivers[receiver.fileno()] = receiver
            poller.register(receiver, select.POLLIN)
        for number, loop in enumerate(loops):
            destination = carrier(topology, loop.host, loop.host, loop.path)
            own = nic_address(topology, loop.host)
            senders[loop.host].sendto(_packet(own, destination, number), (str(destination), 0))
        missing = dict(enumerate(loops))
        deadline = time.monotonic_ns() + SILENCE_NS
        while missing and (left := deadline - time.monotonic_ns()) > 0:
            for fd, _ in poller.poll(left / 1e6):
                for number in _arrivals(receivers[fd]):
                    missing.pop(number, None)
                    deadline = time.monotonic_ns() + SILENCE_NS
    return list(missing.values())


@contextmanager
def _raw_socket(protocol: int) -> Iterator[socket.socket]:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_INET6, kind, protocol) as opened:
        yield opened


def _packet(own: IPv6Address, destination: IPv6Address, number: int) -> bytes:
    inner = _header(own, own, _TOKEN.size, IPPROTO_NONE) + _TOKEN.pack(_MARK, number)
    return _header(own, destination, len(inner), socket.IPPROTO_IPV6) + inner


def _header(src: IPv6Address, dst: IPv6Address, size: int, following: int) -> bytes:
    return _IPV6.pack(6 << 28, size, following, HOP_LIMIT, src.packed, dst.packed)


def _arrivals(receiver: socket.socket) -> Iterator[int]:
    while True:
        try:
            packet = receiver.recv(2048)
        except BlockingIOError:
            return
        if packet[_IPV6.size : _IPV6.size + len(_MARK)] == _MARK:
            yield _TOKEN.unpack_from(packet, _IPV6.size)[1]
