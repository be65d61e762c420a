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
from functools import cached_property
from typing import Any

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_GETQDISC

from testbed.fabric import requests, routes, shaping
from testbed.fabric.closing import Closing
from testbed.fabric.layout import Layout
from testbed.fabric.link_model import BUILD_REMEDY, WIRE_FAULTS, LinkModel
from testbed.fabric.messages import LinkMessage, QdiscMessage
from testbed.fabric.netlink import Netlink
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.topology import Link, Port, Topology

RTEXT_FILTER_SKIP_STATS = 1 << 3
CARRIER_TIMEOUT_NS = 1_000_000_000
OPERSTATE_UP = "UP"


class LinkControl(Closing):
    """Breaks and mends links of the fabric of this sandbox."""

    def __init__(self, topology: Topology) -> None:
        """Open nothing yet: sockets and the link model are opened when first used, and kept."""
        self._layout = Layout(topology)
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
            self._set_faults(link, blackhole=int(on))
            return
        found = self._link(link)
        for port in found.ports:
            shape = shaping.shape_of(self._layout.topology, found, port)
            change = (
                shaping.blackhole(port.ifindex)
                if on
                else shaping.queue(port.ifindex, shape, replace=True)
            )
            self._netlink(port).send([change])

    def loss(self, link: str, ppm: int) -> None:
        """Lose packets at random, both ways: so many of a million. Needs the link model.

        Raises:
            MachineError: there is none.
        """
        self._set_faults(link, loss_ppm=ppm)

    def corrupt(self, link: str, ppm: int) -> None:
        """Flip a bit behind the outer header of so many packets of a million, both ways.

        Raises:
            MachineError: there is no link model.
        """
        self._set_faults(link, corrupt_ppm=ppm)

    def ev_loss(self, link: str, ppm: int, value: int, mask: int = 0xFFFF) -> None:
        """Lose so many of a million of the packets of chosen EVs, both ways.

        Args:
            link: the link's name.
            ppm: how many of a million.
            value: path bits of the EVs, as in the low bits of the outer flow label.
            mask: which of these bits count.

        Raises:
            MachineError: there is no link model.
        """
        self._set_faults(link, path_loss_ppm=0)  # not the old share of the new paths
        self._set_faults(link, path_mask=mask, path_value=value & mask)
        self._set_faults(link, path_loss_ppm=ppm)

    def degrade(self, link: str, rate_bps: int) -> None:
        """Give both directions another rate in bits/s, as the emulation runs it; queues stay.

        Raises:
            MachineError: there is no link model.
            NetlinkError: the kernel refused.
        """
        model = self._needed_model()
        for port in self._link(link).ports:
            model.set_rate(port, rate_bps)
            self._netlink(port).send(shaping.change_rate(port.ifindex, rate_bps))

    def heal(self, link: str) -> None:
        """Undo every fault but a cut, both ways.

        Raises:
            MachineError: there is no link model.
            NetlinkError: the kernel refused.
        """
        self._set_faults(link, **dict.fromkeys(WIRE_FAULTS, 0))
        self.degrade(link, self._layout.topology.rate_bps(self._link(link)))

    def cut(self, link: str) -> None:
        """Take the carrier away at both ends.

        The kernel forgets the routes and neighbours that go by the two ports, so the nodes answer
        for those destinations as for unknown ones.
        """
        for port in self._link(link).ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=False)])
        self._empty_queues(link)

    def restore(self, link: str) -> None:
        """Give the carrier back, wait until both ports forward, and put the routes back.

        Raises:
            RunFailedError: a port got no carrier within a second, or a route did not come back.
        """
        ports = self._link(link).ports
        self._empty_queues(link)  # of what was sent into it meanwhile
        for port in ports:
            self._netlink(port).send([requests.set_link(port.ifindex, port.name, up=True)])
        deadline = time.monotonic_ns() + CARRIER_TIMEOUT_NS
        for port in ports:
            while self._read(port).get_attr("IFLA_OPERSTATE") != OPERSTATE_UP:
                if time.monotonic_ns() > deadline:
                    raise RunFailedError(f"{link}: {port.name} got no carrier within 1 s")
        for port in ports:
            wanted = routes.of_port(routes.expected(self._layout, port.node), port)
            netlink = self._netlink(port)
            netlink.send(routes.install(_lacking(wanted, netlink), self._layout.device_name))
            lacking = _lacking(wanted, netlink)
            if lacking.routes or lacking.neighbours:
                raise RunFailedError(f"{link}: the routes of {port.name} did not come back")

    def carrier(self, link: str) -> tuple[bool, bool]:
        """Say whether each end has carrier, the lower first."""
        lower, upper = (
            bool(self._read(p).get_attr("IFLA_CARRIER")) for p in self._link(link).ports
        )
        return lower, upper

    def dropped(self, link: str) -> tuple[int, int]:
        """Packets that each direction has dropped so far, the way up first."""
        if self._model is not None:
            up, down = map(self._model.dropped, self._link(link).ports)
            return up, down
        up, down = (self._drops(port) for port in self._link(link).ports)
        return up, down

    def _empty_queues(self, link: str) -> None:
        """Have the model forget what waited, as the kernel has."""
        if self._model is not None:
            for port in self._link(link).ports:
                self._model.empty(port)

    def _set_faults(self, link: str, **values: int) -> None:
        model = self._needed_model()
        for port in self._link(link).ports:
            model.set_faults(port, **values)

    def _needed_model(self) -> LinkModel:
        if self._model is None:
            raise MachineError("only cut and blackhole do without the link model", BUILD_REMEDY)
        return self._model

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


def _lacking(wanted: routes.Tables, netlink: Netlink) -> routes.Tables:
    """What a node's tables have not: a port that only lost its carrier has kept its routes."""
    return routes.Tables(
        wanted.routes - set(routes.read_routes(netlink)),
        wanted.neighbours - set(routes.read_neighbours(netlink)),
        frozenset(),
    )
