"""A packet's walk in the model: what each node on a path does with the packet."""

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from testbed.model.fabric.addressing import Path, address, carrier_usids, links_of_path, locator
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import Topology


@dataclass(frozen=True, slots=True)
class Hop:
    """What one node on a packet's path does with it.

    Attributes:
        node: the node.
        arrives: the packet's destination address on arrival; None at the sender.
        own: the node's own prefix that this address matches: the uN /48 of a switch, whose uSID is
            then shifted out, or the receiver's /128; None at the sender.
        leaves: the destination address with which the packet leaves; None at the receiver.
        route: the static /48 route that the packet follows; None at the receiver.
        port: the port through which it leaves; None at the receiver.
        hop_limit: its hop limit when it leaves; at the receiver, on arrival.
    """

    node: Node
    arrives: IPv6Address | None
    own: IPv6Network | None
    leaves: IPv6Address | None
    route: IPv6Network | None
    port: Port | None
    hop_limit: int


def walk(topology: Topology, src: Node, dst: Node, path: Path, hop_limit: int) -> tuple[Hop, ...]:
    """Every node that a packet passes, in order, sender and receiver included.

    `hop_limit` is the hop limit with which the packet leaves its sender.
    """
    usids = carrier_usids(topology, src, dst, path)
    links = links_of_path(topology, src, dst, path)
    hops = []
    node = src
    arrives: IPv6Address | None = None
    own: IPv6Network | None = None
    for number, (link, usid) in enumerate(zip(links, usids, strict=True)):
        near, far = link.ports if link.lower.node == node else reversed(link.ports)
        leaves = address(*usids[number:])
        hops.append(Hop(node, arrives, own, leaves, locator(usid), near, hop_limit - number))
        node, arrives, own = far.node, leaves, locator(usid)
    last = IPv6Network(address(usids[-1]))
    hops.append(Hop(dst, arrives, last, None, None, None, hop_limit - len(links) + 1))
    return tuple(hops)
