"""The one place that knows uSIDs, carrier addresses and entropy values.

A uSID is 16 bits: role (4) | plane (3) | index (9), so that the first hexadecimal digit tells the
role, and a path's address is computed from a template by or-ing in its plane and T1 number
(MRC paper, section 2; RFC 9800, NEXT-C-SID). The locator block is 32 bits of 5f00::/16, which
RFC 9602 reserves for SRv6 SIDs.

    carrier address, over a T1:   block | T0 of the source | T1 | T0 of the destination | NIC
    carrier address, T0-local:    block | T0 | NIC
    carrier address of a loop:    block | T0 | T1 | T0 | NIC of the sender itself

The NIC's uSID is the number of its T0's downlink: local to that T0, as 131,072 NICs times 8 planes
do not fit in 16 bits. The whole carrier address is still unique, and stands for one path.

An entropy value (EV) is 32 bits. Its upper half selects the path and travels in the flow labels,
its lower half travels in the UDP source port. (How the upper half selects a path is defined only
here; `EV_LABEL_SHIFT` in `mrc/constants.py` defines where the halves are in the inner packet.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from hashlib import blake2s
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from testbed.model.fabric.nodes import Link, Node, Port, Tier
from testbed.model.fabric.topology import Topology

LOCATOR_BLOCK = 0x5F00_0000
BLOCK_BITS = 32
USID_BITS = 16
MAX_USIDS = 6
"""Most uSIDs that one destination address carries behind the block."""

PLANE_SHIFT = 9

NIC_PREFIX = IPv6Network("fd4d:5243::/32")
"""Prefix of the NICs' own addresses: inner source and destination of every packet."""

ORDINARY = 0x10
"""Last 16 bits of a host's address for ordinary traffic in plane 0; the other planes' follow it."""

EV_PLANE_MASK = 0x7
EV_T1_SHIFT = 3
EV_T1_MASK = 0x1FF
PATH_BITS = 16
"""The EV's upper bits, which select the path and travel in the flow label."""

_PORT_BITS = 16
"""The EV's lower bits, which travel in the UDP source port."""


class Role(IntEnum):
    """The first four bits of a uSID: the role of its node."""

    T0 = 1
    T1 = 2
    NIC = 3
    FUNCTION = 0xF


DT6_USID = Role.FUNCTION << 12 | 6
"""Behind a NIC's uSID: End.DT6, decapsulate and hand to the host's own stack."""


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """A path through the fabric between two hosts.

    Attributes:
        plane: the plane that it is in.
        t1: the T1 that it passes; None for a path within one T0.
    """

    plane: int
    t1: int | None

    @property
    def name(self) -> str:
        """`p2/t1_3`, or `p2` for a T0-local path."""
        return f"p{self.plane}" if self.t1 is None else f"p{self.plane}/t1_{self.t1}"


_PATH = re.compile(r"p(\d)(?:/t1_(\d{1,3}))?", re.ASCII)


def path_named(name: str) -> Path | None:
    """The path with this name (see `Path.name`); None if it is no name of a path."""
    match = _PATH.fullmatch(name)
    return match and Path(int(match[1]), None if match[2] is None else int(match[2]))


def path_remedy(name: str) -> str:
    """A remedy that names the path which is meant by the name of a T1 or plane; empty if none."""
    match = re.fullmatch(r"p(\d)(?:[_/.-]?t1[_-]?(\d{1,3}))", name.strip().lower())
    meant = match and Path(int(match[1]), int(match[2])).name
    return f"did you mean {meant}?" if meant and meant != name else ""


def usid_of(role: Role, plane: int, index: int) -> int:
    """The uSID of a node, 16 bits."""
    return role << 12 | plane << PLANE_SHIFT | index


def node_usid(topology: Topology, node: Node, plane: int) -> int:
    """The uSID by which a node's neighbours reach it; a NIC has one in each plane."""
    match node.tier:
        case Tier.HOST:
            return usid_of(Role.NIC, plane, topology.downlink(node))
        case Tier.T0:
            return usid_of(Role.T0, plane, node.index)
        case Tier.T1:
            return usid_of(Role.T1, plane, node.index)


def address(*usids: int) -> IPv6Address:
    """The destination address that carries these uSIDs behind the locator block.

    Raises:
        ValueError: there are more than six.
    """
    if len(usids) > MAX_USIDS:
        raise ValueError(f"at most {MAX_USIDS} uSIDs, not {len(usids)}")
    value = LOCATOR_BLOCK
    for usid in usids:
        value = value << USID_BITS | usid
    return IPv6Address(value << USID_BITS * (MAX_USIDS - len(usids)))


def locator(usid: int) -> IPv6Network:
    """The /48 that a switch matches for a uSID."""
    return IPv6Network((address(usid), BLOCK_BITS + USID_BITS))


def nic_address(topology: Topology, host: Node) -> IPv6Address:
    """The NIC's own address, the same in each plane."""
    rack, downlink = topology.rack(host), topology.downlink(host)
    return NIC_PREFIX[rack << 80 | downlink << 64 | 1]


