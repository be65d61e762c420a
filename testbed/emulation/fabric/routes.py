"""A node's routes, neighbours and addresses: expected by the model, written, and read back.

5f00:0:1000::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 count dev usid
5f00:0:2001::/48 via fe80::1 dev p0_t0_0-u1
5f00:0:3000:f006::/128 encap seg6local action End.DT6 table local count dev usid
fd4d:5243:1::10/128 encap seg6 mode encap.red segs 1 [ 5f00:0:1000:... ] src fd4d:5243::10 dev usid

Beside them, for other EV modes, are routes for packets without an outer header, which find their
path by ECMP or by a structured EV. A host has one through each of its ports, and a packet takes
that of the socket's port. A T1, and a T0 downwards, forward by the destination. A T0 upwards

    hashes:  fd4d:5243:1::1  nexthop via fe80::1 dev p0_t0_0-u0  nexthop via fe80::1 dev p0_t0_0-u1
    reads its field:  ip -6 rule ipproto udp sport 16-31 lookup 102
"""

import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from operator import itemgetter
from socket import AF_INET6
from typing import Any

from pyroute2.netlink.rtnl import RTM_GETNEIGH, RTM_GETROUTE
from pyroute2.netlink.rtnl.rtmsg import LWTUNNEL_ENCAP_SEG6, LWTUNNEL_ENCAP_SEG6_LOCAL

from testbed.emulation.fabric import requests
from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.layout import RT_TABLE_LOCAL, Layout, read_addresses
from testbed.emulation.fabric.netlink import (
    NEXT_CSID,
    SEG6_IPTUN_MODE_ENCAP_RED,
    SEG6_LOCAL_ACTION_END,
    SEG6_LOCAL_ACTION_END_DT6,
    NeighbourMessage,
    Netlink,
    NodeNamespaces,
    Request,
    RouteMessage,
)
from testbed.emulation.fabric.requests import Template, add_next_hop, source_port_rule
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import (
    BLOCK_BITS,
    LINK_LOCAL,
    USID_BITS,
    EvMode,
    Path,
    nic_address,
    node_routes,
    source_ports,
)
from testbed.model.fabric.nodes import Node, Port, Tier
from testbed.model.fabric.topology import Topology

_TABLES = {0: "", requests.RT_TABLE_MAIN: " table main", RT_TABLE_LOCAL: " table local"}
_ACTIONS = {SEG6_LOCAL_ACTION_END: "End", SEG6_LOCAL_ACTION_END_DT6: "End.DT6"}
_MODES = {0: "inline", 1: "encap", 2: "l2encap", SEG6_IPTUN_MODE_ENCAP_RED: "encap.red"}

_ENCAPSULATION = struct.Struct("=iBBBBBBH")
"""Mode and the fixed part of the segment routing header: linux/seg6.h, struct ipv6_sr_hdr."""

_TEMPLATES = 64
"""Templates kept: those of locators, uNs and services serve all nodes, one of `encap.red` a single
path."""

_SRH_TYPE = 4
_SEGMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Seg6LocalAction:
    """What a seg6local route does with a packet (RFC 8986; flavours: RFC 9800).

    Attributes:
        action: number of the behaviour, 1 for End.
        flavours: bits of its flavours.
        block_bits: length of the locator block.
        node_bits: length of the uSID by which the address is shifted.
        counted: whether the route counts its packets.
        table: table in which an inner packet is looked up (End.DT6), 0 for none.
    """

    action: int
    flavours: int
    block_bits: int
    node_bits: int
    counted: bool
    table: int = 0

    def __str__(self) -> str:
        text = f"encap seg6local action {_ACTIONS.get(self.action, f'number {self.action}')}"
        text += _TABLES.get(self.table, f" table {self.table}")
        if self.flavours == NEXT_CSID:
            text += f" flavors next-csid lblen {self.block_bits} nflen {self.node_bits}"
        elif self.flavours:
            text += f" flavors {self.flavours:#x}"
        return text + (" count" if self.counted else "")


