"""The fabric, built for real: what packets do in it, and what its own checks notice."""

import array
import fcntl
import select
import socket
import struct
import time
from contextlib import suppress
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path as FilePath

import pytest
from pyroute2.netlink.rtnl import RTM_DELNEIGH, RTM_DELROUTE

from testbed.emulation.fabric import requests
from testbed.emulation.fabric.fabric import SYSFS, Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.netlink import (
    SEG6_LOCAL_ACTION_END,
    NeighbourMessage,
    Request,
    RouteMessage,
)
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import LINK_LOCAL, Path, address, carrier_usids, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import spawn
from tests.commands import completed
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import wait_until

from .packets import HEADER, Capture, arrives, encapsulated, in_node, raw_socket, set_blackhole

pytestmark = [pytest.mark.root, pytest.mark.kernel]

IPPROTO_IPV6 = socket.IPPROTO_IPV6
PACKET_OUTGOING = 4
GET_SEGMENTATION = (0x1E, 0x23, 0x2B)
"""ETHTOOL_GTSO, ETHTOOL_GGSO and ETHTOOL_GGRO (linux/ethtool.h)."""
GET_CHECKSUM = 0x16
"""ETHTOOL_GTXCSUM: a packet without its checksum would be dropped behind Open vSwitch."""


@in_sandbox
def test_a_packet_shifts_one_usid_at_every_switch_and_carries_no_srh(tiny: Topology) -> None:
    """On every path: T0, T1, T0, NIC; next header 41 directly; delivered with the NIC's uSID."""
    src, dst = tiny.hosts
    with Fabric(tiny) as fabric:
        fabric.verify()
        captures = {node: Capture(node) for node in tiny.nodes.values()}
        receiver = raw_socket(dst, IPPROTO_IPV6)
        sender = raw_socket(src, socket.IPPROTO_RAW)
        for number, path in enumerate(paths(tiny, src, dst)):
            token = b"token %d" % number
            data, to = encapsulated(tiny, src, dst, path, token)
            sender.sendto(data, (to, 0))
            assert receiver.recv(9000)[HEADER.size :] == token
            assert path.t1 is not None
            senders = (
                src,
                tiny.t0(path.plane, tiny.rack(src)),
                tiny.t1(path.plane, path.t1),
                tiny.t0(path.plane, tiny.rack(dst)),
            )
            left = carrier_usids(tiny, src, dst, path)
            seen = {
                node: HEADER.unpack_from(packet)
                for node, capture in captures.items()
                for packet in capture.sent()
                if packet.endswith(token)
            }
            assert {node: IPv6Address(fields[5]) for node, fields in seen.items()} == {
                node: address(*left[i:]) for i, node in enumerate(senders)
            }
            assert {fields[2] for fields in seen.values()} == {IPPROTO_IPV6}
            assert [seen[node][3] for node in senders] == [64, 63, 62, 61]


@in_sandbox
def test_t0_local_paths_stay_in_the_t0() -> None:
    """Two hosts of one rack reach each other by every plane without a T1."""
    topology = Topology(name="x", planes=2, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=2)
    src, dst = topology.hosts
    with Fabric(topology) as fabric:
        fabric.verify()
        assert len(paths(topology, src, dst)) == 2
        assert all(arrives(topology, src, dst, path) for path in paths(topology, src, dst))


@pytest.mark.parametrize(
    "counts", [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 1), (2, 2, 2, 1), (3, 3, 1, 2), (8, 2, 3, 1)]
)
@in_sandbox
def test_any_count_builds_verifies_and_carries(counts: tuple[int, int, int, int]) -> None:
    """Odd numbers, one of everything, eight planes."""
    planes, t0s, t1s, hosts = counts
    topology = Topology(
        name="x", planes=planes, t0_per_plane=t0s, t1_per_plane=t1s, hosts_per_t0=hosts
    )
    with Fabric(topology) as fabric:
        fabric.verify()
        fabric.sweep()


@in_sandbox
def test_the_default_fabric_builds_verifies_and_carries(four_planes: Topology) -> None:
    """How long it takes is measured by `testbed bench bring-up`."""
    with Fabric(four_planes) as fabric:
        fabric.verify()
        fabric.sweep()


def test_an_idle_fabric_is_silent(tiny: Topology) -> None:
    """The kernel sends nothing of its own: no discovery, no multicast reports."""

    def listen() -> object:
        with Fabric(tiny) as fabric:
            counters = fabric.counters()
            fabric.verify()
            time.sleep(1.5)
            return {name: found.packets for name, found in counters.directions().items()}

    found = run_in_sandbox(listen)
    assert isinstance(found, dict)
    assert set(found.values()) == {0}