def host_of_nic(topology: Topology, nic: IPv6Address) -> Node | None:
    value = int(nic) - int(NIC_PREFIX.network_address)
    rack, downlink = value >> 80, value >> 64 & 0xFFFF
    if not 0 <= rack < topology.t0_per_plane or downlink >= topology.hosts_per_t0:
        return None
    host = topology.host_below(rack, downlink)
    return host if nic_address(topology, host) == nic else None


LINK_PREFIX = IPv6Network("fd4d:5243:ffff::/64")
"""Addresses of ports on real switches, the two of a link in one /127 (RFC 6164). The emulation has
none: there a permanent neighbour entry stands for them."""


def link_address(port: Port) -> IPv6Address:
    """The address of one end of a link: its interface index, of which a link has two in a row."""
    return LINK_PREFIX[port.ifindex]


# --- paths and carriers -----------------------------------------------------------------------


def paths(topology: Topology, src: Node, dst: Node) -> tuple[Path, ...]:
    """All paths between two hosts, planes interleaved."""
    planes = range(topology.planes)
    if topology.rack(src) == topology.rack(dst) and src != dst:
        return tuple(Path(plane, None) for plane in planes)
    return tuple(Path(plane, t1) for t1 in range(topology.t1_per_plane) for plane in planes)


def path_count(topology: Topology, src: Node, dst: Node) -> int:
    """The number of all paths between two hosts, without listing them."""
    local = topology.rack(src) == topology.rack(dst) and src != dst
    return topology.planes * (1 if local else topology.t1_per_plane)


def carrier_usids(topology: Topology, src: Node, dst: Node, path: Path) -> tuple[int, ...]:
    """The uSIDs of a path, in the order in which they are shifted out."""
    nic = node_usid(topology, dst, path.plane)
    last = usid_of(Role.T0, path.plane, topology.rack(dst))
    if path.t1 is None:
        return last, nic
    first = usid_of(Role.T0, path.plane, topology.rack(src))
    return first, usid_of(Role.T1, path.plane, path.t1), last, nic


def carrier_address(topology: Topology, src: Node, dst: Node, path: Path) -> IPv6Address:
    """The carrier address of a path: the outer destination address of its packets."""
    return address(*carrier_usids(topology, src, dst, path))


def address_via(topology: Topology, nodes: Sequence[Node], plane: int) -> IPv6Address:
    """The destination address of a packet from the first of these nodes that visits all others.

    For probes, which take routes that no carrier takes: to a switch and back, or over a T1 to
    another rack and back over another T1, which needs all six uSIDs.

    Raises:
        ValueError: there are more than six nodes after the first.
    """
    return address(*(node_usid(topology, node, plane) for node in nodes[1:]))


def links_of_path(topology: Topology, src: Node, dst: Node, path: Path) -> tuple[Link, ...]:
    """The links that a path crosses, in order."""
    first = topology.nic_link(src, path.plane)
    last = topology.nic_link(dst, path.plane)
    if path.t1 is None:
        return first, last
    up = topology.fabric_link(path.plane, topology.rack(src), path.t1)
    down = topology.fabric_link(path.plane, topology.rack(dst), path.t1)
    return first, up, down, last


def directions_of_path(topology: Topology, src: Node, dst: Node, path: Path) -> tuple[str, ...]:
    """The names of the directions of links that a path crosses, in order: up, then down."""
    links = links_of_path(topology, src, dst, path)
    climb = len(links) // 2
    return tuple(link.directions[i >= climb] for i, link in enumerate(links))


# --- ordinary traffic: packets of the kernel's own stack on the same paths -----------------------


def ordinary_address(topology: Topology, host: Node, plane: int) -> IPv6Address:
    """A host's address for TCP, MPTCP and ping: one in each plane."""
    return nic_address(topology, host) - 1 + ORDINARY + plane


MANAGEMENT = IPv4Network("198.18.0.0/15")
"""The management network's addresses: for tests of networks (RFC 2544), so nobody's own."""


def management_address(host: Node) -> IPv4Address:
    """A host's address in the management network, which is no part of the fabric."""
    return MANAGEMENT.network_address + 1 + host.index


def dt6_sid(topology: Topology, host: Node, plane: int) -> IPv6Address:
    """The destination of an ordinary packet on arrival: the host's End.DT6 SID (RFC 8986, 4.6)."""
    return address(node_usid(topology, host, plane), DT6_USID)


def delivery_sid() -> IPv6Address:
    """The same once the NIC's uSID is shifted out as well: alike on every host."""
    return address(DT6_USID)


def ordinary_carrier_address(topology: Topology, src: Node, dst: Node, path: Path) -> IPv6Address:
    """The carrier address of ordinary traffic on a path: MRC's, followed by End.DT6."""
    return address(*carrier_usids(topology, src, dst, path), DT6_USID)