UN = Seg6LocalAction(SEG6_LOCAL_ACTION_END, NEXT_CSID, BLOCK_BITS, USID_BITS, counted=True)
"""uN: End with NEXT-C-SID, which shifts the uSIDs behind the block by one."""


DT6 = Seg6LocalAction(SEG6_LOCAL_ACTION_END_DT6, 0, 0, 0, counted=True, table=RT_TABLE_LOCAL)
"""End.DT6: remove the outer header and deliver the inner packet to this node's own stack."""


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """What a seg6 route puts around a packet (RFC 8986, section 5).

    Attributes:
        mode: number of the mode, 3 for H.Encaps.Red: with one segment an outer IPv6 header only.
        segments: the SIDs, in the order in which they are visited.
    """

    mode: int
    segments: tuple[IPv6Address, ...]

    def __str__(self) -> str:
        mode = _MODES.get(self.mode, str(self.mode))
        listed = " ".join(map(str, self.segments))
        return f"encap seg6 mode {mode} segs {len(self.segments)} [ {listed} ]"

    def encode(self) -> bytes:
        """Encode it as the kernel's struct seg6_iptunnel_encap."""
        last = len(self.segments) - 1
        length = len(self.segments) * _SEGMENT_BYTES // 8
        head = _ENCAPSULATION.pack(self.mode, 0, length, _SRH_TYPE, last, last, 0, 0)
        return head + b"".join(segment.packed for segment in reversed(self.segments))

    @classmethod
    def decode(cls, data: bytes) -> "Encapsulation":
        """Decode the kernel's struct seg6_iptunnel_encap."""
        mode, _, _, _, _, last, _, _ = _ENCAPSULATION.unpack_from(data)
        starts = range(_ENCAPSULATION.size + last * _SEGMENT_BYTES, 0, -_SEGMENT_BYTES)
        return cls(mode, tuple(IPv6Address(data[i : i + _SEGMENT_BYTES]) for i in starts))


@dataclass(frozen=True, slots=True)
class Route:
    """An entry of the main table.

    Attributes:
        destination: the prefix.
        oif: index of the outgoing interface.
        via: the next hop's link-local address, or None.
        action: what a seg6local or seg6 route does, or None.
        source: the source address of packets whose socket is not bound to one, or None.
        mtu: the route's MTU in bytes, encapsulation included; 0 for none.
    """

    destination: IPv6Network
    oif: int
    via: IPv6Address | None = None
    action: Seg6LocalAction | Encapsulation | None = None
    source: IPv6Address | None = None
    mtu: int = 0

    def text(self, device: Callable[[int], str]) -> str:
        """Show it as iproute2 does; `device` names an interface."""
        via = f" via {self.via}" if self.via else ""
        action = f" {self.action}" if self.action else ""
        source = f" src {self.source}" if self.source else ""
        mtu = f" mtu {self.mtu}" if self.mtu else ""
        return f"{self.destination}{action}{via} dev {device(self.oif)}{source}{mtu}"


@dataclass(frozen=True, slots=True)
class NeighbourEntry:
    """A permanent neighbour.

    Attributes:
        address: the next hop's address.
        ifindex: index of the interface by which it is reached.
        mac: its MAC address.
        permanent: whether the entry never expires.
    """

    address: IPv6Address
    ifindex: int
    mac: str
    permanent: bool = True

    def text(self, device: Callable[[int], str]) -> str:
        """Show it as iproute2 does; `device` names an interface."""
        state = "PERMANENT" if self.permanent else "not permanent"
        return f"neighbour {self.address} dev {device(self.ifindex)} lladdr {self.mac} {state}"


@dataclass(frozen=True, slots=True)
class RoutingTables:
    """All routes, neighbours and addresses of a node."""

    routes: frozenset[Route]
    neighbours: frozenset[NeighbourEntry]
    addresses: frozenset[IPv6Address]

    def lines(self, device: Callable[[int], str]) -> list[str]:
        """Every entry as text, in a fixed order."""
        return [
            *(f"address {address}" for address in sorted(self.addresses)),
            *(r.text(device) for r in sorted(self.routes, key=lambda r: (r.destination, r.oif))),
            *(
                n.text(device)
                for n in sorted(self.neighbours, key=lambda n: (n.ifindex, n.address))
            ),
        ]


