"""What an emulated fabric has beyond its topology: extra interfaces, and a CPU for each link."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv6Address
from socket import AF_INET6

from pyroute2.netlink.rtnl import RTM_GETROUTE

from testbed.emulation.fabric.netlink import Netlink, RouteMessage
from testbed.model.fabric.nodes import FIRST_IFINDEX, Link, Node, Port
from testbed.model.fabric.topology import Topology

SID_DEVICE = "usid"
"""Interface of a node's own SIDs: a switch's uN, a host's End.DT6."""

FIRST_HOST_SID_IFINDEX = 1 << 20
"""First index of that interface on hosts, above the indexes of any fabric that can be built."""


@dataclass(frozen=True)
class Layout:
    """A topology and how it is emulated.

    Attributes:
        topology: the fabric.
        wires: names of the links that go through Open vSwitch, in the order of their numbers.
    """

    topology: Topology
    wires: tuple[str, ...] = ()

    @classmethod
    def of(cls, topology: Topology, wires: Collection[str] = ()) -> "Layout":
        """Lay out a topology.

        Raises:
            ValueError: a wire is not a link of the fabric.
        """
        unknown = sorted(set(wires) - topology.links.keys())
        if unknown:
            raise ValueError(f"not links of {topology.name}: {', '.join(unknown)}")
        return cls(topology, tuple(wires))

    @cached_property
    def _first_spare_ifindex(self) -> int:
        return FIRST_IFINDEX + 2 * len(self.topology.links)

    @cached_property
    def _sid_devices(self) -> dict[Node, tuple[Port, Port]]:
        nodes_by_first_ifindex = {
            self._first_spare_ifindex: self.topology.switches,
            FIRST_HOST_SID_IFINDEX: self.topology.hosts,
        }
        return {
            node: (
                Port(node, SID_DEVICE, first + 2 * i),
                Port(node, f"{SID_DEVICE}-peer", first + 2 * i + 1),
            )
            for first, nodes in nodes_by_first_ifindex.items()
            for i, node in enumerate(nodes)
        }

    def sid_device(self, node: Node) -> Port:
        """The interface of a node's own SIDs; a host has it for ordinary traffic only.

        A route disappears with its interface, and this interface has no cable that can be cut.
        (Linux has no SID on lo, and not every kernel has dummy interfaces, so it is a veth.)
        """
        return self.sid_veth(node)[0]

    def sid_veth(self, node: Node) -> tuple[Port, Port]:
        """That interface and the other end of its veth, in the same namespace."""
        return self._sid_devices[node]

    def wire_ends(self, link: str) -> tuple[Port, Port]:
        """The far ends of an OpenFlow wire's two cables, which Open vSwitch patches together.

        They are in the sandbox's own namespace: `w0a` leads to the lower node, `w0b` to the upper.
        """
        number = self.wires.index(link)
        first = self._first_spare_ifindex + 2 * len(self.topology.switches) + 2 * number
        lower, upper = self.topology.links[link].ports
        return (Port(lower.node, f"w{number}a", first), Port(upper.node, f"w{number}b", first + 1))

    @cached_property
    def device_names(self) -> dict[int, str]:
        links = self.topology.links.values()
        ports = [port for link in links for port in link.ports]
        ports += [port for pair in self._sid_devices.values() for port in pair]
        ports += [port for link in self.wires for port in self.wire_ends(link)]
        return {1: "lo"} | {port.ifindex: port.name for port in ports}

    def device_name(self, ifindex: int) -> str:
        """An interface's name, or its number if the fabric has no such interface."""
        return self.device_names.get(ifindex, str(ifindex))


def receive_cpu(topology: Topology, link: Link, cpus: int) -> int:
    """Which CPU does the receive work of a link's interfaces, 0 to cpus - 1.

    One CPU for a link, so that a path does not reorder by itself. If the planes divide evenly among
    the CPUs, a plane has one CPU, since a packet that changes its CPU at every hop costs an
    interrupt each time. Otherwise neighbouring paths alternate, so that the load still spreads.
    """
    if topology.planes % cpus == 0:
        return link.plane % cpus
    column = link.upper.node.index if link.is_fabric else topology.downlink(link.lower.node)
    return (link.plane + column) % cpus


# --------------------------------------------------------------------------------------------------
# The addresses to which a node's kernel delivers packets.


RT_TABLE_LOCAL = 255
"""The kernel's own table of this node's addresses."""

TIMEOUT_NS = 10_000_000_000
_POLL_S = 0.01

_RTN_LOCAL = 2
"""Type of a route whose packets are delivered to the node: linux/rtnetlink.h."""


def missing_addresses(netlink: Netlink, addresses: Collection[IPv6Address]) -> set[IPv6Address]:
    """Wait until a node receives packets to these addresses; return those to which it does not.

    The kernel acknowledges a new address before it has added the address's route to the local
    table, without which it does not deliver packets to it.
    """
    deadline_ns = time.monotonic_ns() + TIMEOUT_NS
    while True:
        missing = set(addresses).difference(read_addresses(netlink))
        if not missing or time.monotonic_ns() > deadline_ns:
            return missing
        time.sleep(_POLL_S)


def read_addresses(netlink: Netlink) -> Iterator[IPv6Address]:
    """Read the addresses of the local table, without ::1."""
    dump = netlink.dump(RouteMessage, RTM_GETROUTE, family=AF_INET6, table=RT_TABLE_LOCAL)
    for message in dump:
        address = IPv6Address(message.get_attr("RTA_DST") or "::")
        if message["type"] == _RTN_LOCAL and not address.is_loopback:
            yield address
