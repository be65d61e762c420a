"""The fabric, built: `with Fabric(topology) as fabric: ...` inside a sandbox."""

import os
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.fabric import offload, routes
from testbed.fabric.layout import Layout, receive_cpu
from testbed.fabric.link_model import link_model, shaping
from testbed.fabric.link_model.counters import Counters
from testbed.fabric.link_model.link_model import LinkModel, Programs
from testbed.fabric.mininet.net import FabricNet
from testbed.fabric.mininet.nodes import NamespaceNode, write_sysctl
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.requests import Interface
from testbed.fabric.netlink.socket import Netlink, Request
from testbed.fabric.sweep import sweep
from testbed.fabric.verify import verify, wait_until_up
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import Link, Node, Port, Tier
from testbed.model.fabric.shape import Shape, shape_of
from testbed.model.fabric.topology import LINK_MTU, Topology
from testbed.sandbox import namespaces

SYSFS = Path("/run/sys")
"""A node's view of /sys is mounted below, in the sandbox's own /run."""


class Fabric:
    """An emulated fabric: namespaces, links, queues, neighbours and routes.

    Attributes:
        layout: the model and where its parts stand.
        net: the Mininet network: nodes, links, prompt.
        link_model: what decides at every port and on every wire; None if this machine has it not:
            links then have their rate and drop the tail of a full queue, no more.
        link_model_missing: the reason for that.
        timings_s: how long each phase of building took, in seconds.
    """

    def __init__(self, topology: Topology, wires: Collection[str] = (), *, seed: int = 1) -> None:
        """Say what to build.

        Args:
            topology: the fabric.
            wires: names of links whose ends meet in the sandbox's own namespace, as `w0a` and
                `w0b` for the first, for Open vSwitch to patch.
            seed: repeats the random choices of the link model.

        Raises:
            ValueError: a wire is no link of the fabric.
        """
        self.layout = Layout.of(topology, wires)
        self.timings_s: dict[str, float] = {}
        self.net: FabricNet
        self.link_model: LinkModel | None = None
        self.link_model_missing: MachineError | None = None
        self._seed = seed

    @property
    def topology(self) -> Topology:
        """The model."""
        return self.layout.topology

    def __enter__(self) -> Self:
        """Build it. This process must be in a sandbox.

        Raises:
            NetlinkError: the kernel refused something.
            RunFailedError: a port did not come up.
        """
        with self._phase("nodes"):
            self.net = FabricNet(self.topology)
        with self._phase("links"), Netlink("sandbox") as root:
            self._make_links(root)
        with self._phase("offloads and CPUs"):
            self._tune()
        with self._phase("queues"):
            self._shape()
        with self._phase("up"):
            self._set_up()
        with self._phase("routes"):
            for node in self.topology.nodes.values():
                tables = routes.expected(self.layout, node)
                self._netlink(node).send(routes.install(tables, self.layout.device_name))
        with self._phase("carrier"):
            wait_until_up(self.layout, self._netlink)
        namespaces.TOPOLOGY_FILE.write_text(self.topology.model_dump_json(), encoding="utf-8")
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Let go of the namespaces; the kernel removes them, at the latest with the sandbox."""
        self.net.stop()

    def verify(self) -> None:
        """Read every port, route, neighbour and address back and compare with the model.

        Raises:
            RunFailedError: something differs; says what.
        """
        with self._phase("verify"):
            verify(self.layout, self._netlink)

    def sweep(self) -> None:
        """Have every link direction and every uN route carry a packet. Needs an idle fabric.

        Raises:
            RunFailedError: one did not; says which.
        """
        with self._phase("sweep"):
            sweep(self.layout, self._node)

    def counters(self) -> Counters:
        """Return a reader of the fabric's counters; the caller closes it."""
        return Counters(self.layout)

    # --- building -----------------------------------------------------------------------------

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings_s[name] = time.perf_counter() - start

    def _node(self, node: Node) -> NamespaceNode:
        found: NamespaceNode = self.net[node.name]
        return found

    def _netlink(self, node: Node) -> Netlink:
        return self._node(node).netlink

    def _make_links(self, root: Netlink) -> None:
        own = os.open(namespaces.OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
        if self.layout.wires:
            write_sysctl("ipv6/conf/default/disable_ipv6", "1")
        try:
            root.send(self._veths(own))
        finally:
            os.close(own)
        if self.layout.wires:
            write_sysctl("ipv6/conf/default/disable_ipv6", "0")
            root.send(self._ups(far for _, far in self._wire_ends()))

    def _veths(self, sandbox: int) -> Iterator[Request]:
        def interface(port: Port, netns: int) -> Interface:
            return Interface(port.name, port.ifindex, port.mac, netns)

        def at_node(port: Port) -> Interface:
            return interface(port, self._node(port.node).netns)

        for switch in self.topology.switches:
            yield requests.new_veth(
                at_node(self.layout.sid_device(switch)),
                at_node(self.layout.sid_device_peer(switch)),
                LINK_MTU,
            )
        for name, link in self.topology.links.items():
            if name not in self.layout.wires:
                yield requests.new_veth(at_node(link.lower), at_node(link.upper), LINK_MTU)
        for near, far in self._wire_ends():
            yield requests.new_veth(at_node(near), interface(far, sandbox), LINK_MTU)

    def _wire_ends(self) -> Iterator[tuple[Port, Port]]:
        """Yield (port at the node, far end in the sandbox) of every cable of every wire."""
        for name in self.layout.wires:
            yield from zip(
                self.topology.links[name].ports, self.layout.wire_ends(name), strict=True
            )

    def _tune(self) -> None:
        cpus = len(os.sched_getaffinity(0))
        allowed = sorted(os.sched_getaffinity(0))
        through_wires = {port for near, far in self._wire_ends() for port in (near, far)}
        # A packet whose checksum a device is to fill in passes as intact, corrupted or not.
        checksummed = through_wires | {
            near for host in self.topology.hosts for near, _, _ in self.topology.adjacency[host]
        }

        def tune(ports: dict[Port, int], sysfs: Path) -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                for port in ports:
                    extra = (offload.ETHTOOL_STXCSUM,) if port in checksummed else ()
                    offload.switch_off(control, port.name, offload.SEGMENTATION + extra)
            offload.pin_receive_work(sysfs, {port.name: cpu for port, cpu in ports.items()})

        for node in self.topology.nodes.values():
            ports = {
                near: allowed[receive_cpu(self.topology, link, cpus)]
                for near, _, link in self.topology.adjacency[node]
            }
            with namespaces.entered(self._node(node).netns):
                tune(ports, SYSFS / node.name)
        if through_wires:
            far_ends = {
                far: allowed[receive_cpu(self.topology, self.topology.links[name], cpus)]
                for name in self.layout.wires
                for far in self.layout.wire_ends(name)
            }
            tune(far_ends, SYSFS / "sandbox")

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
            found = list(shaping.attach(port.ifindex, shape, deep=programs is not None))
            if programs is not None:
                found += shaping.attach_model(port.ifindex, programs.port, programs.wire)
            encoded[shape] = tuple(found)
        return encoded[shape]

    def _set_up(self) -> None:
        for node in self.topology.nodes.values():
            ports = [near for near, _, _ in self.topology.adjacency[node]]
            if node.tier is not Tier.HOST:
                ports += [self.layout.sid_device(node), self.layout.sid_device_peer(node)]
                with namespaces.entered(self._node(node).netns):
                    write_sysctl("ipv6/conf/all/forwarding", "1")
            lo = requests.set_link(requests.LOOPBACK, "lo", up=True)
            self._netlink(node).send([lo, *self._ups(ports)])

    def _ups(self, ports: Collection[Port] | Iterator[Port]) -> Iterator[Request]:
        for port in ports:
            yield requests.set_link(port.ifindex, port.name, up=True)
