"""The fabric, built: `with Fabric(topology) as fabric: ...` inside a sandbox.

What is built is read back from the kernel and compared with the model.

The sweep proves before a run that every link direction and every uN route carries packets. Every
host sends one small packet by every plane and T1 back to itself: T0 | T1 | T0 | own NIC. Together
these cross every link in both directions and use every route of every switch. A packet that arrives
proves its whole path. The counters prove the same a second time, and show where a packet that did
not arrive was lost.
"""

import os
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import Self

from pyroute2.netlink.rtnl import RTM_GETLINK

from testbed.emulation.fabric import interfaces, requests, routes
from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.layout import Layout, missing_addresses, receive_cpu
from testbed.emulation.fabric.link_model import link_model, shaping
from testbed.emulation.fabric.link_model.link_control import LinkCounters
from testbed.emulation.fabric.link_model.link_model import LinkModel, Programs
from testbed.emulation.fabric.net import FabricNet
from testbed.emulation.fabric.netlink import (
    WITHOUT_COUNTERS,
    LinkMessage,
    Netlink,
    NodeNamespace,
    NodeNamespaces,
    Request,
    attributes,
)
from testbed.emulation.fabric.requests import Interface
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.addressing import Path as FabricPath
from testbed.model.fabric.addressing import carrier_address, directions_of_path, nic_address, paths
from testbed.model.fabric.nodes import Link, Node, Port, Tier
from testbed.model.fabric.topology import LINK_MTU, Shape, Topology, shape_of
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import HOP_LIMIT
from testbed.mrc.wire.headers import IPV6
from testbed.sandbox import namespaces
from testbed.sandbox.system_calls import until_blocked

# --------------------------------------------------------------------------------------------------
# Packets that prove a path: IPv6 in IPv6, with a payload that belongs to no protocol.


IPV6_HEADER = IPV6.struct()
"""Version, traffic class and flow label; payload length; next header; hop limit; addresses."""

IPPROTO_NONE = 59


def probe_packet(
    topology: Topology, src: Node, dst: Node, path: FabricPath, payload: bytes, flow_label: int = 0
) -> tuple[bytes, IPv6Address]:
    """A packet whose carrier address leads it over a path.

    Returns the packet with its outer header, which has the flow label, and the carrier address. The
    receiver's raw socket delivers it from the inner header on.
    """
    own, peer = nic_address(topology, src), nic_address(topology, dst)
    destination = carrier_address(topology, src, dst, path)
    inner = _header(own, peer, len(payload), IPPROTO_NONE) + payload
    outer = _header(own, destination, len(inner), socket.IPPROTO_IPV6, flow_label)
    return outer + inner, destination


def _header(
    src: IPv6Address, dst: IPv6Address, size: int, next_header: int, flow_label: int = 0
) -> bytes:
    first_word = 6 << 28 | flow_label
    return IPV6_HEADER.pack(first_word, size, next_header, HOP_LIMIT, src.packed, dst.packed)


def raw_socket(namespace: NodeNamespace, protocol: int) -> socket.socket:
    """Open a raw IPv6 socket in a node: IPPROTO_RAW to send, IPPROTO_IPV6 to receive."""
    with namespace.entered():
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)


SILENCE_NS = 200_000_000
"""If nothing arrives for this long, the missing packets are lost."""

_TOKEN = struct.Struct(">8sI")
_MARK = b"MRCsweep"


@dataclass(frozen=True, slots=True)
class Loop:
    """One packet of the sweep: from a host by a plane and a T1 back to itself."""

    host: Node
    path: FabricPath