def offloads(interface: str, commands: tuple[int, ...]) -> dict[int, int]:
    """Read offloads of an interface of this namespace by the commands that get them: 1 is on."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in commands:
            value = array.array("I", [command, 7])
            request = struct.pack("@16sP16x", interface.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, 0x8946, request)  # SIOCETHTOOL
            found[command] = value[1]
    return found


@in_sandbox
def test_ports_neither_merge_nor_split_packets_and_receive_on_one_cpu(tiny: Topology) -> None:
    """Each port's receive work is pinned to exactly one CPU; one queue each way."""
    masks = []
    with Fabric(tiny):
        for node in tiny.nodes.values():
            for near, _, _ in tiny.adjacency[node]:
                queues = SYSFS / node.name / "class/net" / near.name / "queues"
                assert sorted(q.name for q in queues.iterdir()) == ["rx-0", "tx-0"]
                with in_node(node):
                    found = offloads(near.name, GET_SEGMENTATION)
                assert found == dict.fromkeys(GET_SEGMENTATION, 0)
                masks.append(int((queues / "rx-0/rps_cpus").read_text().replace(",", ""), 16))
    assert {mask.bit_count() for mask in masks} == {1}


# --- what verify notices ----------------------------------------------------------------------


def refused(tiny: Topology, node: Node, *changes: Request) -> str:
    """Build, check, change a node behind the fabric's back, and return what verify says."""

    def build() -> str:
        with Fabric(tiny) as fabric:
            fabric.verify()
            fabric.namespaces[node.name].netlink.send(changes)
            with pytest.raises(RunFailedError) as failure:
                fabric.verify()
            return str(failure.value)

    return run_in_sandbox(build)


def delete_route(destination: IPv6Network) -> Request:
    message = RouteMessage()
    message.update(family=socket.AF_INET6, dst_len=destination.prefixlen, table=254)
    message["attrs"] = [("RTA_DST", str(destination.network_address))]
    message["header"].update(type=RTM_DELROUTE, flags=0)
    message.encode()
    return Request(bytes(message.data), "delete a route")


def test_verify_names_a_missing_route(tiny: Topology) -> None:
    """With its node and its interface."""
    text = refused(tiny, tiny.t0(0, 0), delete_route(IPv6Network("5f00:0:2001::/48")))
    assert "p0_t0_0: - 5f00:0:2001::/48 via fe80::1 dev p0_t0_0-u1" in text


def test_verify_names_a_wrong_route(tiny: Topology) -> None:
    """A route that leads by the wrong port is missing and too much."""
    switch = tiny.t0(0, 0)
    wrong = tiny.adjacency[switch][1][0]
    destination = IPv6Network("5f00:0:2001::/48")
    via_wrong_port = requests.route_template(48, [("RTA_GATEWAY", str(LINK_LOCAL))])
    text = refused(
        tiny,
        switch,
        delete_route(destination),
        requests.new_route(destination, wrong.ifindex, via_wrong_port, "a wrong one"),
    )
    assert "p0_t0_0: - 5f00:0:2001::/48 via fe80::1 dev p0_t0_0-u1" in text
    assert "p0_t0_0: + 5f00:0:2001::/48 via fe80::1 dev p0_t0_0-u0" in text


@pytest.mark.parametrize(
    ("flavours", "counted", "text"),
    [
        (False, True, "action End count dev usid"),
        (True, False, "action End flavors next-csid lblen 32 nflen 16 dev usid"),
    ],
)
def test_verify_detects_a_plain_end_and_a_route_that_does_not_count(
    tiny: Topology, flavours: bool, counted: bool, text: str
) -> None:
    """What pyroute2 would have installed, silently."""
    switch = tiny.t1(0, 1)
    destination = IPv6Network("5f00:0:2001::/48")
    flavour = [
        ("SEG6_LOCAL_FLV_OPERATION", 16),
        ("SEG6_LOCAL_FLV_LCBLOCK_BITS", 32),
        ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", 16),
    ]
    counters = [(f"SEG6_LOCAL_CNT_{counter}", 0) for counter in ("PACKETS", "BYTES", "ERRORS")]
    encap: list[tuple[str, object]] = [("SEG6_LOCAL_ACTION", SEG6_LOCAL_ACTION_END)]
    encap += [("SEG6_LOCAL_FLAVORS", {"attrs": flavour})] if flavours else []
    encap += [("SEG6_LOCAL_COUNTERS", {"attrs": counters})] if counted else []
    found = refused(
        tiny,
        switch,
        delete_route(destination),
        requests.new_route(
            destination,
            Fabric(tiny).layout.sid_device(switch).ifindex,
            requests.route_template(48, [("RTA_ENCAP_TYPE", 7), ("RTA_ENCAP", {"attrs": encap})]),
            "a plain End",
        ),
    )
    assert f"p0_t1_1: + 5f00:0:2001::/48 encap seg6local {text}" in found


def test_verify_names_a_missing_neighbour_a_foreign_address_and_a_port_that_is_down(
    tiny: Topology,
) -> None:
    """One line for each."""
    host = tiny.hosts[0]
    near = tiny.port_of(host, 1)
    message = NeighbourMessage()
    message.update(family=socket.AF_INET6, ifindex=tiny.port_of(host, 0).ifindex)
    message["attrs"] = [("NDA_DST", str(LINK_LOCAL))]
    message["header"].update(type=RTM_DELNEIGH, flags=0)
    message.encode()
    text = refused(
        tiny,
        host,
        Request(bytes(message.data), "delete a neighbour"),
        requests.new_address(IPv6Address("2001:db8::1")),
        requests.set_link(near.ifindex, near.name, up=False),
    )
    assert "h0: - neighbour fe80::1 dev h0-p0" in text
    assert "h0: + address 2001:db8::1" in text
    assert "h0: - port h0-p1" in text
    assert "state DOWN" in text


