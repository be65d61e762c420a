"""A host's own stack: ordinary traffic on the fabric's paths, and the management network.

A host has an address of its own for every plane. A route to such an address adds one outer IPv6
header (H.Encaps.Red, RFC 8986, section 5.2: no segment routing header for a single segment), whose
destination is the path's carrier followed by End.DT6. The switches see no difference to MRC. The
destination's End.DT6 removes the header and hands the packet to the host's stack.

    fd4d:5243:1::10/128 encap seg6 mode encap.red segs 1 [ block|T0|T1|T0|NIC|DT6 ] dev usid
    block|NIC|DT6/128 encap seg6local action End.DT6 table local dev usid

MRC's own addresses, a /128 for each plane, stay as they are. Links shape, queue and drop both kinds
of traffic alike.

MRC's endpoints hold the packets that arrive for the propagation delay. For the kernel's own stack a
process does so: it reads the packets that reach the hosts from TUN devices, and hands them back
when their delay is over.

    block|NIC|DT6/128 dev delay                                packets that arrive, to the process
    block|DT6/128 encap seg6local action End.DT6 table local   packets handed back, to the stack

The process removes the NIC's uSID from the address, as uN does. This distinguishes packets that it
hands back from packets that arrive. Up to the host's port nothing changes: queues, marks, faults,
counters and captures. The delay of a packet depends on how many switches it has passed, which its
outer hop limit shows, and on delays that faults add to the links of its path (`SlowLinks`).

The management network is outside the fabric: one IPv4 address for each host. Programs meet there
before they use RDMA: perftest exchanges the numbers of its queue pairs over IPv4, and a job's
launcher its addresses. It is one bridge in the sandbox, as a data centre has one out-of-band
network: no fault of the fabric touches it, and its packets have no delay. The hosts' names resolve
to these addresses and to those of ordinary traffic in plane 0. The system's resolver prefers IPv6,
so that ping and iperf3 cross the fabric.
"""

import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from ipaddress import IPv4Interface, IPv6Network
from pathlib import Path
from typing import NoReturn

from testbed.emulation.fabric import interfaces, requests, routes
from testbed.emulation.fabric.interfaces import (
    DROPPED_IN_SENDING,
    open_tun,
    read_counters,
    write_sysctl,
)
from testbed.emulation.fabric.layout import Layout, missing_addresses
from testbed.emulation.fabric.link_model.link_control import SlowLinks
from testbed.emulation.fabric.netlink import (
    SEG6_IPTUN_MODE_ENCAP_RED,
    Netlink,
    NodeNamespace,
    NodeNamespaces,
    Request,
)
from testbed.emulation.fabric.requests import GenericNetlink, Interface
from testbed.emulation.fabric.routes import Encapsulation, Route
from testbed.model.closeable import Closeable
from testbed.model.errors import RunFailedError
from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import (
    MANAGEMENT,
    delivery_sid,
    dt6_sid,
    management_address,
    ordinary_address,
)
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, Topology
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import HOP_LIMIT_BYTE, IPV6_BYTES
from testbed.sandbox import namespaces
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import NICENESS, until_blocked

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


DEVICE = "delay"
QUEUE_PACKETS = 20_000
"""Packets that can wait for the process: more than a host's ports deliver while it has no CPU."""

_NEXT_HEADER = 6
_DESTINATION = slice(24, 40)
_OWN_HOP = 1
"""The host lowers the hop limit when it forwards the packet to the device."""

_MOST_SWITCHES = 3


