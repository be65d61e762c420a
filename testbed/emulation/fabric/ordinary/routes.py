"""Ordinary traffic on the fabric's paths: ping, TCP, MPTCP, whatever a host's own stack sends.

A host has an address of its own for every plane. A route to such an address adds one outer IPv6
header (H.Encaps.Red, RFC 8986, section 5.2: no segment routing header for a single segment), whose
destination is the path's carrier followed by End.DT6. The switches see no difference to MRC. The
destination's End.DT6 removes the header and hands the packet to the host's stack.

    fd4d:5243:1::10/128 encap seg6 mode encap.red segs 1 [ block|T0|T1|T0|NIC|DT6 ] dev usid
    block|NIC|DT6/128 encap seg6local action End.DT6 table local dev usid

MRC's own addresses, a /128 for each plane, stay as they are. Links shape, queue and drop both kinds
of traffic alike. `propagation.py` adds the propagation delay, since the kernel's stack, unlike
MRC's endpoints, does not hold back what arrives.
"""

import socket
from collections.abc import Iterator
from ipaddress import IPv6Network

from testbed.emulation.fabric import interfaces, routes
from testbed.emulation.fabric.layout import Layout, missing_addresses
from testbed.emulation.fabric.netlink import requests
from testbed.emulation.fabric.netlink.generic import GenericNetlink
from testbed.emulation.fabric.netlink.messages import SEG6_IPTUN_MODE_ENCAP_RED
from testbed.emulation.fabric.netlink.requests import Interface
from testbed.emulation.fabric.netlink.socket import Netlink, NodeNamespace, NodeNamespaces, Request
from testbed.emulation.fabric.routes import Encapsulation, Route
from testbed.model.errors import RunFailedError
from testbed.model.fabric import addressing
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, Topology
from testbed.mrc.constants import IPV6_BYTES

SEGMENT_ROUTING_HEADER = 24
"""Its size with one segment. The kernel reserves it, although H.Encaps.Red leaves it out."""


def inner_mtu(topology: Topology) -> int:
    """Largest ordinary packet in bytes: once encapsulated, as large as a full MRC data packet."""
    return topology.wire_bytes - ETHERNET_HEADER - IPV6_BYTES


def encap_route(layout: Layout, src: Node, dst: Node, path: addressing.Path) -> Route:
    """The route by which a host reaches another host's address in the path's plane."""
    topology = layout.topology
    return Route(
        IPv6Network(addressing.ordinary_address(topology, dst, path.plane)),
        layout.sid_device(src).ifindex,
        action=Encapsulation(
            SEG6_IPTUN_MODE_ENCAP_RED,
            (addressing.ordinary_carrier_address(topology, src, dst, path),),
        ),
        source=addressing.ordinary_address(topology, src, path.plane),
        mtu=inner_mtu(topology) + IPV6_BYTES + SEGMENT_ROUTING_HEADER,
    )


def dt6_route(layout: Layout, host: Node, plane: int) -> Route:
    """The route that removes the outer header of packets that reach a host in a plane."""
    sid = IPv6Network(addressing.dt6_sid(layout.topology, host, plane))
    return Route(sid, layout.sid_device(host).ifindex, action=routes.DT6)


