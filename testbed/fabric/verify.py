"""Read the fabric back from the kernel and compare it with the model."""

import struct
import time
from collections.abc import Callable
from socket import AF_UNSPEC

from pyroute2.netlink.rtnl import RTM_GETLINK

from testbed.fabric import routes
from testbed.fabric.layout import Layout
from testbed.fabric.netlink.messages import RTEXT_FILTER_SKIP_STATS, LinkMessage
from testbed.fabric.netlink.socket import Netlink, attributes
from testbed.model.errors import RunFailedError
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import LINK_MTU

IFLA_OPERSTATE = 16
IF_OPER_UP = 6
_LINK_MESSAGE = struct.Struct("=16x4xi8x")  # header, family and type, ifindex, flags and change

UP_TIMEOUT_NS = 1_000_000_000
"""How long ports may take to come up; the kernel does it behind the caller's back."""


def wait_until_up(layout: Layout, netlink: Callable[[Node], Netlink]) -> None:
    """Wait until every port forwards: a port drops what it is given before, and says nothing.

    Raises:
        RunFailedError: some did not come up within a second; names them.
    """
    deadline = time.monotonic_ns() + UP_TIMEOUT_NS
    for node in layout.topology.nodes.values():
        waiting = {near.ifindex for near, _, _ in layout.topology.adjacency[node]}
        while waiting := waiting - _up(netlink(node)):
            if time.monotonic_ns() > deadline:
                names = ", ".join(map(layout.device_name, sorted(waiting)))
                raise RunFailedError(f"no carrier within 1 s: {names} of {node.name}")
            time.sleep(0.001)


def _up(netlink: Netlink) -> set[int]:
    """Indexes of the interfaces that are up and have carrier; undecoded, as there are many."""
    found = set()
    for data, start, end in netlink.dump_raw(_all_links(), RTM_GETLINK):
        (ifindex,) = _LINK_MESSAGE.unpack_from(data, start)
        for kind, first, _ in attributes(data, start + _LINK_MESSAGE.size, end):
            if kind == IFLA_OPERSTATE and data[first] == IF_OPER_UP:
                found.add(ifindex)
    return found


def verify(layout: Layout, netlink: Callable[[Node], Netlink]) -> None:
    """Compare every port, route, neighbour and address with the model.

    Args:
        layout: what was to be built.
        netlink: gives a socket in a node's namespace.

    Raises:
        RunFailedError: something is missing, wrong or too much; every difference is named.
    """
    deadline = time.monotonic_ns() + UP_TIMEOUT_NS
    differences = [
        f"{node.name}: {line}"
        for node in layout.topology.nodes.values()
        for line in _port_differences(layout, node, netlink(node), deadline)
        + _table_differences(layout, node, netlink(node))
    ]
    if differences:
        listed = "\n  ".join(differences)
        raise RunFailedError(
            f"the fabric is not as the model says (- missing, + found):\n  {listed}"
        )


def _table_differences(layout: Layout, node: Node, netlink: Netlink) -> list[str]:
    expected, found = routes.expected(layout, node), routes.read(netlink)
    if expected == found:
        return []
    wanted, there = expected.lines(layout.device_name), found.lines(layout.device_name)
    missing = [f"- {line}" for line in wanted if line not in there]
    return missing + [f"+ {line}" for line in there if line not in wanted]


def _port_differences(layout: Layout, node: Node, netlink: Netlink, deadline_ns: int) -> list[str]:
    ports = [near for near, _, _ in layout.topology.adjacency[node]]
    while True:
        found = _read_ports(netlink)
        missing = [line for line in map(_port_line, ports) if line not in found]
        if not missing or time.monotonic_ns() > deadline_ns:
            names = {port.name for port in ports}
            wrong = [line for line in found if line.split()[1] in names]
            return [f"- {line}" for line in missing] + [f"+ {line}" for line in wrong if missing]
        time.sleep(0.001)


def _port_line(port: Port) -> str:
    return f"port {port.name} index {port.ifindex} address {port.mac} mtu {LINK_MTU} state UP"


def _read_ports(netlink: Netlink) -> list[str]:
    return [
        f"port {message.get_attr('IFLA_IFNAME')} index {message['index']}"
        f" address {message.get_attr('IFLA_ADDRESS')} mtu {message.get_attr('IFLA_MTU')}"
        f" state {message.get_attr('IFLA_OPERSTATE')}"
        for message in netlink.dump(_all_links(), RTM_GETLINK)
    ]


def _all_links() -> LinkMessage:
    request = LinkMessage()
    request["family"] = AF_UNSPEC
    request["attrs"] = [("IFLA_EXT_MASK", RTEXT_FILTER_SKIP_STATS)]
    return request
