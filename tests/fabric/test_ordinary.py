"""Ordinary traffic crosses the fabric on chosen paths, and MRC's goes on as before."""

import hashlib
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path as FilePath

import pytest

from testbed.emulation.fabric.capture import PortCapture
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.link_model.link_control import LinkControl, read_sid
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.emulation.fabric.ordinary import (
    OrdinaryTraffic,
    dt6_route,
    encap_route,
    inner_mtu,
)
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import (
    DT6_USID,
    Path,
    address,
    carrier_usids,
    dt6_sid,
    nic_address,
    ordinary_address,
    paths,
)
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from tests.machine import skip_without
from tests.sandbox import in_sandbox
from tests.waiting import WATCHDOG_S

from .packets import HEADER, arrives, in_node

ECHO_REQUEST, ECHO_REPLY = 128, 129
IPPROTO_MPTCP = 262
ECT_0 = 2


@contextmanager
def ordinary_fabric(topology: Topology) -> Iterator[tuple[Fabric, OrdinaryTraffic]]:
    """A fabric that has been verified and carries ordinary traffic."""
    with Fabric(topology) as fabric:
        ordinary = OrdinaryTraffic(topology, fabric.namespaces)
        fabric.verify()
        fabric.sweep()
        ordinary.install()
        yield fabric, ordinary


def ping(src: Node, to: IPv6Address, payload: bytes = b"hello", traffic_class: int = 0) -> bool:
    """Send one echo request from a host and say whether the answer comes."""
    with in_node(src):
        opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    with opened:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DONTFRAG, 1)
        opened.settimeout(1)
        try:
            # The kernel computes the checksum.
            opened.sendto(struct.pack(">BBHHH", ECHO_REQUEST, 0, 0, 7, 1) + payload, (str(to), 0))
            while True:
                answer, sender = opened.recvfrom(9000)
                if answer[0] == ECHO_REPLY:
                    assert IPv6Address(sender[0]) == to
                    return answer[8:] == payload
        except OSError:  # no answer, or no way there
            return False


