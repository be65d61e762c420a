"""Read the fabric back from the kernel and compare it with the model."""

import struct
import time

from pyroute2.netlink.rtnl import RTM_GETLINK

from testbed.emulation.fabric import routes
from testbed.emulation.fabric.layout import Layout, missing_addresses
from testbed.emulation.fabric.netlink.messages import WITHOUT_COUNTERS, LinkMessage
from testbed.emulation.fabric.netlink.socket import Netlink, NodeNamespaces, attributes
from testbed.model.errors import RunFailedError
from testbed.model.fabric.nodes import Node, Port
from testbed.model.fabric.topology import LINK_MTU
from testbed.model.units import NS_PER_S

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

    Args:
        layout: the fabric as it should be.
        namespaces: the nodes' namespaces.

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
    expected = [_port_line(port) for port in ports]
    while True:
        actual = [line for line in _read_ports(netlink) if line.split()[1] in names]
        differences = _difference(expected, actual)
        if not differences or time.monotonic_ns() > deadline_ns:
            return differences
        time.sleep(UP_POLL_S)


def _port_line(port: Port) -> str:
    return f"port {port.name} index {port.ifindex} address {port.mac} mtu {LINK_MTU} state UP"


def _read_ports(netlink: Netlink) -> list[str]:
    return [
        f"port {message.get_attr('IFLA_IFNAME')} index {message['index']}"
        f" address {message.get_attr('IFLA_ADDRESS')} mtu {message.get_attr('IFLA_MTU')}"
        f" state {message.get_attr('IFLA_OPERSTATE')}"
        for message in netlink.dump(LinkMessage, RTM_GETLINK, attrs=[WITHOUT_COUNTERS])
    ]
