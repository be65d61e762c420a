"""How long a fabric takes to be built, verified and taken down, by size and beside other tools."""

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.topo import Topo

from testbed.emulation.fabric import requests
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.netlink import Netlink
from testbed.emulation.fabric.requests import Interface
from testbed.model.fabric.nodes import FIRST_IFINDEX
from testbed.model.fabric.topology import LINK_MTU, Shape, Topology, shape_of
from testbed.model.files.topologies import load_topology
from testbed.sandbox import namespaces
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    in_sandbox,
    no_target,
    not_measured,
)

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


UP_S = 3.0
DOWN_S = 0.5
FASTER_THAN_MININET = 10.0
SLOWER_THAN_BATCHES = 3.0

LARGEST_UP_S = 15.0
LARGEST_DOWN_S = 2.0
LEAST_R2 = 0.98
"""R² of a straight line through time or memory over links; 1 is a perfect line."""

SLOWER_PER_LINK = 1.5
"""Time of a link in the largest fabric over that in the one of a quarter of its links: 1 where
time is linear, 4 where it is quadratic. R² hardly differs between the two."""

SIZES = ((4, 2, 4, 4), (4, 2, 8, 8), (8, 2, 8, 8), (8, 4, 8, 8), (8, 8, 8, 8))
"""Planes, T0s and T1s of a plane, hosts of a T0: 64 to 1024 links, the last with 64 hosts."""

QUARTER = 2
"""The index of the size with a quarter of the largest fabric's links."""


@dataclass(frozen=True, slots=True)
class Built:
    """The time and memory that a fabric took.

    Attributes:
        links: the number of its links.
        up_s: seconds until it forwarded.
        proven_s: seconds until every route was read back and every link had carried a packet.
        down_s: seconds until its last process was gone, and with it all that a next run could meet.
        given_back_s: seconds until the kernel had taken down its namespaces too, which it does
            behind the scenes.
        memory_bytes: of the kernel and of the process that built it.
    """

    links: int
    up_s: float
    proven_s: float
    down_s: float
    given_back_s: float
    memory_bytes: int


def bring_up(setting: Setting) -> list[Measurement]:
    """Build the default fabric, each time in a new sandbox; the same by Mininet and iproute2."""
    topology = load_topology("clos-4plane")
    missing = mininet_missing()

    def measure() -> tuple[Built, float, float]:
        built = _build(topology)
        batches_s = in_sandbox(lambda: batches_up_s(topology))
        mininet_s = 0.0 if missing else in_sandbox(lambda: mininet_up_s(topology))
        return built, batches_s, mininet_s

    built, batches, mininet = zip(*setting.repeat("bring-up", measure), strict=True)
    up = [fabric.up_s for fabric in built]
    faster = at_least("Mininet's / ours", "", _ratios(mininet, up), FASTER_THAN_MININET)
    by_mininet = [
        no_target("its nodes and links by stock Mininet with TCLink", "s", mininet),
        faster,
    ]
    return [
        no_target(f"{topology.name} up and routed", "s", up),
        *_durations(topology.name, built, UP_S, DOWN_S),
        no_target("its bare objects by ip -batch and tc -batch", "s", batches),
        at_most("ours / theirs", "", _ratios(up, batches), SLOWER_THAN_BATCHES),
        *([not_measured(faster, missing)] if missing else by_mininet),
    ]


def _durations(what: str, built: Sequence[Built], up_s: float, down_s: float) -> list[Measurement]:
    """How long fabrics took to be ready, to be taken down, and to be given back."""
    given_back = [fabric.given_back_s for fabric in built]
    return [
        at_most(f"{what} up, verified, swept", "s", [fabric.proven_s for fabric in built], up_s),
        at_most(f"{what} down", "s", [fabric.down_s for fabric in built], down_s),
        no_target(f"{what} given back by the kernel", "s", given_back),
    ]


def _ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    return [numerator / denominator for numerator, denominator in zip(over, under, strict=True)]


def scale(setting: Setting) -> list[Measurement]:
    """Build fabrics of five sizes, up to 64 hosts with 8 ports and 1024 links; draw a picture."""
    sizes = []
    for planes, t0s, t1s, hosts in SIZES:
        topology = Topology(
            name="scale", planes=planes, t0_per_plane=t0s, t1_per_plane=t1s, hosts_per_t0=hosts
        )
        build = partial(_build, topology)
        sizes.append(setting.repeat(f"{len(topology.links)} links", build))
    _draw(sizes, setting.pictures / "scale.png")
    largest = sizes[-1]
    what = f"{largest[0].links} links"
    return [
        *_durations(what, largest, LARGEST_UP_S, LARGEST_DOWN_S),
        no_target(f"{what}, memory", "MB", [fabric.memory_bytes / 1e6 for fabric in largest]),
        at_least("time over links, R² of a line", "", [_r2(sizes, "proven_s")], LEAST_R2),
        per_link(sizes[QUARTER], largest),
        at_least("memory over links, R² of a line", "", [_r2(sizes, "memory_bytes")], LEAST_R2),
    ]