# --- expected ---------------------------------------------------------------------------------


def expected(layout: Layout, node: Node) -> RoutingTables:
    """The entries that a node's tables must have, by the model."""
    plan = node_routes(layout.topology, node)
    routes = [Route(hop.locator, hop.port.ifindex, via=LINK_LOCAL) for hop in plan.neighbours]
    if plan.un is not None:
        routes.append(Route(plan.un, layout.sid_device(node).ifindex, action=UN))
    neighbours = frozenset(
        NeighbourEntry(LINK_LOCAL, hop.port.ifindex, hop.via.mac) for hop in plan.neighbours
    )
    return RoutingTables(frozenset(routes), neighbours, frozenset(plan.local))


def of_ports(tables: RoutingTables, ports: Collection[Port]) -> RoutingTables:
    """The entries that use one of these ports: the kernel removes them with the port's carrier."""
    indexes = {port.ifindex for port in ports}
    return RoutingTables(
        frozenset(route for route in tables.routes if route.oif in indexes),
        frozenset(entry for entry in tables.neighbours if entry.ifindex in indexes),
        frozenset(),
    )


# --- written ----------------------------------------------------------------------------------


def install(tables: RoutingTables, device: Callable[[int], str]) -> Iterator[Request]:
    """Yield the requests that write tables: neighbours first, as routes use them."""
    for entry in tables.neighbours:
        yield requests.new_neighbour(entry.address, entry.ifindex, entry.mac)
    for address in tables.addresses:
        yield requests.new_address(address)
    for route in tables.routes:
        yield install_route(route, device)


def install_route(route: Route, device: Callable[[int], str], *, replace: bool = False) -> Request:
    """The request that writes one route; `replace` allows it to replace the one that is there."""
    template = _template(
        route.destination.prefixlen,
        route.via,
        route.action,
        route.source,
        route.mtu,
        replace=replace,
    )
    return requests.new_route(route.destination, route.oif, template, route.text(device))


def write_routes(
    netlink: Netlink,
    routes: Collection[Route],
    device: Callable[[int], str],
    *,
    replace: bool = False,
) -> None:
    """Write routes into a node's main table and read them back.

    Raises:
        NetlinkError: the kernel refused a route.
        RunFailedError: a route that was read back is not the one that was written.
    """
    netlink.send(install_route(route, device, replace=replace) for route in routes)
    missing = set(routes) - set(read_routes(netlink))
    if missing:
        listed = "\n  ".join(sorted(route.text(device) for route in missing))
        raise RunFailedError(f"{netlink.namespace} lacks routes:\n  {listed}")


@lru_cache(_TEMPLATES)
def _template(
    prefixlen: int,
    via: IPv6Address | None,
    action: Seg6LocalAction | Encapsulation | None,
    source: IPv6Address | None,
    mtu: int,
    *,
    replace: bool,
) -> Template:
    """A route without its destination and interface, as many routes of a fabric share it."""
    attributes: list[tuple[str, Any]] = []
    if via is not None:
        attributes.append(("RTA_GATEWAY", str(via)))
    if source is not None:
        attributes.append(("RTA_PREFSRC", str(source)))
    if mtu:
        attributes.append(("RTA_METRICS", {"attrs": [("RTAX_MTU", mtu)]}))
    if action is not None:
        attributes += _encap_attributes(action)
    return requests.route_template(prefixlen, attributes, replace=replace)


