"""Routes for packets without an outer header, which find their path by ECMP or by a structured EV.

They are installed beside those of SRv6. A host has a route through each of its ports, and a packet
takes that of the socket's port. A T1, and a T0 downwards, forward by the destination. A T0 upwards

    hashes:  fd4d:5243:1::1  nexthop via fe80::1 dev p0_t0_0-u0  nexthop via fe80::1 dev p0_t0_0-u1
    reads its field:  ip -6 rule ipproto udp sport 16-31 lookup 102
"""

from collections.abc import Iterator
from operator import itemgetter

from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.netlink.requests import add_next_hop, source_port_rule
from testbed.emulation.fabric.netlink.socket import NodeNamespaces, Request
from testbed.model.fabric.addressing import LINK_LOCAL, EvMode, Path, nic_address, source_ports
from testbed.model.fabric.nodes import Node, Port, Tier
from testbed.model.fabric.topology import Topology

FIRST_TABLE = 101
"""The routing table of a T0's first uplink, where it reads structured EVs."""

_FIRST_PRIORITY = 100
_LAST_PRIORITY = 1000
_OTHER_PORTS = range(1, (1 << 16) - 1)  # the kernel takes neither 0 nor 65535
_HASH_CUSTOM = "3"
_HASH_LAYER_4 = "1"
_ALL_FIELDS = "63"
"""fib_multipath_hash_fields: addresses, protocol, flow label and ports, of the outer packet."""


def install(layout: Layout, namespaces: NodeNamespaces, mode: EvMode) -> bool:
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