# --- what the sweep notices -------------------------------------------------------------------


@in_sandbox
def test_the_sweep_names_a_link_direction_that_swallows(tiny: Topology) -> None:
    """A blackhole that carrier does not show."""
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        fabric.sweep()
        set_blackhole(control, "p1_t0_1--p1_t1_0", on=True)
        with pytest.raises(RunFailedError) as failure:
            fabric.sweep()
        text = str(failure.value)
    assert "1 of 8 packets" in text
    assert "link p1_t0_1>p1_t1_0 carried 0 of 1 packets, dropped 1" in text
    assert text.count("\n") == 1


@in_sandbox
def test_the_sweep_names_a_switch_that_does_not_forward(tiny: Topology) -> None:
    """A T1 without its uN route takes packets and sends none."""
    with Fabric(tiny) as fabric:
        gone = delete_route(IPv6Network("5f00:0:2000::/48"))
        fabric.namespaces["p0_t1_0"].netlink.send([gone])
        with pytest.raises(RunFailedError) as failure:
            fabric.sweep()
        text = str(failure.value)
    assert "2 of 8 packets" in text
    assert "the routes of p0_t1_0: p0_t1_0>p0_t0_0 carried 0 of 1" in text


# --- OpenFlow wires ---------------------------------------------------------------------------


@in_sandbox
def test_a_wires_far_ends_are_in_the_sandbox_and_carry_once_patched(tiny: Topology) -> None:
    """Between w0a and w0b lies what patches them; here a few lines that copy frames."""
    link = tiny.fabric_link(0, 0, 1)
    src, dst = tiny.hosts
    path = Path(0, 1)
    with Fabric(tiny, wires=[link.name]) as fabric:
        fabric.verify()
        with pytest.raises(RunFailedError):
            fabric.sweep()
        assert not arrives(tiny, src, dst, path)
        assert arrives(tiny, src, dst, Path(0, 0))
        wanted = dict.fromkeys((*GET_SEGMENTATION, GET_CHECKSUM), 0)
        for port in link.ports:
            with in_node(port.node):
                assert offloads(port.name, tuple(wanted)) == wanted
        ends = []
        for name in ("w0a", "w0b"):
            assert offloads(name, tuple(wanted)) == wanted
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            opened.bind((name, 0))
            ends.append(opened)
        with spawn(lambda _: copy(ends), title="the copier", isolated=False):
            fabric.sweep()
            assert arrives(tiny, src, dst, path)


def copy(ends: list[socket.socket]) -> None:
    """Copy frames between two ports, for ever."""
    other = {ends[0].fileno(): ends[1], ends[1].fileno(): ends[0]}
    poller = select.poll()
    for fd in other:
        poller.register(fd, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            frame, sender = other[other[fd].fileno()].recvfrom(9100)
            if sender[2] != PACKET_OUTGOING:
                other[fd].send(frame)


# --- nothing is left --------------------------------------------------------------------------


def test_nothing_is_left_and_nothing_of_the_host_is_touched(four_planes: Topology) -> None:
    """No interface, named namespace or sysctl of the host."""

    def state() -> tuple[str, list[str], str]:
        links = completed(["ip", "-br", "link"], check=True)
        netns = FilePath("/run/netns")
        named = sorted(p.name for p in netns.iterdir()) if netns.is_dir() else []
        forwarding = FilePath("/proc/sys/net/ipv6/conf/all/forwarding").read_text()
        return links.stdout, named, forwarding

    def build() -> list[str]:
        with Fabric(four_planes) as fabric:
            fabric.verify()
            assert fabric.net["h0"].cmd("echo shell").strip() == "shell"
        return [place.name for place in namespaces.NETNS_DIR.iterdir()]

    before = state()
    assert run_in_sandbox(build) == []
    assert state() == before


def test_killing_the_builder_leaves_nothing(tiny: Topology) -> None:
    """SIGKILL in the middle of a run: the sandbox goes, which alone holds the nodes' namespaces."""

    def build(channel: Channel) -> None:
        with Fabric(tiny):
            channel.send({"namespace": FilePath(namespaces.OWN_NETNS).stat().st_ino})
            time.sleep(60)

    sandbox = spawn(build)
    (message,) = sandbox.receive()
    own = message["namespace"]
    alive = members(own)
    assert alive
    sandbox.kill()
    wait_until(lambda: not alive & members(own), "all processes of the sandbox end")


def members(namespace: int) -> set[int]:
    """The processes that are in a network namespace, told by its inode number."""
    found = set()
    for place in FilePath("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # it has ended meanwhile
            if place.stat().st_ino == namespace:
                found.add(int(place.parts[2]))
    return found