def stream(
    src: Node, dst: Node, to: IPv6Address, size: int, protocol: int = socket.IPPROTO_TCP
) -> tuple[str, str]:
    """Send bytes over a connection; return the digest of what was sent and what was received."""
    with in_node(dst):
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
        listener.bind(("::", 5000))
        listener.listen()
    with in_node(src):
        caller = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    received = hashlib.sha256()

    def receive() -> None:
        accepted, _ = listener.accept()
        with accepted:
            while data := accepted.recv(1 << 16):
                received.update(data)

    thread = threading.Thread(target=receive)
    thread.start()
    data = bytes(range(256)) * (size // 256)
    with listener, caller:
        caller.settimeout(WATCHDOG_S)
        caller.connect((str(to), 5000))
        caller.sendall(data[:1000])
        time.sleep(0.3)  # subflows come after the first data
        caller.sendall(data[1000:])
        caller.shutdown(socket.SHUT_WR)
        thread.join(WATCHDOG_S)
    return hashlib.sha256(data).hexdigest(), received.hexdigest()


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_ping_takes_every_path_it_is_told_to(four_planes: Topology) -> None:
    """The T1 that was chosen forwards it: one outer header, next header 41, no SRH; others none."""
    src, dst = four_planes.hosts[0], four_planes.hosts[4]
    with ordinary_fabric(four_planes) as (_, ordinary):
        t1s = [
            (four_planes.fabric_link(plane, 1, t1).upper, Path(plane, t1))
            for plane in range(four_planes.planes)
            for t1 in range(four_planes.t1_per_plane)
        ]
        captures = {path: PortCapture(port, 16) for port, path in t1s}
        for path in paths(four_planes, src, dst):
            ordinary.use_path(src, dst, path)
            assert ordinary.path(src, dst, path.plane) == path
            assert ping(src, ordinary_address(four_planes, dst, path.plane))
            seen = {one: list(capture.read()) for one, capture in captures.items()}
            (frame,) = seen.pop(path)
            assert not any(seen.values())
            packet = frame.data[ETHERNET_HEADER:]
            _, size, following, hop_limit, outer_src, outer_dst = HEADER.unpack_from(packet)
            usids = (*carrier_usids(four_planes, src, dst, path)[2:], DT6_USID)
            assert IPv6Address(outer_dst) == address(*usids)
            assert IPv6Address(outer_src) == nic_address(four_planes, src)
            assert (following, hop_limit) == (socket.IPPROTO_IPV6, 62)
            inner = HEADER.unpack_from(packet, HEADER.size)
            assert inner[2] == socket.IPPROTO_ICMPV6
            own = ordinary_address(four_planes, src, path.plane)
            assert IPv6Address(inner[4]) == own
            assert size == HEADER.size + inner[1]


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_every_host_reaches_every_other_by_every_plane_untold() -> None:
    """T0-local ones too, and itself; afterwards the fabric is as silent as before."""
    topology = Topology(name="x", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)
    with ordinary_fabric(topology) as (fabric, _):
        counters = fabric.counters()
        for src in topology.hosts:
            for dst in topology.hosts:
                for plane in range(topology.planes):
                    before = counters.directions()
                    assert ping(src, ordinary_address(topology, dst, plane))
                    after = counters.directions()
                    used = {n for n in after if after[n].packets > before[n].packets}
                    assert bool(used) == (src != dst)
                    planes = {link_of(name).split("--")[1][:2] for name in used}
                    assert planes <= {f"p{plane}"}
        before = counters.directions()
        time.sleep(1)
        assert counters.directions() == before


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_mrcs_packets_arrive_as_before_and_end_dt6_sees_none_of_them(tiny: Topology) -> None:
    """End.DT6 has its own address, one uSID longer than MRC's."""
    src, dst = tiny.hosts
    with ordinary_fabric(tiny) as (fabric, _):
        netlink = fabric.namespaces[dst.name].netlink
        assert all(arrives(tiny, src, dst, path) for path in paths(tiny, src, dst))
        assert read_sid(netlink) == 0
        for plane in range(tiny.planes):
            assert ping(src, ordinary_address(tiny, dst, plane))
        assert read_sid(netlink) == 1
        assert all(arrives(tiny, src, dst, path) for path in paths(tiny, src, dst))


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_packets_are_as_large_as_mrcs_and_keep_their_ecn_field(tiny: Topology) -> None:
    """A full ping fits, one byte more does not; ECT of the inner header stands in the outer."""
    src, dst = tiny.hosts
    full = inner_mtu(tiny) - HEADER.size - 8
    to = ordinary_address(tiny, dst, 1)
    with ordinary_fabric(tiny), PortCapture(tiny.port_of(src, 1)) as capture:
        assert ping(src, to, bytes(full), ECT_0)
        assert not ping(src, to, bytes(full + 1), ECT_0)
        (data,) = (frame.data for frame in capture.read())
    assert len(data) == tiny.wire_bytes
    for header in (ETHERNET_HEADER, ETHERNET_HEADER + HEADER.size):
        first = HEADER.unpack_from(data, header)[0]
        assert first >> 20 & 0b11 == ECT_0


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_tcp_crosses_the_path_in_single_packets(tiny: Topology) -> None:
    """Whole and unharmed, at the rate of the port; nothing larger than MRC's packets is sent."""
    src, dst = tiny.hosts
    size = 1 << 20
    with ordinary_fabric(tiny) as (fabric, ordinary):
        counters = fabric.counters()
        ordinary.use_path(src, dst, Path(1, 0))
        with PortCapture(tiny.port_of(src, 1), 1024) as capture:
            start = time.monotonic()
            sent, received = stream(src, dst, ordinary_address(tiny, dst, 1), size)
            took = time.monotonic() - start
            largest = max(len(frame.data) for frame in capture.read())
        used = {name: direction.bytes for name, direction in counters.directions().items()}
    assert sent == received
    assert took > 0.8 * size * 8 / tiny.port_rate_bps
    assert tiny.wire_bytes - 100 < largest <= tiny.wire_bytes
    assert used["p1_t0_0>p1_t1_0"] > size
    assert used["p1_t0_0>p1_t1_1"] < size / 10
    assert used["h0>p0_t0_0"] < size / 10


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.usefixtures("has_link_model")
@in_sandbox
def test_marks_of_the_fabric_reach_tcp_behind_end_dt6() -> None:
    """End.DT6 does not copy CE to the inner header: the link model marks both."""
    narrow = Topology.model_validate(
        {"name": "x", "planes": 1, "t0_per_plane": 2, "t1_per_plane": 1, "hosts_per_t0": 1}
        | {"fabric_rate": "50 Gbit/s"}
    )
    src, dst = narrow.hosts
    with ordinary_fabric(narrow):
        for host in narrow.hosts:
            with in_node(host):
                write_sysctl("ipv4/tcp_ecn", "1")
        sent, received = stream(src, dst, ordinary_address(narrow, dst, 0), 1 << 20)
        with in_node(dst):
            counted = FilePath("/proc/thread-self/net/snmp6").read_text()
    assert sent == received
    counts = dict(map(str.split, counted.splitlines()))
    assert int(counts["Ip6InCEPkts"]) > 10
    assert int(counts["Ip6InECT0Pkts"]) > 10


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_mptcp_has_a_subflow_in_every_plane(tiny: Topology) -> None:
    """Both planes carry a good part of the bytes, and together they are faster than one."""
    skip_without("MPTCP")
    src, dst = tiny.hosts
    size = 2 << 20
    with ordinary_fabric(tiny) as (fabric, ordinary):
        counters = fabric.counters()
        ordinary.announce_planes(dst)
        ordinary.announce_planes(src)
        to = ordinary_address(tiny, dst, 0)
        sent, received = stream(src, dst, to, size, IPPROTO_MPTCP)
        used = counters.directions()
    assert sent == received
    shares = [used[f"h0>p{plane}_t0_0"].bytes / size for plane in range(2)]
    assert all(share > 0.2 for share in shares), shares
    assert sum(shares) > 1


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_a_cut_link_takes_ordinary_traffic_away_and_brings_it_back(tiny: Topology) -> None:
    """The routes belong to no port, so they need not be written again."""
    src, dst = tiny.hosts
    link = tiny.nic_link(src, 0).name
    with ordinary_fabric(tiny) as (fabric, _):
        control = LinkControl(tiny, fabric.namespaces)
        to = [ordinary_address(tiny, dst, plane) for plane in range(2)]
        found = [ping(src, one) for one in to]
        control.cut(link)
        found += [ping(src, one) for one in to]
        control.restore(link)
        found += [ping(src, one) for one in to]
        assert found == [True, True, False, True, True, True]


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_what_is_not_the_model_s_route_is_noticed(tiny: Topology) -> None:
    """`encap`, which would put a segment routing header on the wire, is not taken for encap.red."""
    src, dst = tiny.hosts
    with ordinary_fabric(tiny) as (_, ordinary):
        route = encap_route(Layout(tiny), src, dst, ordinary.path(src, dst, 0))
        text = route.text(Layout(tiny).device_name)
        changed = text.replace("encap.red", "encap").replace("segs 1 [ ", "segs ")
        words = changed.replace(" ] ", " ").split()
        with in_node(src):
            subprocess.run(["ip", "-6", "route", "change", *words, "proto", "static"], check=True)
        with pytest.raises(RunFailedError, match="h0 has no route to h1 in plane 0"):
            ordinary.path(src, dst, 0)
        assert ordinary.path(src, dst, 1).plane == 1


def test_only_paths_between_the_two_can_be_used(tiny: Topology) -> None:
    """Nothing is sent to the kernel for the others."""
    src, dst = tiny.hosts
    ordinary = OrdinaryTraffic(tiny, NodeNamespaces())
    for path in (Path(0, None), Path(0, 2), Path(2, 0)):
        with pytest.raises(ValueError, match="no path"):
            ordinary.use_path(src, dst, path)
    with pytest.raises(ValueError, match="no path"):
        ordinary.use_path(src, src, Path(0, 0))


def test_the_routes_as_text(tiny: Topology) -> None:
    """As iproute2 shows them."""
    layout = Layout(tiny)
    src, dst = tiny.hosts
    assert encap_route(layout, src, dst, Path(1, 0)).text(layout.device_name) == (
        "fd4d:5243:1::11/128 encap seg6 mode encap.red segs 1 "
        "[ 5f00:0:1200:2200:1201:3200:f006:0 ] dev usid src fd4d:5243::11 mtu 4248"
    )
    assert dt6_route(layout, dst, 1).text(layout.device_name) == (
        f"{dt6_sid(tiny, dst, 1)}/128 encap seg6local action End.DT6 table local count dev usid"
    )
