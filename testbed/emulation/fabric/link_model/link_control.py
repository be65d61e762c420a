"""Faults on a link itself, and what the kernel and the link model report and count of it.

Works from any process of the sandbox. A cut takes a few milliseconds, with sockets that stay open.
All other faults are stores into the link model's memory, in force for the next packet that arrives
at the far port.

Packets under way: the receiver adds the propagation delay, so no packet is between two ports.
Packets that are queued when a fault takes effect are lost, as in a switch whose port dies: a cut
empties the queue uncounted, a blackhole swallows and counts what leaves it. Without the link model
a blackhole empties the queue too, and counts that at once.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_GETQDISC

from testbed.emulation.fabric import requests, routes
from testbed.emulation.fabric.interfaces import (
    DROPPED_IN_SENDING,
    SENT_BYTES,
    SENT_PACKETS,
    read_counters,
)
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.link_model.link_model import BUILD_REMEDY, LinkModel
from testbed.emulation.fabric.netlink import (
    WITHOUT_COUNTERS,
    LinkMessage,
    Netlink,
    NodeNamespaces,
    QdiscMessage,
    attributes,
)
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.addressing import (
    PATH_BITS,
    directions_of_path,
    ev_of_halves,
    nic_address,
    ordinary_address,
    path_of_ev,
)
from testbed.model.fabric.names import direction_named
from testbed.model.fabric.nodes import Link, Node, Port
from testbed.model.fabric.topology import Topology, shape_of
from testbed.model.faults.impairment import HEALTHY, PPM, Impairment
from testbed.model.run_files.content import LinkSample
from testbed.model.units import NS_PER_S

CARRIER_TIMEOUT_NS = NS_PER_S
CARRIER_POLL_S = 0.0005
OPERSTATE_UP = "UP"
PATH_MASK = (1 << PATH_BITS) - 1


class LinkControl:
    """Breaks and repairs links of the fabric of this sandbox."""

    def __init__(
        self,
        topology: Topology,
        namespaces: NodeNamespaces,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Open nothing yet: namespaces and the link model are opened when first used.

        Args:
            topology: the fabric.
            namespaces: the nodes' namespaces.
            sleep: waits for a number of seconds; a cooperative one lets other tasks work meanwhile.
        """
        self._layout = Layout(topology)
        self._namespaces = namespaces
        self._sleep = sleep

    @cached_property
    def _model(self) -> LinkModel | None:
        return LinkModel.open(self._layout.topology)

    def open(self, link: str) -> None:
        """Open now what a fault on a link needs, so that a later fault is quick."""
        for port in self._link(link).ports:
            self._netlink(port)
            if self._model is not None:
                self._model.counts(port)

    def impair(self, direction: str, state: Impairment) -> None:
        """Bring one direction of a link into a state, except for its carrier (`cut`, `restore`).

        A direction that is to be cut swallows everything from here on: the light goes before the
        carrier does.

        Raises:
            MachineError: there is no link model, and this is more than a blackhole.
            NetlinkError: the kernel refused.
        """
        link, port = self._direction(direction)
        if self._model is None:
            if replace(state, cut=False, blackhole=False) != HEALTHY:
                raise MachineError(
                    "without the link model the only faults are cut and blackhole", BUILD_REMEDY
                )
            self._swallow(link, port, on=state.blackhole)
            return
        fields = self._fields(self._model, link, state)
        kept_rate_bps = fields.pop("rate_bps")
        if self._model.field(port, "path_value") != state.path_bits:
            # The new path must not suffer the old path's loss.
            self._model.set_faults(port, path_loss_ppm=0)
        self._model.set_faults(port, path_mask=PATH_MASK, path_value=state.path_bits)
        self._model.set_faults(port, **fields)
        if self._model.rate_bps(port) != kept_rate_bps:
            rate_bps = self._rate_bps(link, state)
            self._model.set_rate(port, rate_bps)
            self._netlink(port).send(shaping.set_rate(port.ifindex, rate_bps))

    def _swallow(self, link: Link, port: Port, *, on: bool) -> None:
        """Have a port swallow what it is to send, where there is no link model."""
        if on:
            change = shaping.blackhole(port.ifindex)
        else:
            shape = shape_of(self._layout.topology, link, port)
            change = shaping.queue(port.ifindex, shape, replace=True)
        self._netlink(port).send([change])

    def differences_from(self, direction: str, state: Impairment) -> str:
        """How a direction differs from a state, read from the link model; empty if it does not.

        Without the link model there is nothing to read.
        """
        return ", ".join(
            f"{field} {actual}, not {expected}"
            for field, actual, expected in self._deviations(direction, state)
        )

    def read_back(self, direction: str) -> dict[str, int]:
        """What is wrong with a direction, by the fields of the link model's memory.

        Only fields that differ from those of a link without faults. Empty without the link model.
        """
        return {field: actual for field, actual, _ in self._deviations(direction, HEALTHY)}

    def _deviations(self, direction: str, state: Impairment) -> Iterator[tuple[str, int, int]]:
        """Yield (field, actual value, expected value) where the memory differs from a state."""
        if self._model is None:
            return
        link, port = self._direction(direction)
        for field, expected in self._fields(self._model, link, state).items():
            rate = field == "rate_bps"
            actual = self._model.rate_bps(port) if rate else self._model.field(port, field)
            if actual != expected:
                yield field, actual, expected

    def _fields(self, model: LinkModel, link: Link, state: Impairment) -> dict[str, int]:
        """A state as the link model keeps it: fields of its memory, and `rate_bps`."""
        return {
            "blackhole": int(state.blackhole or state.cut),
            "loss_ppm": round(state.loss * PPM),
            "corrupt_ppm": round(state.corrupt * PPM),
            "path_loss_ppm": round(state.path_loss * PPM),
            "path_value": state.path_bits,
            "delay_ns": state.delay_ns,
            "rate_bps": model.kept_rate_bps(self._rate_bps(link, state)),
        }

    def tally(self, direction: str) -> dict[str, int]:
        """Packets of one direction so far: `passed` and `dropped`.

        `lost` counts those of `dropped` that a fault dropped, `corrupted` those of `passed` that
        were damaged. Without the link model only the drops of the sending port are known.
        """
        _, port = self._direction(direction)
        if self._model is None:
            return {"dropped": self._drops(port)}
        counts = self._model.counts(port)
        return {
            "passed": counts.packets,
            "dropped": counts.dropped,
            "lost": counts.lost + counts.path_lost + counts.blackholed,
            "corrupted": counts.corrupted,
        }

    def _rate_bps(self, link: Link, state: Impairment) -> int:
        return max(round(self._layout.topology.rate_bps(link) * state.rate), 1)

    def cut(self, link: str) -> None:
        """Take the carrier away at both ends.

        The kernel forgets the routes and neighbours that use the two ports, so the nodes then
        handle those destinations as unknown ones.
        """
        for port in self._link(link).ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=False)])
        self._empty_queues(link)

    def restore(self, *links: str) -> int:
        """Put the routes back and give the carrier back; wait until all ports forward.

        The lower ends get their routes before there is carrier, which takes both ends: what a host
        sends as soon as its port is up leaves, and an answer finds its way back a round trip
        later. Takes many links at once, because carrier takes its time to return and does so on
        all links together. Takes tens of milliseconds and sleeps several times.

        Returns:
            The number of routes and neighbours of the ports that were then read back.

        Raises:
            RunFailedError: a port got no carrier within a second, or a route did not come back.
        """
        for link in links:
            self._empty_queues(link)  # of what was sent during the cut
        lower, upper = zip(*(self._link(link).ports for link in links), strict=True)
        count = self._raise_ports(lower) + self._raise_ports(upper)
        deadline = time.monotonic_ns() + CARRIER_TIMEOUT_NS
        for port in (*lower, *upper):
            while self._read(port).get_attr("IFLA_OPERSTATE") != OPERSTATE_UP:
                if time.monotonic_ns() > deadline:
                    raise RunFailedError(f"{port.name} got no carrier within 1 s")
                self._sleep(CARRIER_POLL_S)
        return count

    def _raise_ports(self, ports: Iterable[Port]) -> int:
        """Set ports up and restore the entries of their nodes' tables; returns how many."""
        by_node: dict[Node, list[Port]] = {}
        for port in ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=True)])
            by_node.setdefault(port.node, []).append(port)
        count = 0
        for node, node_ports in by_node.items():
            count += self._restore_tables(node, node_ports)
            self._sleep(0)
        return count

    def _restore_tables(self, node: Node, ports: Sequence[Port]) -> int:
        """Install what a node's tables lost with the ports' carrier; returns their full count."""
        expected = routes.of_ports(routes.expected(self._layout, node), ports)
        netlink = self._netlink(ports[0])
        netlink.send(routes.install(_lacking(expected, netlink), self._layout.device_name))
        lacking = _lacking(expected, netlink)
        if lacking.routes or lacking.neighbours:
            raise RunFailedError(f"the routes of {node.name} did not come back")
        return len(expected.routes) + len(expected.neighbours)

    def carrier(self, link: str) -> tuple[bool, bool]:
        """Whether each end has carrier, the lower end first."""
        lower, upper = (
            bool(self._read(port).get_attr("IFLA_CARRIER")) for port in self._link(link).ports
        )
        return lower, upper

    def _empty_queues(self, link: str) -> None:
        """Have the model forget what was queued, as the kernel has."""
        if self._model is not None:
            for port in self._link(link).ports:
                self._model.empty(port)

    def _direction(self, name: str) -> tuple[Link, Port]:
        direction = direction_named(self._layout.topology, name)
        if direction is None:
            raise KeyError(name)
        return direction

    def _link(self, name: str) -> Link:
        return self._layout.topology.links[name]

    def _netlink(self, port: Port) -> Netlink:
        return self._namespaces[port.node.name].netlink

    def _read(self, port: Port) -> Any:
        return read_link(self._netlink(port), port.ifindex, port.name)

    def _drops(self, port: Port) -> int:
        queue = self._netlink(port).get(
            QdiscMessage,
            RTM_GETQDISC,
            f"read the queue of {port.name}",
            index=port.ifindex,
            handle=shaping.HTB_HANDLE,
        )
        return int(queue.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def read_link(netlink: Netlink, ifindex: int, name: str) -> Any:
    """Read an interface without its counters, as a decoded message.

    Raises:
        NetlinkError: there is no such interface.
    """
    description, attrs = f"read {name}", [WITHOUT_COUNTERS]
    return netlink.get(LinkMessage, RTM_GETLINK, description, index=ifindex, attrs=attrs)


def _lacking(expected: routes.RoutingTables, netlink: Netlink) -> routes.RoutingTables:
    """The entries that a node's tables lack: a port that only lost its carrier keeps its routes."""
    return routes.RoutingTables(
        expected.routes - frozenset(routes.read_routes(netlink)),
        expected.neighbours - frozenset(routes.read_neighbours(netlink)),
        frozenset(),
    )


# --------------------------------------------------------------------------------------------------
# The extra propagation delay, by faults, of packets that arrive at a host.
#
# Receivers model propagation by holding packets, and so they do for the delay of a `delay` fault.
# The link model's memory, which all processes of the sandbox share, has the extra delay of each
# direction: a store there is in force for the next packet that arrives at any host.


_SOURCE = slice(8, 24)
_FLOW_LABEL = slice(2, 4)
_SOURCE_PORT = slice(40, 42)


class SlowLinks:
    """The extra delay of packets that arrive at one host; none without the link model."""

    def __init__(self, topology: Topology, host: Node) -> None:
        """Open the link model of this sandbox."""
        self._topology = topology
        self._host = host
        self._model = LinkModel.open(topology)
        self._crossed = cache(self._directions)

    def any(self) -> bool:
        return self._model is not None and bool(self._model.records["delay_ns"].any())

    def extra_ns(self, packet: bytes) -> int:
        """The extra delay in ns of the links that a packet has crossed; to be called if `any`.

        Args:
            packet: MRC's inner packet, a packet of a kernel connection, or an ordinary packet with
                its outer header. Each begins with an IPv6 header whose source is the sender's NIC,
                or its address in a plane, and whose flow label has the path.
        """
        if self._model is None:
            return 0
        delays_ns = self._model.records["delay_ns"]
        label, port = packet[_FLOW_LABEL], packet[_SOURCE_PORT]
        ev = ev_of_halves(int.from_bytes(label), int.from_bytes(port))
        return sum(int(delays_ns[i]) for i in self._crossed(self._model, packet[_SOURCE], ev))

    def _directions(self, model: LinkModel, source: bytes, ev: int) -> tuple[int, ...]:
        """Indexes of the directions that an EV of a host crosses; none if the source is no host."""
        topology, host = self._topology, self._host
        src = next((node for node in topology.hosts if source in _addresses(topology, node)), None)
        if src is None or src == host:
            return ()
        path = path_of_ev(topology, src, host, ev)
        return tuple(map(model.index, directions_of_path(topology, src, host, path)))


def _addresses(topology: Topology, host: Node) -> frozenset[bytes]:
    planes = (ordinary_address(topology, host, plane) for plane in range(topology.planes))
    return frozenset(address.packed for address in (nic_address(topology, host), *planes))


TCA_STATS2 = 7
TCA_STATS_QUEUE = 3

_SENT = SENT_PACKETS, SENT_BYTES, DROPPED_IN_SENDING
_QDISC_MESSAGE = struct.Struct("=16x4xiII4x")  # header, family and padding, ifindex, handle, parent
_QUEUE_STATS = struct.Struct("=4xII")  # qlen, backlog, drops


class LinkCounters:
    """Reads the counters of the fabric of this sandbox, from any process in it."""

    def __init__(self, layout: Layout, namespaces: NodeNamespaces) -> None:
        """Open the link model, if there is one."""
        self._topology = layout.topology
        self._namespaces = namespaces
        self._model = LinkModel.open(layout.topology)

    def directions(self) -> Mapping[str, LinkSample]:
        """Read every link direction, by its name, such as `p0_t0_0>p0_t1_2`."""
        if self._model is not None:
            counts = self._model.all_counts()
            backlog = self._model.backlog_bytes().tolist()
            return {
                name: LinkSample(n.packets, n.bytes, n.dropped, n.marked, n.trimmed, queued)
                for (name, n), queued in zip(counts.items(), backlog, strict=True)
            }
        directions: dict[str, LinkSample] = {}
        for node, ports in self._topology.adjacency.items():
            namespace = self._namespaces[node.name]
            queues = read_queues(namespace.netlink)
            with namespace.entered():
                sent = read_counters()
            for near, far, _ in ports:
                packets, size, lost = (sent[near.name][column] for column in _SENT)
                queued, dropped = queues.get(near.ifindex, (0, 0))
                directions[f"{near.node.name}>{far.node.name}"] = LinkSample(
                    packets, size, lost + dropped, 0, 0, queued
                )
        return directions

    def sids(self) -> Mapping[Node, int]:
        """The packets that every switch's uN route has processed so far."""
        return {
            switch: read_sid(self._namespaces[switch.name].netlink)
            for switch in self._topology.switches
        }


def read_sid(netlink: Netlink) -> int:
    """The packets that a switch's own SID has processed so far; 0 if it has none."""
    for message in routes.dump_routes(netlink):
        encap = message.get_attr("RTA_ENCAP")
        counters = encap.get_attr("SEG6_LOCAL_COUNTERS") if encap is not None else None
        if counters is not None:
            return int(counters.get_attr("SEG6_LOCAL_CNT_PACKETS"))
    return 0


def read_queues(netlink: Netlink) -> dict[int, tuple[int, int]]:
    """Bytes queued in each interface's HTB and packets dropped by it, by ifindex."""
    queues = {}
    for reply in netlink.dump_raw(QdiscMessage, RTM_GETQDISC):
        data, start, end = reply.buffer, reply.start, reply.end
        ifindex, handle, _parent = _QDISC_MESSAGE.unpack_from(data, start)
        if handle != shaping.HTB_HANDLE:
            continue
        for kind, first, last in attributes(data, start + _QDISC_MESSAGE.size, end):
            if kind == TCA_STATS2:
                for inner, offset, _ in attributes(data, first, last):
                    if inner == TCA_STATS_QUEUE:
                        queues[ifindex] = _QUEUE_STATS.unpack_from(data, offset)
    return queues
