"""Propagation delay for ordinary traffic: packets that arrive at a host are held for it.

MRC's endpoints hold the packets that arrive. For the kernel's own stack a process does so: it reads
the packets that reach the hosts from TUN devices, and hands them back when their delay is over.

    block|NIC|DT6/128 dev delay                                packets that arrive, to the process
    block|DT6/128 encap seg6local action End.DT6 table local   packets handed back, to the stack

The process removes the NIC's uSID from the address, as uN does. This distinguishes packets that it
hands back from packets that arrive. Up to the host's port nothing changes: queues, marks, faults,
counters and captures. The delay of a packet depends on how many switches it has passed, which its
outer hop limit shows, and on delays that faults add to the links of its path (slow_links.py).
"""

import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from ipaddress import IPv6Network
from typing import NoReturn

from testbed.emulation.fabric import routes
from testbed.emulation.fabric.interfaces import (
    DROPPED_IN_SENDING,
    open_tun,
    read_counters,
    write_sysctl,
)
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.link_model.link_control import SlowLinks
from testbed.emulation.fabric.netlink import requests
from testbed.emulation.fabric.netlink.socket import NodeNamespace, NodeNamespaces
from testbed.emulation.fabric.routes import Route
from testbed.model.closeable import Closeable
from testbed.model.fabric.addressing import delivery_sid, dt6_sid
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import LINK_MTU, Topology
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import HOP_LIMIT_BYTE, IPV6_BYTES
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import NICENESS, until_blocked

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
        """End the process."""
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