def _encap_attributes(action: Seg6LocalAction | Encapsulation) -> list[tuple[str, Any]]:
    if isinstance(action, Encapsulation):
        return [
            ("RTA_ENCAP_TYPE", LWTUNNEL_ENCAP_SEG6),
            ("RTA_ENCAP", {"attrs": [("SEG6_IPTUNNEL_SRH", action.encode())]}),
        ]
    zero = [(f"SEG6_LOCAL_CNT_{counter}", 0) for counter in ("PACKETS", "BYTES", "ERRORS")]
    attributes: list[tuple[str, Any]] = [("SEG6_LOCAL_ACTION", action.action)]
    if action.table:
        attributes.append(("SEG6_LOCAL_TABLE", action.table))
    if action.counted:
        attributes.append(("SEG6_LOCAL_COUNTERS", {"attrs": zero}))
    if action.flavours:
        flavours = [
            ("SEG6_LOCAL_FLV_OPERATION", action.flavours),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", action.block_bits),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", action.node_bits),
        ]
        attributes.append(("SEG6_LOCAL_FLAVORS", {"attrs": flavours}))
    return [("RTA_ENCAP_TYPE", LWTUNNEL_ENCAP_SEG6_LOCAL), ("RTA_ENCAP", {"attrs": attributes})]


# --- read back --------------------------------------------------------------------------------


def read(netlink: Netlink) -> RoutingTables:
    """Read a node's main table, its neighbours and its addresses."""
    return RoutingTables(
        frozenset(read_routes(netlink)),
        frozenset(read_neighbours(netlink)),
        frozenset(read_addresses(netlink)),
    )


def dump_routes(netlink: Netlink) -> list[Any]:
    """Dump the IPv6 main table as messages."""
    table = requests.RT_TABLE_MAIN
    return netlink.dump(RouteMessage, RTM_GETROUTE, family=AF_INET6, table=table)


def read_routes(netlink: Netlink) -> Iterator[Route]:
    """Read the routes of the main table."""
    for message in dump_routes(netlink):
        destination, via = message.get_attr("RTA_DST"), message.get_attr("RTA_GATEWAY")
        source, metrics = message.get_attr("RTA_PREFSRC"), message.get_attr("RTA_METRICS")
        yield Route(
            IPv6Network((destination or "::", message["dst_len"])),
            message.get_attr("RTA_OIF") or 0,
            via=IPv6Address(via) if via else None,
            action=_action(message),
            source=IPv6Address(source) if source else None,
            mtu=(metrics.get_attr("RTAX_MTU") or 0) if metrics is not None else 0,
        )


def _action(message: Any) -> Seg6LocalAction | Encapsulation | None:
    kind, encap = message.get_attr("RTA_ENCAP_TYPE"), message.get_attr("RTA_ENCAP")
    if kind == LWTUNNEL_ENCAP_SEG6:
        return Encapsulation.decode(encap.get_attr("SEG6_IPTUNNEL_SRH"))
    if kind != LWTUNNEL_ENCAP_SEG6_LOCAL:
        return None
    flavours = encap.get_attr("SEG6_LOCAL_FLAVORS")

    def bits(name: str) -> int:
        return 0 if flavours is None else flavours.get_attr(f"SEG6_LOCAL_FLV_{name}") or 0

    return Seg6LocalAction(
        encap.get_attr("SEG6_LOCAL_ACTION"),
        bits("OPERATION"),
        bits("LCBLOCK_BITS"),
        bits("LCNODE_FN_BITS"),
        counted=encap.get_attr("SEG6_LOCAL_COUNTERS") is not None,
        table=encap.get_attr("SEG6_LOCAL_TABLE") or 0,
    )


def read_neighbours(netlink: Netlink) -> Iterator[NeighbourEntry]:
    """Read the IPv6 neighbours; the kernel's own entries for multicast are left out."""
    for message in netlink.dump(NeighbourMessage, RTM_GETNEIGH, family=AF_INET6):
        address = IPv6Address(message.get_attr("NDA_DST"))
        if not address.is_multicast:
            yield NeighbourEntry(
                address,
                message["ifindex"],
                message.get_attr("NDA_LLADDR") or "",
                permanent=bool(message["state"] & requests.NUD_PERMANENT),
            )


FIRST_TABLE = 101
"""The routing table of a T0's first uplink, where it reads structured EVs."""

