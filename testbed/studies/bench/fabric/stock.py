"""The same nodes and links made by other tools: stock Mininet, and iproute2 with batch files."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from testbed.model.fabric.shape import Shape, shape_of
from testbed.model.fabric.topology import LINK_MTU, Topology

NEEDED_BY_MININET = ("mnexec", "ifconfig", "ethtool")
REMEDY = "apt install --no-install-recommends mininet net-tools ethtool"


def mininet_missing() -> str:
    """Say what stock Mininet lacks on this machine; empty if it can run."""
    missing = [tool for tool in NEEDED_BY_MININET if shutil.which(tool) is None]
    return f"no {', '.join(missing)}: {REMEDY}" if missing else ""


class _StockTopo(Topo):  # type: ignore[misc] # Mininet is untyped
    """Every node as a plain Mininet node, every link with its rate; no routes."""

    def build(self, topology: Topology) -> None:
        for name in topology.nodes:
            self.addHost(name, cls=Node)
        for link in topology.links.values():
            lower, upper = link.ports
            self.addLink(
                lower.node.name,
                upper.node.name,
                bw=topology.rate_bps(link) / 1e6,
                intfName1=lower.name,
                intfName2=upper.name,
                addr1=lower.mac,
                addr2=upper.mac,
            )


def mininet_up_s(topology: Topology) -> float:
    """Seconds that stock Mininet takes to make the nodes and the links. Needs a sandbox."""
    setLogLevel("error")
    Mininet.inited = True  # it would rewrite sysctls of the host otherwise
    start = time.perf_counter()
    net: Any = Mininet(topo=_StockTopo(topology), link=TCLink, controller=None)
    took = time.perf_counter() - start
    net.stop()
    return took


def batches_up_s(topology: Topology) -> float:
    """Seconds that `ip -batch` and `tc -batch` take for the bare objects. Needs a sandbox.

    Namespaces, veths with their indexes and addresses, all queues: in one namespace, as one tc
    works in one only; no routes, no neighbours, no link model.
    """
    objects, queues = "\n".join(_objects(topology)), "\n".join(_queues(topology))
    start = time.perf_counter()
    for command, lines in (("ip", objects), ("tc", queues)):
        subprocess.run(  # noqa: S603 - ours
            [command, "-batch", "-"], input=lines, encoding="utf-8", check=True
        )
    return time.perf_counter() - start


def _objects(topology: Topology) -> Iterator[str]:
    for name in topology.nodes:
        yield f"netns add {name}"
    for link in topology.links.values():
        lower, upper = (
            f"{port.name} index {port.ifindex} address {port.mac} mtu {LINK_MTU}"
            for port in link.ports
        )
        yield f"link add {lower} type veth peer {upper}"
        for port in link.ports:
            yield f"link set {port.name} up"


def _queues(topology: Topology) -> Iterator[str]:
    for link in topology.links.values():
        for port in link.ports:
            yield from _queues_of(port.name, shape_of(topology, link, port))


def _queues_of(port: str, shape: Shape) -> Iterator[str]:
    htb = f"ceil {shape.rate_bps}bit burst {shape.rate_bps // 8000} quantum {LINK_MTU}"
    yield f"qdisc add dev {port} root handle 1: stab linklayer ethernet overhead 0 htb default 20"
    yield f"class add dev {port} parent 1: classid 1:1 htb rate {shape.rate_bps}bit {htb}"
    yield f"class add dev {port} parent 1:1 classid 1:10 htb rate {shape.rate_bps}bit {htb} prio 0"
    yield f"class add dev {port} parent 1:1 classid 1:20 htb rate 8kbit {htb} prio 1"
    for number in (10, 20):
        queue = f"parent 1:{number} handle {number}: bfifo limit {shape.limit_bytes}"
        yield f"qdisc add dev {port} {queue}"
    yield f"qdisc add dev {port} clsact"
