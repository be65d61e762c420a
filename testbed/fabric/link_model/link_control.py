"""Faults on a link itself, and what the link says about them.

Works from any process of the sandbox, on both directions of a link at once. A cut takes a few
milliseconds: the sockets stay open. All other faults are stores into the link model's memory, in
force for the next packet that arrives at the far port.

Packets under way: propagation delay is the receiver's business, so nothing is between two ports.
What a queue holds when a fault takes effect is lost, as in a switch whose port dies: a cut empties
it uncounted, a blackhole swallows and counts what leaves it. Where there is no link model, a
blackhole empties the queue too, and counts that at once.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_GETQDISC

from testbed.fabric import routes
from testbed.fabric.layout import Layout
from testbed.fabric.link_model import shaping
from testbed.fabric.link_model.link_model import BUILD_REMEDY, LinkModel
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.messages import RTEXT_FILTER_SKIP_STATS, LinkMessage, QdiscMessage
from testbed.fabric.netlink.socket import Netlink
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.addressing import PATH_BITS
from testbed.model.fabric.names import direction_named
from testbed.model.fabric.nodes import Link, Node, Port
from testbed.model.fabric.shape import shape_of
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, PPM, Impairment

CARRIER_TIMEOUT_NS = 1_000_000_000
CARRIER_POLL_S = 0.0005
OPERSTATE_UP = "UP"
PATH_MASK = (1 << PATH_BITS) - 1

_FAULTS = ("blackhole", "loss_ppm", "corrupt_ppm", "path_loss_ppm", "path_value", "delay_ns")
"""What the link model keeps of an `Impairment`, but for the rate."""


class LinkControl(Closeable):
    """Breaks and mends links of the fabric of this sandbox."""

    def __init__(self, topology: Topology, sleep: Callable[[float], object] = time.sleep) -> None:
        """Open nothing yet: sockets and the link model are opened when first used, and kept.

        Args:
            topology: the fabric.
            sleep: waits for so many seconds; where others are to work meanwhile, one that lets
                them.
        """
        self._layout = Layout(topology)
        self._sleep = sleep
        self._sockets: dict[str, Netlink] = {}

    @cached_property
    def _model(self) -> LinkModel | None:
        return LinkModel.open(self._layout.topology)

    def close(self) -> None:
        """Close the sockets."""
        for netlink in self._sockets.values():
            netlink.close()
        self._sockets.clear()

    def open(self, link: str) -> None:
        """Open now what a fault on a link needs, so that a later fault is quick."""
        for port in self._link(link).ports:
            self._netlink(port)
            if self._model is not None:
                self._model.dropped(port)

    def blackhole(self, link: str, on: bool) -> None:
        """Have both directions swallow every packet, silently, or stop doing so.

        Carrier stays. What waits in the queues is lost and counted.

        Raises:
            NetlinkError: the kernel refused; the link is as it was, or half changed.
        """
        if self._model is not None:
            for port in self._link(link).ports:
                self._model.set_faults(port, blackhole=int(on))
            return
        for port in self._link(link).ports:
            self._swallow(self._link(link), port, on=on)

    def _swallow(self, link: Link, port: Port, *, on: bool) -> None:
        """Have a port swallow what it is to send, where there is no link model."""
        shape = shape_of(self._layout.topology, link, port)
        change = (
            shaping.blackhole(port.ifindex)
            if on
            else shaping.queue(port.ifindex, shape, replace=True)
        )
        self._netlink(port).send([change])

    def impair(self, direction: str, state: Impairment) -> None:
        """Bring one direction of a link into a state; its carrier is left to `cut` and `restore`.

        A direction that is to be cut swallows everything from here on: the light goes before the
        carrier does.

        Raises:
            MachineError: there is no link model, and this is more than a blackhole.
            NetlinkError: the kernel refused.
        """
        link, port = self._direction(direction)
        if self._model is None:
            if replace(state, cut=False, blackhole=False) != HEALTHY:
                raise MachineError("only cut and blackhole do without the link model", BUILD_REMEDY)
            self._swallow(link, port, on=state.blackhole)
            return
        loss = round(state.path_loss * PPM)
        if self._model.fault(port, "path_value") != state.path_bits:
            self._model.set_faults(port, path_loss_ppm=0)  # not the old share of the new path
        self._model.set_faults(port, path_mask=PATH_MASK, path_value=state.path_bits)
        self._model.set_faults(
            port,
            blackhole=int(state.blackhole or state.cut),
            loss_ppm=round(state.loss * PPM),
            corrupt_ppm=round(state.corrupt * PPM),
            path_loss_ppm=loss,
            delay_ns=state.delay_ns,
        )
        rate_bps = self._rate_bps(link, state)
        if self._model.rate_bps(port) != self._model.kept_rate_bps(rate_bps):
            self._model.set_rate(port, rate_bps)
            self._netlink(port).send(shaping.change_rate(port.ifindex, rate_bps))

    def unlike(self, direction: str, state: Impairment) -> str:
        """How a direction differs from a state, read back from the model; empty if it does not.

        Without the model there is nothing to read.
        """
        if self._model is None:
            return ""
        link, _ = self._direction(direction)
        wanted = {
            "blackhole": int(state.blackhole or state.cut),
            "loss_ppm": round(state.loss * PPM),
            "corrupt_ppm": round(state.corrupt * PPM),
            "path_loss_ppm": round(state.path_loss * PPM),
            "path_value": state.path_bits,
            "delay_ns": state.delay_ns,
            "rate_bps": self._model.kept_rate_bps(self._rate_bps(link, state)),
        }
        found = self._memory(self._model, direction)
        return ", ".join(
            f"{key} {found[key]}, not {value}"
            for key, value in wanted.items()
            if found[key] != value
        )

    def read_back(self, direction: str) -> dict[str, int]:
        """What is wrong with a direction, as the model's memory has it; nothing that is not.

        `rate_bps` is there where it is not the link's own. Without the model there is nothing.
        """
        if self._model is None:
            return {}
        link, _ = self._direction(direction)
        found = self._memory(self._model, direction)
        if found["rate_bps"] == self._model.kept_rate_bps(self._rate_bps(link, HEALTHY)):
            del found["rate_bps"]
        return {key: value for key, value in found.items() if value}

    def _memory(self, model: LinkModel, direction: str) -> dict[str, int]:
        _, port = self._direction(direction)
        found = {key: model.fault(port, key) for key in _FAULTS}
        return {**found, "rate_bps": model.rate_bps(port)}

    def tally(self, direction: str) -> dict[str, int]:
        """Packets of one direction so far: `passed`, `dropped` and, of the former, `corrupted`.

        Without the model only the drops of the sending port are known.
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

        The kernel forgets the routes and neighbours that go by the two ports, so the nodes answer
        for those destinations as for unknown ones.
        """
        for port in self._link(link).ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=False)])
        self._empty_queues(link)

    def restore(self, *links: str) -> int:
        """Put the routes back and give the carrier back; wait until all ports forward.

        The lower ends have theirs before there is carrier, which takes both ends: what a host
        sends as soon as its port is up goes out, and an answer finds the way back a round trip
        later. Of many links at once, as carrier takes its time to return and the links do so
        together. Tens of milliseconds; sleeps again and again.

        Returns:
            How many routes and neighbours of the ports were then read back.

        Raises:
            RunFailedError: a port got no carrier within a second, or a route did not come back.
        """
        for link in links:
            self._empty_queues(link)  # of what was sent into it meanwhile
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
        """Set ports up, and put back what their nodes had lost with them; how much that is."""
        by_node: dict[Node, list[Port]] = {}
        for port in ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=True)])
            by_node.setdefault(port.node, []).append(port)
        count = 0
        for node, own in by_node.items():
            count += self._restore_routes(node, own)
            self._sleep(0)
        return count

    def _restore_routes(self, node: Node, ports: Sequence[Port]) -> int:
        """Put back what a node has lost with its ports' carrier, and read it back; how many."""
        expected = routes.expected(self._layout, node)
        wanted = [routes.of_port(expected, port) for port in ports]
        netlink = self._netlink(ports[0])
        lacking = _lacking(wanted, netlink)
        netlink.send(routes.install(lacking, self._layout.device_name))
        lacking = _lacking(wanted, netlink)
        if lacking.routes or lacking.neighbours:
            raise RunFailedError(f"the routes of {node.name} did not come back")
        return sum(len(one.routes) + len(one.neighbours) for one in wanted)

    def carrier(self, link: str) -> tuple[bool, bool]:
        """Say whether each end has carrier, the lower first."""
        lower, upper = (
            bool(self._read(p).get_attr("IFLA_CARRIER")) for p in self._link(link).ports
        )
        return lower, upper

    def _empty_queues(self, link: str) -> None:
        """Have the model forget what waited, as the kernel has."""
        if self._model is not None:
            for port in self._link(link).ports:
                self._model.empty(port)

    def _direction(self, name: str) -> tuple[Link, Port]:
        found = direction_named(self._layout.topology, name)
        if found is None:
            raise KeyError(name)
        return found

    def _link(self, name: str) -> Link:
        return self._layout.topology.links[name]

    def _netlink(self, port: Port) -> Netlink:
        name = port.node.name
        if name not in self._sockets:
            self._sockets[name] = Netlink.at(name)
        return self._sockets[name]

    def _read(self, port: Port) -> Any:
        request = LinkMessage()
        request["index"] = port.ifindex
        request["attrs"] = [("IFLA_EXT_MASK", RTEXT_FILTER_SKIP_STATS)]
        return self._netlink(port).get(request, RTM_GETLINK, f"read {port.name}")

    def _drops(self, port: Port) -> int:
        request = QdiscMessage()
        request.update(index=port.ifindex, handle=shaping.HTB_HANDLE)
        found = self._netlink(port).get(request, RTM_GETQDISC, f"read the queue of {port.name}")
        return int(found.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def _lacking(wanted: Iterable[routes.Tables], netlink: Netlink) -> routes.Tables:
    """What a node's tables have not: a port that only lost its carrier has kept its routes."""
    found_routes = set(routes.read_routes(netlink))
    found_neighbours = set(routes.read_neighbours(netlink))
    return routes.Tables(
        frozenset(route for one in wanted for route in one.routes) - found_routes,
        frozenset(entry for one in wanted for entry in one.neighbours) - found_neighbours,
        frozenset(),
    )
