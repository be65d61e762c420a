"""The names of nodes, links and directions of links, and what they stand for.

Nothing here builds the whole fabric, so that a lookup in a fabric of the real size is as fast as in
a small one.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from itertools import pairwise

from testbed.model.errors import Problem, did_you_mean
from testbed.model.fabric.addressing import Path, address, carrier_usids, links_of_path, locator
from testbed.model.fabric.nodes import Link, Node, Port, Tier
from testbed.model.fabric.topology import Topology

_MAX_SEARCHED = 20_000
"""Most links of a fabric that is searched for names similar to a misspelt one."""

_NODE = re.compile(r"h(0|[1-9]\d{0,8})|p(\d)_(t[01])_(0|[1-9]\d{0,8})", re.ASCII)


def node_named(topology: Topology, name: str) -> Node | None:
    match = _NODE.fullmatch(name)
    if match is None:
        return None
    host, plane, tier, index = match.groups()
    if host is not None:
        inside = int(host) < topology.host_count
        return topology.host(int(host)) if inside else None
    count = topology.t0_per_plane if tier == Tier.T0 else topology.t1_per_plane
    inside = int(plane) < topology.planes and int(index) < count
    return Node(Tier(tier), int(plane), int(index)) if inside else None


def unknown_host(topology: Topology, where: str, name: str) -> Problem | None:
    """The problem of a name that is not a host's; None if it is one."""
    node = node_named(topology, name)
    if node is not None and node.tier is Tier.HOST:
        return None
    last = topology.host_count - 1
    remedy = "a switch sends no data: name a host below it"
    if node is None:
        remedy = host_remedy(topology, name)
    return Problem(where, name, f"a host of {topology.name}: h0 to h{last}", remedy)


def unknown_link(topology: Topology, where: str, name: str) -> Problem | None:
    """The problem of a name that is not a link's; None if it is one."""
    if link_named(topology, name) is not None:
        return None
    nic = topology.nic_link(topology.host(0), 0).name
    expected = f"a link of {topology.name}, such as {topology.fabric_link(0, 0, 0).name} or {nic}"
    remedy = ends_remedy(topology, name)
    if node_named(topology, name) is not None:
        remedy = f"{name} is a node: name the link, with both its ends"
    elif not remedy and searchable(topology):
        remedy = did_you_mean(name, tuple(topology.links))
    return Problem(where, name, expected, remedy)


def ends_remedy(topology: Topology, name: str) -> str:
    """A remedy for a link whose ends are in the wrong order; empty if that is not the mistake."""
    upper, _, lower = name.partition("--")
    link = link_between(topology, lower, upper)
    return f"the end nearer to the hosts comes first: {link.name}" if link is not None else ""


def host_remedy(topology: Topology, name: str) -> str:
    """Which host a misspelt name means; empty if none is like it, or only its number is wrong."""
    is_spelled = _NODE.fullmatch(name) is not None or not searchable(topology)
    return "" if is_spelled else did_you_mean(name, [host.name for host in topology.hosts])


def searchable(topology: Topology) -> bool:
    """Whether a fabric is so small that it may be searched for similar names."""
    links_of_t0 = topology.hosts_per_t0 + topology.t1_per_plane
    return topology.planes * topology.t0_per_plane * links_of_t0 <= _MAX_SEARCHED


def link_between(topology: Topology, a: str, b: str) -> Link | None:
    """The link between two nodes, given in either order; None if there is none."""
    match sorted(filter(None, (node_named(topology, a), node_named(topology, b)))):
        case Node(tier=Tier.HOST) as host, Node(tier=Tier.T0) as t0:
            link = topology.nic_link(host, t0.plane)
        case Node(tier=Tier.T0) as t0, Node(tier=Tier.T1) as t1:
            link = topology.fabric_link(t0.plane, t0.index, t1.index)
        case _:
            return None
    return link if {end.node.name for end in link.ports} == {a, b} else None


def link_named(topology: Topology, name: str) -> Link | None:
    """The link with this name, `lower--upper`; None if the fabric has no such link."""
    lower, _, upper = name.partition("--")
    link = link_between(topology, lower, upper)
    return link if link is not None and link.name == name else None


def direction_named(topology: Topology, name: str) -> tuple[Link, Port] | None:
    """The link and the sending port of a direction `a>b`; None if the fabric has no such link."""
    sender, _, receiver = name.partition(">")
    link = link_between(topology, sender, receiver)
    if link is None:
        return None
    return link, link.lower if link.lower.node.name == sender else link.upper


def link_of(direction: str) -> str:
    return "--".join(sorted(direction.split(">"), key=_height))


def directions_of(link: str) -> tuple[str, str]:
    """The names of a link's directions, up first."""
    lower, _, upper = link.partition("--")
    return f"{lower}>{upper}", f"{upper}>{lower}"


def ends_at_host(direction: str) -> bool:
    """Whether a direction's packets arrive at a host."""
    return _height(direction.partition(">")[2]) == 0


def directions_along(path: str) -> list[str]:
    """The link directions of a probe's path such as `p2:h0>p2_t0_0>h0`, in order."""
    return [f"{near}>{far}" for near, far in pairwise(path.partition(":")[2].split(">"))]


def _height(node: str) -> int:
    """How far a node is from the hosts, in tiers."""
    return 0 if node.startswith("h") else 1 if "_t0_" in node else 2


# --------------------------------------------------------------------------------------------------
# A packet's walk in the model: what each node on a path does with the packet.


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