def ordinary_path(topology: Topology, src: Node, dst: Node, plane: int, seed: int = 0) -> Path:
    """The default path of ordinary traffic in a plane.

    As with ECMP the T1 is selected by a hash, here of the pair of hosts and the seed, so that pairs
    collide by chance and both directions share a path.
    """
    if topology.rack(src) == topology.rack(dst):
        return Path(plane, None)
    low, high = sorted((src.index, dst.index))
    hashed = blake2s(f"{seed} {plane} {low} {high}".encode(), digest_size=8).digest()
    return Path(plane, int.from_bytes(hashed, "big") % topology.t1_per_plane)


# --- entropy values ---------------------------------------------------------------------------


def ev_for_path(path: Path, entropy: int = 0) -> int:
    """An EV that selects a path; `entropy` (16 bits) distinguishes EVs on the same path."""
    return ev_of_halves((path.t1 or 0) << EV_T1_SHIFT | path.plane, entropy)


def ev_of_halves(flow_label: int, source_port: int) -> int:
    """The EV of a packet, from the 16 bits in its flow label and the 16 in its UDP source port."""
    return flow_label << _PORT_BITS | source_port


def path_of_ev(topology: Topology, src: Node, dst: Node, ev: int) -> Path:
    """The path that a 32-bit EV selects between two hosts."""
    label = flow_label_of_ev(ev)
    plane = (label & EV_PLANE_MASK) % topology.planes
    if topology.rack(src) == topology.rack(dst) and src != dst:
        return Path(plane, None)
    return Path(plane, (label >> EV_T1_SHIFT & EV_T1_MASK) % topology.t1_per_plane)


def flow_label_of_ev(ev: int) -> int:
    """The half of an EV that travels in the flow label and selects the path."""
    return ev >> _PORT_BITS


def source_port_of_ev(ev: int) -> int:
    """The half of an EV that travels in the UDP source port: further entropy."""
    return ev & (1 << _PORT_BITS) - 1


# --- routes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A static route to a neighbour: its /48 through one port.

    Attributes:
        locator: the neighbour's uSID behind the block.
        port: the port that leads there.
        via: the far end of its link, whose link-local address and MAC are the next hop.
    """

    locator: IPv6Network
    port: Port
    via: Port


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """All routes of a node: O(radix) entries, written once.

    Attributes:
        un: the node's own uN locator (seg6local End with NEXT-C-SID); None for a host.
        local: the addresses at which a host receives: its NIC's uSIDs and its own address.
        neighbours: one static route to each neighbour.
    """

    un: IPv6Network | None
    local: tuple[IPv6Address, ...]
    neighbours: tuple[Neighbour, ...]


LINK_LOCAL = IPv6Address("fe80::1")
"""Next hop on every link, resolved by a permanent neighbour entry of each port."""


def node_routes(topology: Topology, node: Node) -> NodeRoutes:
    neighbours = tuple(
        Neighbour(locator(node_usid(topology, far.node, link.plane)), near, far)
        for near, far, link in topology.adjacency[node]
    )
    if node.tier is Tier.HOST:
        own = tuple(address(node_usid(topology, node, p)) for p in range(topology.planes))
        return NodeRoutes(None, (*own, nic_address(topology, node)), neighbours)
    return NodeRoutes(locator(node_usid(topology, node, node.plane)), (), neighbours)


PLANE_BITS = 3
UPLINK_BITS = 9
MOST_UPLINKS = 128
"""Most uplinks of a T0 that reads structured EVs. Each has a routing table of its own, and the
kernel has few free numbers for tables (`fabric/routes.py`)."""

_REST_BITS = 16 - PLANE_BITS - UPLINK_BITS


class EvMode(StrEnum):
    """How the fabric finds the path of a packet: by SRv6 uSIDs, a hash, or fields of its EV.

    With SRv6 the host writes the path into an outer header. Without an outer header switches
    forward by the destination, and where several links lead there they use the EV, which every
    packet carries in its UDP source port and its flow label:

    - ECMP: a switch hashes addresses, ports and flow label. The host cannot know which path an EV
      has.
    - Structured EV: each tier reads its own field of the EV. The NIC's port and the T0's uplink are
      fields of the half in the UDP source port, from the most significant bit on.
    """

    SRV6 = "srv6"
    ECMP = "ecmp"
    STRUCTURED = "structured"


def core_ev(mode: EvMode, ev: int) -> int:
    """Convert an EV of a mode into the form that the protocol core has, or back.

    The core has the half in the flow label first, as two sources write EVs. A structured EV has the
    half in the UDP source port first (one source), so its halves are swapped.
    """
    if mode is not EvMode.STRUCTURED:
        return ev
    return ev_of_halves(source_port_of_ev(ev), flow_label_of_ev(ev))


def structured_path(ev: int) -> Path:
    """What the tiers read in a structured EV: the NIC its port, the T0 its uplink."""
    port = flow_label_of_ev(ev)  # the upper half
    return Path(port >> UPLINK_BITS + _REST_BITS, port >> _REST_BITS & (1 << UPLINK_BITS) - 1)


def source_ports(path: Path) -> range:
    """The UDP source ports of the structured EVs of a path."""
    first = (path.plane << UPLINK_BITS | (path.t1 or 0)) << _REST_BITS
    return range(first, first + (1 << _REST_BITS))