_HERE, _LAST = "here", "last"
_GONE_STEP_S = 0.002


def per_link(smaller: list[Built], larger: list[Built]) -> Measurement:
    """The time of a link in a large fabric over that in a smaller one, for each repeat."""
    name = f"time of a link of {larger[0].links} / of {smaller[0].links}"
    few, many = ([fabric.proven_s / fabric.links for fabric in size] for size in (smaller, larger))
    return at_most(name, "", _ratios(many, few), SLOWER_PER_LINK)


def _build(topology: Topology) -> Built:
    def build() -> list[float]:
        before = _used_bytes()
        began = time.monotonic()
        with Fabric(topology) as fabric:
            up = time.monotonic()
            fabric.verify()
            fabric.sweep()
            done = time.monotonic()
            return [up - began, done - began, done, _used_bytes() - before]

    _settle()
    up_s, proven_s, done, memory = in_sandbox(build)
    gone = time.monotonic()
    given_back = in_sandbox(all_given_back)
    return Built(len(topology.links), up_s, proven_s, gone - done, given_back - done, round(memory))


def all_given_back() -> float:
    """Wait until the kernel has taken down all namespaces that were released before.

    It takes them down in the order of their release (the work queue `netns`,
    net/core/net_namespace.c), so a namespace that is made and
    released now is the last; the end of a veth disappears with it. Needs a sandbox. Returns when
    that was, in seconds of CLOCK_MONOTONIC.
    """
    own = os.open(namespaces.OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
    last = namespaces.create_netns(_LAST)
    with Netlink("sandbox") as netlink:
        here = Interface(_HERE, FIRST_IFINDEX, "02:00:00:00:00:01", own)
        there = Interface(_LAST, FIRST_IFINDEX + 1, "02:00:00:00:00:02", last)
        netlink.send([requests.new_veth(here, there, LINK_MTU)])
    namespaces.unmount(str(namespaces.NETNS_DIR / _LAST))
    os.close(last)
    os.close(own)
    while _HERE in dict(socket.if_nameindex()).values():
        time.sleep(_GONE_STEP_S)
    return time.monotonic()


# --- memory -----------------------------------------------------------------------------------

_SETTLED_BYTES = 1 << 20
_SETTLE_STEP_S = 0.1
_MOST_STEPS = 100


def _used_bytes() -> int:
    """Memory of the kernel's objects, on the whole machine, and of this process."""
    meminfo = dict(
        line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    )
    kernel = sum(int(meminfo[key].removesuffix("kB")) * 1024 for key in ("Slab", "Percpu"))
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return kernel + pages * resource.getpagesize()


def _settle() -> None:
    """Wait until the kernel has freed the memory of the previous fabric."""
    before = _used_bytes()
    for _ in range(_MOST_STEPS):
        time.sleep(_SETTLE_STEP_S)
        now = _used_bytes()
        if abs(now - before) < _SETTLED_BYTES:
            return
        before = now


# --- growth -----------------------------------------------------------------------------------


def _r2(sizes: list[list[Built]], measure: str) -> float:
    """R² of a straight line through the medians of a measure over links."""
    import numpy as np  # noqa: PLC0415 - not before the sandboxes are forked

    links = [built[0].links for built in sizes]
    medians = [median(getattr(fabric, measure) for fabric in built) for built in sizes]
    return float(np.corrcoef(links, medians)[0, 1] ** 2)


def _draw(sizes: list[list[Built]], place: Path) -> None:
    from testbed.results.report.figures import style  # noqa: PLC0415 - takes a second to load

    panels = (
        ("time to build (s)", (("up and routed", "up_s", 1), ("verified, swept", "proven_s", 1))),
        ("memory (MB)", (("kernel and builder", "memory_bytes", 1e-6),)),
    )
    with style.style():
        figure = style.new_figure(2.6)
        for axes, (label, measures) in zip(figure.subplots(1, 2), panels, strict=True):
            for colour, (name, measure, unit) in zip(style.PLANES, measures, strict=False):
                points = [(b.links, getattr(b, measure) * unit) for built in sizes for b in built]
                axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=3, alpha=0.5)
                lines = [
                    (built[0].links, median(getattr(b, measure) for b in built) * unit)
                    for built in sizes
                ]
                axes.plot(*zip(*lines, strict=True), color=colour, label=name)
            axes.set(xlabel="links", ylabel=label, xlim=(0, None), ylim=(0, None))
            axes.legend(loc="upper left")
        figure.savefig(place, dpi=style.PNG_DPI)