def sweep(layout: Layout, namespaces: NodeNamespaces) -> None:
    """Send the packets and account for every one. Needs an otherwise idle fabric.

    Raises:
        RunFailedError: a link direction or a uN route did not carry what it should; names it.
    """
    topology = layout.topology
    loops = [Loop(host, path) for host in topology.hosts for path in paths(topology, host, host)]
    counters = LinkCounters(layout, namespaces)
    before, sids_before = counters.directions(), counters.sids()
    lost = _run(topology, loops, namespaces)
    after, sids_after = counters.directions(), counters.sids()
    carried = {name: after[name].packets - before[name].packets for name in after}
    dropped = {name: after[name].dropped - before[name].dropped for name in after}
    processed = {node.name: sids_after[node] - sids_before[node] for node in sids_after}
    problems = _places_of_loss(topology, loops, lost, carried, dropped) or _uncounted(
        topology, loops, carried, processed
    )
    if lost or problems:
        listed = "\n  ".join(problems)
        raise RunFailedError(
            f"{len(lost)} of {len(loops)} packets of the sweep did not come back:\n  {listed}"
        )


def _directions(topology: Topology, loop: Loop) -> list[tuple[str, str]]:
    """The link directions that a loop crosses, in order, each with the node that sends."""
    names = directions_of_path(topology, loop.host, loop.host, loop.path)
    return [(name.partition(">")[0], name) for name in names]


def _places_of_loss(
    topology: Topology,
    loops: list[Loop],
    lost: list[Loop],
    carried: Mapping[str, int],
    dropped: Mapping[str, int],
) -> list[str]:
    """Describe, for every lost packet, the first link of its path that carried too little."""
    expected = Counter(name for loop in loops for _, name in _directions(topology, loop))
    problems: dict[str, None] = {}
    for loop in lost:
        before = ""
        for sender, name in _directions(topology, loop):
            if carried[name] < expected[name]:
                count = f"carried {carried[name]} of {expected[name]} packets"
                if dropped[name] or not before:
                    problems[f"link {name} {count}, dropped {dropped[name]}"] = None
                else:
                    problems[f"link {before} or the routes of {sender}: {name} {count}"] = None
                break
            before = name
        else:
            problems[f"link {before} carried a packet that {loop.host.name} did not get"] = None
    return list(problems)


def _uncounted(
    topology: Topology, loops: list[Loop], carried: Mapping[str, int], processed: Mapping[str, int]
) -> list[str]:
    """Describe the counters that missed packets, where every packet arrived."""
    hops = [hop for loop in loops for hop in _directions(topology, loop)]
    expected = Counter(name for _, name in hops)
    visits = Counter(sender for sender, _ in hops if sender in processed)
    return [
        f"link {name} counted {carried[name]} of {count} packets"
        for name, count in expected.items()
        if carried[name] < count
    ] + [
        f"the SID of {switch} counted {processed[switch]} of {count} packets"
        for switch, count in visits.items()
        if processed[switch] < count
    ]


def _run(topology: Topology, loops: list[Loop], namespaces: NodeNamespaces) -> list[Loop]:
    """Send all packets, wait for them, and return the loops whose packet did not arrive."""
    with ExitStack() as stack:
        poller = select.poll()
        receivers: dict[int, socket.socket] = {}
        senders: dict[Node, socket.socket] = {}
        for host in topology.hosts:
            namespace = namespaces[host.name]
            receiver = stack.enter_context(raw_socket(namespace, socket.IPPROTO_IPV6))
            senders[host] = stack.enter_context(raw_socket(namespace, socket.IPPROTO_RAW))
            receivers[receiver.fileno()] = receiver
            poller.register(receiver, select.POLLIN)
        for number, loop in enumerate(loops):
            token = _TOKEN.pack(_MARK, number)
            packet, address = probe_packet(topology, loop.host, loop.host, loop.path, token)
            senders[loop.host].sendto(packet, (str(address), 0))
        missing = dict(enumerate(loops))
        deadline = time.monotonic_ns() + SILENCE_NS
        while missing and (remaining_ns := deadline - time.monotonic_ns()) > 0:
            for fd, _ in poller.poll(remaining_ns / 1e6):
                for number in _arrivals(receivers[fd]):
                    missing.pop(number, None)
                    deadline = time.monotonic_ns() + SILENCE_NS
    return list(missing.values())