class OrdinaryTraffic:
    """Carries the hosts' ordinary traffic; usable from any process of the sandbox.

    Attributes:
        topology: the model.
        seed: selects the default paths.
    """

    def __init__(self, topology: Topology, namespaces: NodeNamespaces, seed: int = 0) -> None:
        """Install nothing yet."""
        self.topology = topology
        self.seed = seed
        self._layout = Layout(topology)
        self._namespaces = namespaces

    def install(self) -> None:
        """Give every host its addresses, its End.DT6 and a path to every other host by each plane.

        Call it once, after `Fabric.verify`, which does not expect ordinary traffic.

        Raises:
            NetlinkError: the kernel refused a request.
            RunFailedError: a host's tables differ from what was written to them.
        """
        for host in self.topology.hosts:
            self._install(host)

    def default_path(self, src: Node, dst: Node, plane: int) -> addressing.Path:
        """The path from one host to another in a plane until `use_path` selects another."""
        return addressing.ordinary_path(self.topology, src, dst, plane, self.seed)

    def path(self, src: Node, dst: Node, plane: int) -> addressing.Path:
        """The path that packets to a host's address in a plane take now, by the kernel's table.

        Raises:
            RunFailedError: there is no such route, or it leads over no path of the fabric.
        """
        present = set(routes.read_routes(self._netlink(src)))
        for path in addressing.paths(self.topology, src, dst):
            if path.plane == plane and encap_route(self._layout, src, dst, path) in present:
                return path
        raise RunFailedError(f"{src.name} has no route to {dst.name} in plane {plane}")

    def use_path(self, src: Node, dst: Node, path: addressing.Path) -> None:
        """Send packets from one host to another's address in the path's plane over that path.

        The other direction keeps its own path.

        Raises:
            ValueError: there is no such path between them.
            RunFailedError: the route differs from what was written.
        """
        if src == dst or path not in addressing.paths(self.topology, src, dst):
            raise ValueError(f"no path {path.name} between {src.name} and {dst.name}")
        route = encap_route(self._layout, src, dst, path)
        device = self._layout.device_name
        routes.write_routes(self._netlink(src), [route], device, replace=True)

    def announce_planes(self, host: Node) -> None:
        """Give MPTCP connections to and from a host a subflow in every plane.

        The host announces its address in every plane but the first, in which connections begin.
        The caller then opens a subflow to each address, from its own address in that plane.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
        """
        other_planes = range(1, self.topology.planes)
        addresses = [
            addressing.ordinary_address(self.topology, host, plane) for plane in other_planes
        ]
        with self._namespaces[host.name].entered(), GenericNetlink(host.name) as generic:
            generic.announce_to_mptcp_peers(addresses)

    # --- writing and reading back -------------------------------------------------------------

    def _install(self, host: Node) -> None:
        namespace = self._namespaces[host.name]
        netlink = namespace.netlink
        netlink.send(self._device(host, namespace))
        with namespace.entered():
            with GenericNetlink(host.name) as generic:
                generic.set_tunnel_source(addressing.nic_address(self.topology, host))
            self._complete_checksums(host)
        planes = range(self.topology.planes)
        addresses = [addressing.ordinary_address(self.topology, host, plane) for plane in planes]
        netlink.send(map(requests.new_address, addresses))
        missing = missing_addresses(netlink, addresses)
        if missing:
            raise RunFailedError(f"{host.name} does not hold {', '.join(map(str, missing))}")
        routes.write_routes(netlink, list(self._routes(host)), self._layout.device_name)

    def _routes(self, host: Node) -> Iterator[Route]:
        for plane in range(self.topology.planes):
            yield dt6_route(self._layout, host, plane)
            for other in self.topology.hosts:
                if other != host:
                    path = self.default_path(host, other, plane)
                    yield encap_route(self._layout, host, other, path)

    def _device(self, host: Node, namespace: NodeNamespace) -> Iterator[Request]:
        """Yield the requests that make the interface to which the routes belong."""
        ports = self._layout.sid_veth(host)
        device, peer = (Interface.of_port(port, namespace.fd) for port in ports)
        yield requests.new_veth(device, peer, LINK_MTU)
        yield requests.one_packet_at_a_time(device.ifindex, device.name)
        for port in ports:
            yield requests.set_link(port.ifindex, port.name, up=True)

    def _complete_checksums(self, host: Node) -> None:
        """Compute checksums of the host's own stack before the wire, so that captures show them.

        Open vSwitch's userspace datapath drops packets without them.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for plane in range(self.topology.planes):
                name = self.topology.port_of(host, plane).name
                interfaces.switch_off(control, name, (interfaces.ETHTOOL_STXCSUM,))

    def _netlink(self, host: Node) -> Netlink:
        return self._namespaces[host.name].netlink
