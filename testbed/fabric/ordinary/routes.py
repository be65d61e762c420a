"""Ordinary traffic on the fabric's paths: ping, TCP, MPTCP, whatever a host's own stack sends.

A host has an address of its own for every plane. A route to such an address puts one outer IPv6
header around the packet (H.Encaps.Red, RFC 8986, section 5.2: no segment routing header where there
is one segment) whose destination is the path's carrier with End.DT6 behind it. The switches see no
difference to MRC; the destination's End.DT6 takes the header off and hands the packet to its stack.

    fd4d:5243:1::10/128 encap seg6 mode encap.red segs 1 [ block|T0|T1|T0|NIC|DT6 ] dev usid
    block|NIC|DT6/128 encap seg6local action End.DT6 table local dev usid

MRC's own addresses, a /128 for each plane, stay as they are. Links shape, queue and drop both kinds
alike. Propagation delay is not in it: MRC's endpoints hold back what arrives, the kernel's stack
does not. `propagation.py` adds it.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Network

from testbed.fabric import offload, routes
from testbed.fabric.layout import Layout
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.generic import GenericNetlink
from testbed.fabric.netlink.messages import SEG6_IPTUN_MODE_ENCAP_RED
from testbed.fabric.netlink.requests import Interface
from testbed.fabric.netlink.socket import Netlink, Request
from testbed.fabric.routes import Encapsulation, Route
from testbed.model.closeable import Closeable
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import (
    Path,
    dt6_sid,
    nic_address,
    ordinary_address,
    ordinary_carrier,
    ordinary_path,
    paths,
)
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, Topology
from testbed.sandbox import namespaces

IPV6_HEADER = 40
SEGMENT_ROUTING_HEADER = 24
"""With one segment; the kernel sets it aside though H.Encaps.Red leaves it out."""


def inner_mtu(topology: Topology) -> int:
    """Largest ordinary packet in bytes: encapsulated it is as large as a full MRC data packet."""
    return topology.wire_bytes - ETHERNET_HEADER - IPV6_HEADER


def encap_route(layout: Layout, src: Node, dst: Node, path: Path) -> Route:
    """The route by which a host reaches another one's address in the path's plane."""
    topology = layout.topology
    return Route(
        IPv6Network(ordinary_address(topology, dst, path.plane)),
        layout.sid_device(src).ifindex,
        action=Encapsulation(
            SEG6_IPTUN_MODE_ENCAP_RED, (ordinary_carrier(topology, src, dst, path),)
        ),
        source=ordinary_address(topology, src, path.plane),
        mtu=inner_mtu(topology) + IPV6_HEADER + SEGMENT_ROUTING_HEADER,
    )


def dt6_route(layout: Layout, host: Node, plane: int) -> Route:
    """The route that takes off the outer header of what reaches a host in a plane."""
    sid = IPv6Network(dt6_sid(layout.topology, host, plane))
    return Route(sid, layout.sid_device(host).ifindex, action=routes.DT6)


class OrdinaryTraffic(Closeable):
    """Carries the hosts' ordinary traffic; from any process of the sandbox.

    Attributes:
        topology: the model.
        seed: chooses the default paths.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        """Open nothing yet: a host's socket is opened when first used, and kept."""
        self.topology = topology
        self.seed = seed
        self._layout = Layout(topology)
        self._sockets: dict[Node, Netlink] = {}

    def close(self) -> None:
        """Close the sockets; what is installed stays."""
        for netlink in self._sockets.values():
            netlink.close()
        self._sockets.clear()

    def install(self) -> None:
        """Give every host its addresses, its End.DT6 and a path to every other host by each plane.

        Call it once, after `Fabric.verify`, which knows of no ordinary traffic.

        Raises:
            NetlinkError: the kernel refused something.
            RunFailedError: a host's tables are not what was written to them.
        """
        for host in self.topology.hosts:
            self._install(host)

    def default_path(self, src: Node, dst: Node, plane: int) -> Path:
        """The path from one host to another in a plane until `use_path` says otherwise."""
        return ordinary_path(self.topology, src, dst, plane, self.seed)

    def path(self, src: Node, dst: Node, plane: int) -> Path:
        """The path that packets to a host's address in a plane take now, by the kernel's table.

        Raises:
            RunFailedError: there is no such route, or it takes no path of the fabric.
        """
        found = set(routes.read_routes(self._netlink(src)))
        for path in paths(self.topology, src, dst):
            if path.plane == plane and encap_route(self._layout, src, dst, path) in found:
                return path
        raise RunFailedError(f"{src.name} has no route to {dst.name} in plane {plane}")

    def use_path(self, src: Node, dst: Node, path: Path) -> None:
        """Send what goes from one host to another's address in the path's plane by that path.

        The other direction keeps its own path.

        Raises:
            ValueError: there is no such path between them.
            RunFailedError: the route is not what was written.
        """
        if src == dst or path not in paths(self.topology, src, dst):
            raise ValueError(f"no path {path.name} between {src.name} and {dst.name}")
        route = encap_route(self._layout, src, dst, path)
        netlink = self._netlink(src)
        netlink.send([routes.install_route(route, self._layout.device_name, replace=True)])
        self._check(src, {route})

    def announce_planes(self, host: Node) -> None:
        """Have MPTCP connections to and from a host get a subflow in every plane.

        The host announces its address in every plane but the first, in which connections begin;
        who called then opens a subflow to each, from its own address of that plane.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
        """
        others = range(1, self.topology.planes)
        addresses = [ordinary_address(self.topology, host, plane) for plane in others]
        namespace = namespaces.open_netns(host.name)
        try:
            with namespaces.entered(namespace), GenericNetlink(host.name) as generic:
                generic.announce_to_mptcp_peers(addresses)
        finally:
            os.close(namespace)

    # --- writing and reading back -------------------------------------------------------------

    def _install(self, host: Node) -> None:
        netlink = self._netlink(host)
        namespace = namespaces.open_netns(host.name)
        try:
            netlink.send(self._device(host, namespace))
            with namespaces.entered(namespace):
                with GenericNetlink(host.name) as generic:
                    generic.set_tunnel_source(nic_address(self.topology, host))
                self._complete_checksums(host)
        finally:
            os.close(namespace)
        planes = range(self.topology.planes)
        own = [ordinary_address(self.topology, host, plane) for plane in planes]
        wanted = set(self._routes(host))
        netlink.send(
            [
                *(requests.new_address(address) for address in own),
                *(routes.install_route(one, self._layout.device_name) for one in wanted),
            ]
        )
        missing = set(own) - routes.read(netlink).addresses
        if missing:
            raise RunFailedError(f"{host.name} does not hold {', '.join(map(str, missing))}")
        self._check(host, wanted)

    def _routes(self, host: Node) -> Iterator[Route]:
        for plane in range(self.topology.planes):
            yield dt6_route(self._layout, host, plane)
            for other in self.topology.hosts:
                if other != host:
                    path = self.default_path(host, other, plane)
                    yield encap_route(self._layout, host, other, path)

    def _device(self, host: Node, namespace: int) -> Iterator[Request]:
        """Yield the requests that make the interface that the routes belong to."""
        ports = self._layout.sid_device(host), self._layout.sid_device_peer(host)
        one, other = (_interface(port, namespace) for port in ports)
        yield requests.new_veth(one, other, LINK_MTU)
        yield requests.one_packet_at_a_time(one.ifindex, one.name)
        for port in ports:
            yield requests.set_link(port.ifindex, port.name, up=True)

    def _complete_checksums(self, host: Node) -> None:
        """Have checksums of the host's own stack computed before the wire, as captures show them.

        Open vSwitch's userspace datapath drops what comes without.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for plane in range(self.topology.planes):
                name = self.topology.port_of(host, plane).name
                offload.switch_off(control, name, (offload.ETHTOOL_STXCSUM,))

    def _check(self, host: Node, wanted: Iterable[Route]) -> None:
        missing = set(wanted) - set(routes.read_routes(self._netlink(host)))
        if missing:
            listed = "\n  ".join(sorted(one.text(self._layout.device_name) for one in missing))
            raise RunFailedError(f"{host.name} lacks routes:\n  {listed}")

    def _netlink(self, host: Node) -> Netlink:
        if host not in self._sockets:
            self._sockets[host] = Netlink.at(host.name)
        return self._sockets[host]


def _interface(port: Port, namespace: int) -> Interface:
    return Interface(port.name, port.ifindex, port.mac, namespace)