def _arrivals(receiver: socket.socket) -> Iterator[int]:
    """Yield the numbers of the packets that have arrived."""
    for packet in until_blocked(partial(receiver.recv, 2048, socket.MSG_DONTWAIT)):
        if packet[IPV6_HEADER.size :].startswith(_MARK):
            yield _TOKEN.unpack_from(packet, IPV6_HEADER.size)[1]


IFLA_OPERSTATE = 16
IF_OPER_UP = 6
_LINK_MESSAGE = struct.Struct("=16x4xi8x")  # header, family and type, ifindex, flags and change

UP_TIMEOUT_NS = NS_PER_S
"""How long ports may take to come up, which the kernel does asynchronously."""

UP_POLL_S = 0.001


def wait_until_up(layout: Layout, namespaces: NodeNamespaces) -> None:
    """Wait until every port forwards: before that, a port silently drops what it is given.

    Raises:
        RunFailedError: ports that it names did not come up within a second.
    """
    deadline = time.monotonic_ns() + UP_TIMEOUT_NS
    for node in layout.topology.nodes.values():
        netlink = namespaces[node.name].netlink
        waiting = {near.ifindex for near, _, _ in layout.topology.adjacency[node]}
        while waiting := waiting - _indexes_up(netlink):
            if time.monotonic_ns() > deadline:
                names = ", ".join(map(layout.device_name, sorted(waiting)))
                raise RunFailedError(f"no carrier within 1 s: {names} of {node.name}")
            time.sleep(UP_POLL_S)


def _indexes_up(netlink: Netlink) -> set[int]:
    """Indexes of the interfaces that are up and have carrier; not decoded, as there are many."""
    indexes = set()
    for reply in netlink.dump_raw(LinkMessage, RTM_GETLINK, attrs=[WITHOUT_COUNTERS]):
        data, start = reply.buffer, reply.start
        (ifindex,) = _LINK_MESSAGE.unpack_from(data, start)
        for kind, first, _ in attributes(data, start + _LINK_MESSAGE.size, reply.end):
            if kind == IFLA_OPERSTATE and data[first] == IF_OPER_UP:
                indexes.add(ifindex)
    return indexes


def verify(layout: Layout, namespaces: NodeNamespaces) -> None:
    """Compare every port, route, neighbour and address with the model.

    Raises:
        RunFailedError: something is missing, wrong or unexpected; names every difference.
    """
    deadline = time.monotonic_ns() + UP_TIMEOUT_NS
    differences = []
    for node in layout.topology.nodes.values():
        netlink = namespaces[node.name].netlink
        lines = _port_differences(layout, node, netlink, deadline)
        lines += _table_differences(layout, node, netlink)
        differences += [f"{node.name}: {line}" for line in lines]
    if differences:
        listed = "\n  ".join(differences)
        raise RunFailedError(
            f"the fabric is not as the model says (- missing, + found):\n  {listed}"
        )


def _table_differences(layout: Layout, node: Node, netlink: Netlink) -> list[str]:
    expected, actual = routes.expected(layout, node), routes.read(netlink)
    if expected.addresses - actual.addresses:  # those of a new fabric may come late
        missing_addresses(netlink, expected.addresses)
        actual = routes.read(netlink)
    if expected == actual:
        return []
    return _difference(expected.lines(layout.device_name), actual.lines(layout.device_name))


def _difference(expected: list[str], actual: list[str]) -> list[str]:
    missing = [f"- {line}" for line in expected if line not in actual]
    return missing + [f"+ {line}" for line in actual if line not in expected]


def _port_differences(layout: Layout, node: Node, netlink: Netlink, deadline_ns: int) -> list[str]:
    """How a node's ports differ from the model; they may come up until the deadline."""
    ports = [near for near, _, _ in layout.topology.adjacency[node]]
    names = {port.name for port in ports}
    expected = [
        f"port {port.name} index {port.ifindex} address {port.mac} mtu {LINK_MTU} state UP"
        for port in ports
    ]
    while True:
        actual = [line for line in _read_ports(netlink) if line.split()[1] in names]
        differences = _difference(expected, actual)
        if not differences or time.monotonic_ns() > deadline_ns:
            return differences
        time.sleep(UP_POLL_S)