_FIRST_PRIORITY = 100
_LAST_PRIORITY = 1000
_OTHER_PORTS = range(1, (1 << 16) - 1)  # the kernel takes neither 0 nor 65535
_HASH_CUSTOM = "3"
_HASH_LAYER_4 = "1"
_ALL_FIELDS = "63"
"""fib_multipath_hash_fields: addresses, protocol, flow label and ports, of the outer packet."""


def install_plain(layout: Layout, namespaces: NodeNamespaces, mode: EvMode) -> bool:
    """Install them everywhere; returns whether the flow label is part of the hash.

    Raises:
        NetlinkError: the kernel refused a route or a rule.
    """
    topology = layout.topology
    hashes_label = True
    for node in topology.nodes.values():
        if mode is EvMode.ECMP and node.tier is Tier.T0:
            with namespaces[node.name].entered():
                hashes_label = _hash_evs()
        namespaces[node.name].netlink.send(_routes(topology, node, mode))
    return hashes_label


def _hash_evs() -> bool:
    """Have a switch hash the EV: both halves where it can, otherwise the source port's."""
    try:
        write_sysctl("ipv6/fib_multipath_hash_fields", _ALL_FIELDS)
    except FileNotFoundError:  # before Linux 5.14
        write_sysctl("ipv6/fib_multipath_hash_policy", _HASH_LAYER_4)
        return False
    write_sysctl("ipv6/fib_multipath_hash_policy", _HASH_CUSTOM)
    return True


def _routes(topology: Topology, node: Node, mode: EvMode) -> Iterator[Request]:
    if node.tier is Tier.HOST:
        yield from _out(topology, node)
        return
    yield from _down(topology, node)
    if node.tier is Tier.T0:
        yield from _up(topology, node, mode)


def _out(topology: Topology, host: Node) -> Iterator[Request]:
    """A host's routes to the others, one through each port."""
    for port in _ports_to(topology, host, Tier.T0):
        for other in topology.hosts:
            if other != host:
                # Unequal metrics keep the kernel from sharing packets among the ports.
                yield add_next_hop(
                    nic_address(topology, other), port.ifindex, LINK_LOCAL, metric=port.ifindex
                )


def _down(topology: Topology, switch: Node) -> Iterator[Request]:
    """A switch's routes to the hosts below it."""
    for near, far, _ in topology.adjacency[switch]:
        for host in topology.hosts:
            leads_there = (
                far.node == host
                if switch.tier is Tier.T0
                else far.node == topology.t0(switch.plane, topology.rack(host))
            )
            if leads_there:
                yield add_next_hop(nic_address(topology, host), near.ifindex, LINK_LOCAL)


def _up(topology: Topology, t0: Node, mode: EvMode) -> Iterator[Request]:
    """A T0's routes to the hosts below other T0s."""
    uplinks = list(_ports_to(topology, t0, Tier.T1))
    others = [
        nic_address(topology, host) for host in topology.hosts if topology.rack(host) != t0.index
    ]
    if mode is EvMode.ECMP:
        for destination in others:
            for port in uplinks:
                yield add_next_hop(destination, port.ifindex, LINK_LOCAL)
        return
    for destination in others:
        for number, port in enumerate(uplinks):
            table, ports = FIRST_TABLE + number, source_ports(Path(t0.plane, number))
            if 0 in ports:  # source port 0 can be in no rule: the main table serves it
                ports = ports[1:]
                yield add_next_hop(destination, port.ifindex, LINK_LOCAL)
            yield add_next_hop(destination, port.ifindex, LINK_LOCAL, table=table)
            yield source_port_rule(destination, ports, _FIRST_PRIORITY + number, table)
        yield source_port_rule(destination, _OTHER_PORTS, _LAST_PRIORITY, None)


def _ports_to(topology: Topology, node: Node, tier: Tier) -> Iterator[Port]:
    """The ports of a node that lead to a tier, in the order of planes or T1s."""
    leading = [
        (far.node.plane, far.node.index, near)
        for near, far, _ in topology.adjacency[node]
        if far.node.tier is tier
    ]
    return (near for _, _, near in sorted(leading, key=itemgetter(0, 1)))
