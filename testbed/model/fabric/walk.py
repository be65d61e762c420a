"""A packet's walk: what each node on a path does with it, by the model alone."""

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from testbed.model.fabric.addressing import (
    Path,
    address,
    carrier_usids,
    links_of_path,
    locator,
)
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import Topology


@dataclass(frozen=True, slots=True)
class Hop:
    """One node on a packet's way.

    Attributes:
        node: the node.
        arrives: the destination address with which the packet comes; None at the sender.
        own: the prefix of the node's own that it matches there: a switch's uN /48, whose uSID is
            then shifted out, or the receiver's /128; None at the sender.
        leaves: the destination address with which it goes on; None at the receiver.
        route: the static /48 that leads it on; None at the receiver.
        port: the port that it leaves by; None at the receiver.
        hop_limit: with which it leaves; at the receiver, with which it has come.
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
    for number, (link, one) in enumerate(zip(links, usids, strict=True)):
        near, far = link.ports if link.lower.node == node else reversed(link.ports)
        leaves = address(*usids[number:])
        hops.append(Hop(node, arrives, own, leaves, locator(one), near, hop_limit - number))
        node, arrives, own = far.node, leaves, locator(one)
    last = IPv6Network(address(usids[-1]))
    hops.append(Hop(dst, arrives, last, None, None, None, hop_limit - len(links) + 1))
    return tuple(hops)