def _read_ports(netlink: Netlink) -> list[str]:
    return [
        f"port {message.get_attr('IFLA_IFNAME')} index {message['index']}"
        f" address {message.get_attr('IFLA_ADDRESS')} mtu {message.get_attr('IFLA_MTU')}"
        f" state {message.get_attr('IFLA_OPERSTATE')}"
        for message in netlink.dump(LinkMessage, RTM_GETLINK, attrs=[WITHOUT_COUNTERS])
    ]


SYSFS = Path("/run/sys")
"""Directory, in the sandbox's own /run, in which every node's view of /sys is mounted."""


class Fabric(Closeable):
    """An emulated fabric: namespaces, links, queues, neighbours and routes.

    Attributes:
        layout: the model, and what its emulation adds to it.
        namespaces: the nodes' namespaces.
        net: the Mininet network: nodes, links, prompt.
        link_model: the model of every port and wire in the kernel; None if this machine cannot run
            it, and links only have their rate and drop the tail of a full queue.
        link_model_missing: the reason for that.
    """

    def __init__(self, topology: Topology, wires: Collection[str] = (), *, seed: int = 1) -> None:
        """Describe the fabric; nothing is built yet.

        Args:
            topology: the fabric.
            wires: names of links whose ends meet in the sandbox's own namespace, as `w0a` and
                `w0b` for the first, for Open vSwitch to patch.
            seed: repeats the random choices of the link model.

        Raises:
            ValueError: a wire is not a link of the fabric.
        """
        self.layout = Layout.of(topology, wires)
        self.namespaces = NodeNamespaces()
        self.net: FabricNet
        self.link_model: LinkModel | None = None
        self.link_model_missing: MachineError | None = None
        self._seed = seed

    @property
    def topology(self) -> Topology:
        return self.layout.topology

    def __enter__(self) -> Self:
        """Build the fabric. This process must be in a sandbox.

        Raises:
            NetlinkError: the kernel refused a request.
            RunFailedError: a port did not come up.
        """
        self.net = FabricNet(self.topology, self.namespaces)
        with Netlink("sandbox") as root:
            self._make_links(root)
        self._tune()
        self._shape()
        self._set_up()
        for node in self.topology.nodes.values():
            tables = routes.expected(self.layout, node)
            self._netlink(node).send(routes.install(tables, self.layout.device_name))
        wait_until_up(self.layout, self.namespaces)
        namespaces.TOPOLOGY_FILE.write_text(self.topology.model_dump_json(), encoding="utf-8")
        return self

    def close(self) -> None:
        """Release the namespaces; the kernel removes them, at the latest with the sandbox."""
        self.net.stop()
        self.namespaces.close()

    def verify(self) -> None:
        """Read every port, route, neighbour and address back and compare with the model.

        Raises:
            RunFailedError: something differs; names every difference.
        """
        verify(self.layout, self.namespaces)

    def sweep(self) -> None:
        """Have every link direction and every uN route carry a packet. Needs an idle fabric.

        Raises:
            RunFailedError: a link direction or a route did not; names it.
        """
        sweep(self.layout, self.namespaces)

    def counters(self) -> LinkCounters:
        return LinkCounters(self.layout, self.namespaces)

    # --- building -----------------------------------------------------------------------------

    def _netlink(self, node: Node) -> Netlink:
        return self.namespaces[node.name].netlink

    def _make_links(self, sandbox: Netlink) -> None:
        netns = os.open(namespaces.OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
        if self.layout.wires:
            write_sysctl("ipv6/conf/default/disable_ipv6", "1")
        try:
            sandbox.send(self._veths(netns))
        finally:
            os.close(netns)
        if self.layout.wires:
            write_sysctl("ipv6/conf/default/disable_ipv6", "0")
            sandbox.send(self._ups(far for _, far in self._wire_ends()))

    def _veths(self, sandbox: int) -> Iterator[Request]:
        def at_node(port: Port) -> Interface:
            return Interface.of_port(port, self.namespaces[port.node.name].fd)

        pairs = [self.layout.sid_veth(switch) for switch in self.topology.switches]
        links = self.topology.links.items()
        pairs += [link.ports for name, link in links if name not in self.layout.wires]
        for first, second in pairs:
            yield requests.new_veth(at_node(first), at_node(second), LINK_MTU)
        for near, far in self._wire_ends():
            yield requests.new_veth(at_node(near), Interface.of_port(far, sandbox), LINK_MTU)

    def _wire_ends(self) -> Iterator[tuple[Port, Port]]:
        """Yield (port at the node, far end in the sandbox) of every cable of every wire."""
        for name in self.layout.wires:
            yield from zip(
                self.topology.links[name].ports, self.layout.wire_ends(name), strict=True
            )

    def _tune(self) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        wire_ends = dict(self._wire_ends())
        # A packet whose checksum a device is to fill in passes as intact, corrupted or not.
        checksummed = {*wire_ends, *wire_ends.values()} | {
            near for host in self.topology.hosts for near, _, _ in self.topology.adjacency[host]
        }

        def tune(name: str, links: Mapping[Port, Link]) -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                for port in links:
                    extra = (interfaces.ETHTOOL_STXCSUM,) if port in checksummed else ()
                    interfaces.switch_off(control, port.name, interfaces.SEGMENTATION + extra)
            interfaces.pin_receive_work(
                SYSFS / name,
                {
                    port.name: cpus[receive_cpu(self.topology, link, len(cpus))]
                    for port, link in links.items()
                },
            )

        for name, node in self.topology.nodes.items():
            with self.namespaces[name].entered():
                tune(name, {near: link for near, _, link in self.topology.adjacency[node]})
        if self.layout.wires:
            tune(
                "sandbox",
                {
                    far: self.topology.links[name]
                    for name in self.layout.wires
                    for far in self.layout.wire_ends(name)
                },
            )

    def _shape(self) -> None:
        with ExitStack() as stack:
            try:
                programs = stack.enter_context(link_model.load(self.topology, self._seed))
                self.link_model = programs.model
            except MachineError as error:
                programs, self.link_model_missing = None, error
            encoded: dict[Shape, tuple[Request, ...]] = {}
            for node in self.topology.nodes.values():
                self._netlink(node).send(
                    requests.for_interface(request, near.ifindex)
                    for near, _, link in self.topology.adjacency[node]
                    for request in self._shape_requests(link, near, programs, encoded)
                )

    def _shape_requests(
        self,
        link: Link,
        port: Port,
        programs: Programs | None,
        encoded: dict[Shape, tuple[Request, ...]],
    ) -> tuple[Request, ...]:
        shape = shape_of(self.topology, link, port)
        if shape not in encoded:
            changes = list(shaping.attach(port.ifindex, shape, deep=programs is not None))
            if programs is not None:
                changes += shaping.attach_model(port.ifindex, programs.port, programs.wire)
            encoded[shape] = tuple(changes)
        return encoded[shape]

    def _set_up(self) -> None:
        for node in self.topology.nodes.values():
            ports = [near for near, _, _ in self.topology.adjacency[node]]
            if node.tier is not Tier.HOST:
                ports += self.layout.sid_veth(node)
                with self.namespaces[node.name].entered():
                    write_sysctl("ipv6/conf/all/forwarding", "1")
            lo = requests.set_link(requests.LOOPBACK, "lo", up=True)
            self._netlink(node).send([lo, *self._ups(ports)])

    def _ups(self, ports: Iterable[Port]) -> Iterator[Request]:
        for port in ports:
            yield requests.set_link(port.ifindex, port.name, up=True)