class DelayProcess(Closeable):
    """Holds the ordinary traffic of a fabric for its propagation delay, in a process of its own."""

    def __init__(self, topology: Topology, namespaces: NodeNamespaces) -> None:
        """Hold everything that arrives, from the return of this call on.

        Call it once `OrdinaryTraffic.install` has given the hosts their addresses.

        Raises:
            OSError: there are no TUN devices here.
            NetlinkError: the kernel refused a request.
            RunFailedError: a host's routes differ from what was written.
        """
        self._topology = topology
        self._namespaces = namespaces
        tuns: list[int] = []
        try:
            for host in topology.hosts:
                with namespaces[host.name].entered():
                    tuns.append(open_tun(DEVICE))
                    self._install(host)
            devices = list(zip(topology.hosts, tuns, strict=True))
            self._process = spawn(
                lambda _: _hold([ArrivalDelay(topology, host, tun) for host, tun in devices]),
                title="the propagation delay",
                isolated=False,
                name="propagation",
            )
        finally:
            for tun in tuns:
                os.close(tun)

    def ended(self) -> bool:
        """Whether the process has ended, which is an error: ordinary traffic is lost without it."""
        return self._process.has_ended

    def lost(self) -> int:
        """Packets lost so far because the process could not keep up."""
        return sum(_dropped(self._namespaces[host.name]) for host in self._topology.hosts)

    def kill(self) -> None:
        """Kill the process. Packets that it holds, and that arrive later, are lost."""
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.close()

    def _install(self, host: Node) -> None:
        """Route what arrives to the device; this thread is in the host's namespace."""
        layout = Layout(self._topology)
        ifindex = socket.if_nametoindex(DEVICE)
        write_sysctl("ipv6/conf/all/forwarding", "1")  # from the ports to the device
        netlink = self._namespaces[host.name].netlink
        netlink.send(
            [
                requests.set_link_attribute(ifindex, DEVICE, "IFLA_MTU", LINK_MTU),
                requests.set_link_attribute(ifindex, DEVICE, "IFLA_TXQLEN", QUEUE_PACKETS),
                requests.set_link(ifindex, DEVICE, up=True),
            ]
        )
        delivered = Route(
            IPv6Network(delivery_sid()), layout.sid_device(host).ifindex, action=routes.DT6
        )
        arriving = [
            Route(IPv6Network(dt6_sid(self._topology, host, plane)), ifindex)
            for plane in range(self._topology.planes)
        ]
        routes.write_routes(netlink, [delivered, *arriving], layout.device_name, replace=True)


def _dropped(namespace: NodeNamespace) -> int:
    with namespace.entered():
        counters = read_counters().get(DEVICE)
    return 0 if counters is None else counters[DROPPED_IN_SENDING]


# --- the process ------------------------------------------------------------------------------


class ArrivalDelay:
    """The packets that arrive at one host, and their propagation delay.

    Attributes:
        tun: descriptor of the host's TUN device.
    """

    def __init__(self, topology: Topology, host: Node, tun: int) -> None:
        """Open the link model of this sandbox, if it has one."""
        self.tun = tun
        self._by_switches = [topology.one_way_ns(n) for n in range(_MOST_SWITCHES + 1)]
        self._slow_links = SlowLinks(topology, host)

    def delay_ns(self, packet: bytes) -> int:
        """The propagation delay in ns of a packet, which begins with its outer header."""
        # The outer hop limit started equal to the inner one; each switch and the host lowered it.
        passed = packet[IPV6_BYTES + HOP_LIMIT_BYTE] - packet[HOP_LIMIT_BYTE] - _OWN_HOP
        delay_ns = self._by_switches[min(max(passed, 0), _MOST_SWITCHES)]
        return delay_ns + self._slow_links.extra_ns(packet) if self._slow_links.any() else delay_ns

    def arrivals(self) -> Iterator[bytes]:
        """Yield the waiting packets that have an inner IPv6 header; End.DT6 drops others too."""
        for packet in until_blocked(partial(os.read, self.tun, LINK_MTU)):
            if packet[_NEXT_HEADER] == socket.IPPROTO_IPV6 and len(packet) >= 2 * IPV6_BYTES:
                yield packet


