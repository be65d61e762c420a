"""The management network: one IPv4 address for each host, outside the fabric.

Programs meet there before they use RDMA: perftest exchanges the numbers of its queue pairs over
IPv4, and a job's launcher its addresses. It is one bridge in the sandbox, as a data centre has one
out-of-band network: no fault of the fabric touches it, and its packets have no delay.

The hosts' names resolve to these addresses and to those of ordinary traffic in plane 0. The
system's resolver prefers IPv6, so that ping and iperf3 cross the fabric.
"""

from collections.abc import Iterator
from ipaddress import IPv4Interface
from pathlib import Path

from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.netlink import requests
from testbed.emulation.fabric.netlink.requests import Interface
from testbed.emulation.fabric.netlink.socket import Netlink, NodeNamespaces, Request
from testbed.model.fabric.addressing import MANAGEMENT, management_address, ordinary_address
from testbed.model.fabric.nodes import Port
from testbed.model.fabric.topology import Topology
from testbed.sandbox import namespaces

DEVICE = "mgmt"
"""A host's interface, and the bridge."""

_FIRST_IFINDEX = 1 << 21
"""Above the indexes of the fabric and of ordinary traffic."""

_MTU = 1500
_HOSTS = Path("/etc/hosts")


def install(topology: Topology, nodes: NodeNamespaces) -> None:
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
    yield requests.new_bridge(_FIRST_IFINDEX, DEVICE)
    yield requests.set_link(_FIRST_IFINDEX, DEVICE, up=True)
    for number, host in enumerate(topology.hosts):
        port, far = _ends(topology, number)
        here = Interface.of_port(port, nodes[host.name].fd)
        yield requests.new_veth(here, Interface.of_port(far, sandbox), _MTU)
        yield requests.set_link_attribute(far.ifindex, far.name, "IFLA_MASTER", _FIRST_IFINDEX)
        yield requests.set_link(far.ifindex, far.name, up=True)


def _ends(topology: Topology, number: int) -> tuple[Port, Port]:
    """A host's interface, and the bridge's port to it."""
    host, first = topology.host(number), _FIRST_IFINDEX + 1 + 2 * number
    return Port(host, DEVICE, first), Port(host, f"{DEVICE}-{host.name}", first + 1)


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
