"""What the names in a scenario stand for: nodes, links, one direction of a link.

Nothing here builds the whole fabric, so that a name in a fabric of the real size is found as fast
as in a small one.
"""

import re

from testbed.model.fabric.nodes import Link, Node, Port, Tier
from testbed.model.fabric.topology import Topology

_MAX_SEARCHED = 20_000
"""Fabrics with more links are not searched for similar names."""

_NODE = re.compile(r"h(0|[1-9]\d{0,8})|p(\d)_(t[01])_(0|[1-9]\d{0,8})", re.ASCII)


def searchable(topology: Topology) -> bool:
    """Whether to look for similar names: not where that would build a fabric of the real size."""
    links_of_t0 = topology.hosts_per_t0 + topology.t1_per_plane
    return topology.planes * topology.t0_per_plane * links_of_t0 <= _MAX_SEARCHED


def node_named(topology: Topology, name: str) -> Node | None:
    """The node of that name, if the fabric has it."""
    match = _NODE.fullmatch(name)
    if match is None:
        return None
    host, plane, tier, index = match.groups()
    if host is not None:
        inside = int(host) < topology.t0_per_plane * topology.hosts_per_t0
        return topology.host(int(host)) if inside else None
    count = topology.t0_per_plane if tier == Tier.T0 else topology.t1_per_plane
    inside = int(plane) < topology.planes and int(index) < count
    return Node(Tier(tier), int(plane), int(index)) if inside else None


def link_between(topology: Topology, a: str, b: str) -> Link | None:
    """The link that joins two nodes, given in either order."""
    match node_named(topology, a), node_named(topology, b):
        case (Node(tier=Tier.HOST) as host, Node(tier=Tier.T0) as t0) | (
            Node(tier=Tier.T0) as t0,
            Node(tier=Tier.HOST) as host,
        ):
            link = topology.nic_link(host, t0.plane)
        case (Node(tier=Tier.T0) as t0, Node(tier=Tier.T1) as t1) | (
            Node(tier=Tier.T1) as t1,
            Node(tier=Tier.T0) as t0,
        ):
            link = topology.fabric_link(t0.plane, t0.index, t1.index)
        case _:
            return None
    return link if {end.node.name for end in link.ports} == {a, b} else None


def link_named(topology: Topology, name: str) -> Link | None:
    """The link of that name, `lower--upper`, if the fabric has it."""
    lower, _, upper = name.partition("--")
    link = link_between(topology, lower, upper)
    return link if link is not None and link.name == name else None


def direction_named(topology: Topology, name: str) -> tuple[Link, Port] | None:
    """The link of a direction `a>b` and the port that sends, if the fabric has it."""
    sender, _, receiver = name.partition(">")
    link = link_between(topology, sender, receiver)
    if link is None:
        return None
    return link, link.lower if link.lower.node.name == sender else link.upper


def link_of(direction: str) -> str:
    """The name of a direction's link: the end nearer to the hosts comes first."""
    sender, _, receiver = direction.partition(">")
    return "--".join(sorted((sender, receiver), key=_height))


def directions_of(link: str) -> tuple[str, str]:
    """The names of a link's directions, up first."""
    lower, _, upper = link.partition("--")
    return f"{lower}>{upper}", f"{upper}>{lower}"


def _height(node: str) -> int:
    if node.startswith("h"):
        return 0
    return 1 if "_t0_" in node else 2