def _hold(hosts: Sequence[ArrivalDelay]) -> NoReturn:
    """Read packets, hold each for its delay and hand it back, for ever."""
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    held: list[tuple[int, int, int, bytes]] = []
    arrived = 0
    destination = delivery_sid().packed
    host_of = {host.tun: host for host in hosts}
    with select.epoll() as poller:
        for tun in host_of:
            poller.register(tun, select.EPOLLIN)
        while True:
            wait_s = max(held[0][0] - time.monotonic_ns(), 0) / NS_PER_S if held else None
            if select.select([poller], [], [], wait_s)[0]:  # epoll's own timeout counts in ms
                for tun, _ in poller.poll(0):
                    host, now_ns = host_of[tun], time.monotonic_ns()
                    for packet in host.arrivals():
                        arrived += 1
                        heappush(held, (now_ns + host.delay_ns(packet), arrived, tun, packet))
            now_ns = time.monotonic_ns()
            while held and held[0][0] <= now_ns:
                _, _, tun, packet = heappop(held)
                handed_back = bytearray(packet)
                handed_back[_DESTINATION] = destination
                os.write(tun, handed_back)


MANAGEMENT_DEVICE = "mgmt"
"""A host's interface, and the bridge."""

_FIRST_IFINDEX = 1 << 21
"""Above the indexes of the fabric and of ordinary traffic."""

_MTU = 1500
_HOSTS = Path("/etc/hosts")


def install_management(topology: Topology, nodes: NodeNamespaces) -> None:
    """Connect the hosts, and have their names resolved; call it once, after `Fabric.verify`.

    Raises:
        NetlinkError: the kernel refused, such as one without bridges.
    """
    with namespaces.own_netns() as sandbox, Netlink("sandbox") as root:
        write_sysctl("ipv6/conf/default/disable_ipv6", "1")
        try:
            root.send(_links(topology, nodes, sandbox))
        finally:
            write_sysctl("ipv6/conf/default/disable_ipv6", "0")
    for number, host in enumerate(topology.hosts):
        port, _ = _ends(topology, number)
        address = IPv4Interface((management_address(host), MANAGEMENT.prefixlen))
        nodes[host.name].netlink.send(
            [
                requests.new_ipv4_address(address, port.ifindex),
                requests.set_link(port.ifindex, port.name, up=True),
            ]
        )
    _name_hosts(topology)


def _links(topology: Topology, nodes: NodeNamespaces, sandbox: int) -> Iterator[Request]:
    yield requests.new_bridge(_FIRST_IFINDEX, MANAGEMENT_DEVICE)
    yield requests.set_link(_FIRST_IFINDEX, MANAGEMENT_DEVICE, up=True)
    for number, host in enumerate(topology.hosts):
        port, far = _ends(topology, number)
        here = Interface.of_port(port, nodes[host.name].fd)
        yield requests.new_veth(here, Interface.of_port(far, sandbox), _MTU)
        yield requests.set_link_attribute(far.ifindex, far.name, "IFLA_MASTER", _FIRST_IFINDEX)
        yield requests.set_link(far.ifindex, far.name, up=True)


def _ends(topology: Topology, number: int) -> tuple[Port, Port]:
    """A host's interface, and the bridge's port to it."""
    host, first = topology.host(number), _FIRST_IFINDEX + 1 + 2 * number
    return Port(host, MANAGEMENT_DEVICE, first), Port(
        host, f"{MANAGEMENT_DEVICE}-{host.name}", first + 1
    )


def _name_hosts(topology: Topology) -> None:
    """Put the hosts' names before the machine's own, in this sandbox's view of /etc/hosts."""
    lines = [
        f"{address}\t{host.name}\n"
        for host in topology.hosts
        for address in (management_address(host), ordinary_address(topology, host, 0))
    ]
    try:
        machine = _HOSTS.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return  # nothing resolves names by files here
    ours = namespaces.NETNS_DIR.parent / "hosts"
    ours.write_text("".join(lines) + machine, encoding="utf-8", errors="surrogateescape")
    namespaces.mount(str(ours), str(_HOSTS), "", namespaces.MS_BIND)
