"""The addresses to which a node's kernel delivers packets."""

import time
from collections.abc import Collection, Iterator
from ipaddress import IPv6Address
from socket import AF_INET6

from pyroute2.netlink.rtnl import RTM_GETROUTE

from testbed.emulation.fabric.netlink.messages import RouteMessage
from testbed.emulation.fabric.netlink.socket import Netlink

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
