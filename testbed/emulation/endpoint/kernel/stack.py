"""The kernel's TCP and Multipath TCP as a stack: connections, and the way of their packets.

A TUN device for each plane takes packets from the kernel, and hands it those of peers. It sends at
the port's rate, as a NIC does, and queues the rest. So TCP notices a busy port (TCP small queues:
data stays in the socket while packets wait here), and a retransmission does not queue behind a
whole window.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

from testbed.emulation.endpoint.kernel.origins import marked, parse
from testbed.emulation.endpoint.kernel.qp import StreamConfig, StreamQp, protocol_of
from testbed.emulation.fabric.capabilities import MPTCP, require
from testbed.emulation.fabric.interfaces import TUN_DEVICE, TUN_REMEDY, open_tun
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.netlink import requests
from testbed.emulation.fabric.netlink.requests import GenericNetlink
from testbed.emulation.fabric.netlink.socket import Netlink, Request
from testbed.emulation.fabric.ordinary import inner_mtu
from testbed.host.plan import EndpointPlan, QpPlan
from testbed.host.queue_pairs import Stack
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.shape import NIC_QUEUE_BDP, Shape
from testbed.model.fabric.topology import LINK_MTU, Topology
from testbed.model.transport import KernelTransport, Mptcp, Transport
from testbed.mrc import Arrival, Datagram, MemoryTable
from testbed.mrc.constants import ECN_CE
from testbed.sandbox.system_calls import until_blocked

RTAX_RTO_MIN = 13
"""linux/rtnetlink.h. TCP uses this metric only if the route locks it."""

_NS_PER_MS = 1_000_000


class Tun(Closeable):
    """A TUN device in the network namespace that this process is in, gone when it is closed."""

    def __init__(self, topology: Topology, plane: int) -> None:
        """Make the device, down.

        Raises:
            OSError: there are no TUN devices here.
        """
        self.plane = plane
        self._topology = topology
        self._name = f"tun{plane}"
        self._fd = open_tun(self._name)
        self.ifindex = socket.if_nametoindex(self._name)

    def requests(
        self, address: IPv6Address, peers: Iterator[IPv6Address], rto_min_ns: int | None
    ) -> Iterator[Request]:
        """Yield the requests that bring the device up: address, rate, a route to every peer.

        Args:
            address: the host's address in the plane.
            peers: the peers' addresses in the plane.
            rto_min_ns: TCP's minimum retransmission timeout; the kernel's own if None.
        """
        topology = self._topology
        mtu = inner_mtu(topology)
        rate_bps = topology.port_rate_bps * mtu // topology.wire_bytes
        yield requests.set_link_attribute(self.ifindex, self._name, "IFLA_MTU", mtu)
        yield requests.one_packet_at_a_time(self.ifindex, self._name)
        yield from shaping.attach(self.ifindex, Shape(rate_bps, NIC_QUEUE_BDP * topology.bdp_bytes))
        yield requests.set_link(self.ifindex, self._name, up=True)
        yield requests.new_address(address)
        attributes: list[tuple[str, Any]] = [("RTA_PREFSRC", str(address))]
        if rto_min_ns is not None:
            floor_ms = max(round(rto_min_ns / _NS_PER_MS), 1)
            floor = [("RTAX_LOCK", 1 << RTAX_RTO_MIN), ("RTAX_RTO_MIN", floor_ms)]
            attributes.append(("RTA_METRICS", {"attrs": floor}))
        route = requests.route_template(address.max_prefixlen, attributes)
        for peer in peers:
            description = f"{peer} dev {self._name}"
            yield requests.new_route(IPv6Network(peer), self.ifindex, route, description)

    def read(self) -> Iterator[bytes]:
        """The packets that the kernel has sent through it, read without blocking."""
        return until_blocked(partial(os.read, self._fd, LINK_MTU))

    def write(self, packet: bytes | memoryview) -> None:
        """Hand a packet to the kernel's stack, which has processed it when this returns."""
        os.write(self._fd, packet)

    def close(self) -> None:
        """Close the device, which removes it."""
        os.close(self._fd)


FIRST_PORT = 20_000
"""The first port on which hosts listen; all are below the ephemeral ports."""

SEND_BUFFER_BDP = 8
"""The limit of a socket's send buffer in BDPs of the host, if the kernel's own limit is lower. The
buffer grows with the congestion window, so Multipath TCP keeps about two windows of data for each
subflow. A large buffer from the start would be assigned to subflows at once, by how fast they
happen to be at that moment. Ours."""

RECEIVE_BUFFER_BDP = 16
"""A socket's receive buffer in BDPs of the host; half of it is window. It must never limit a flow:
at the edge of the window that subflows share, Multipath TCP's sender sometimes sends one segment
too many, and the receiver drops it after acknowledging it to the subflow. Only the timer of the
connection, a second of the kernel's time, sends it again. Ours."""


_ECN_SYSCTL = Path("/proc/sys/net/ipv4/tcp_ecn")
_ADD_ADDR_TIMEOUT_SYSCTL = Path("/proc/sys/net/mptcp/add_addr_timeout")
_ADD_ADDR_TIMEOUT_S = 1
"""When Multipath TCP announces an address again that the peer has not confirmed. The kernel's 120 s
would leave a flow without the subflows of a plane for the whole run, if an announcement is lost."""
_SEND_BUFFER_SYSCTL = Path("/proc/sys/net/ipv4/tcp_wmem")
_REFUSALS = ("not_tcp", "unknown_connection")


def kernel_stack(plan: EndpointPlan, transport: KernelTransport) -> Stack:
    """The stack of the kernel's TCP or Multipath TCP, for a process in the host's namespace.

    Raises:
        NetlinkError: the kernel refused, such as one without MPTCP.
        OSError: there are no TUN devices here.
    """
    return Stack(KernelStack(plan, transport), partial(_open_stream, plan, transport))


def _open_stream(
    plan: EndpointPlan, transport: KernelTransport, qp: QpPlan, memory: MemoryTable
) -> StreamQp:
    """Make a host's end of a connection; the host with the lower number connects to the other."""
    topology = plan.scenario.topology
    plane = qp.evs[0].path.plane  # where Multipath TCP begins
    port = _port_of(plan.host, qp)
    connecting = plan.host < qp.peer
    listener = ordinary_address(topology, qp.peer if connecting else plan.host, plane)
    config = StreamConfig(
        qpn=qp.qpn,
        protocol=protocol_of(transport),
        congestion=transport.congestion,
        # Subflows come to the other planes' addresses.
        listens_at=None if connecting else ("::", port),
        connects_to=(str(listener), port) if connecting else None,
        paths={ev.path.plane: (ev.value, ev.path.plane) for ev in qp.evs},
        receive_buffer_bytes=RECEIVE_BUFFER_BDP * topology.planes * topology.bdp_bytes,
        retry_ns=topology.propagation_rtt_ns,
    )
    return StreamQp(config, memory)


def _port_of(host: Node, qp: QpPlan) -> int:
    """The port of the listening end of a connection."""
    return FIRST_PORT + (qp.peer_qpn if host < qp.peer else qp.qpn)


class KernelStack:
    """The TUN devices of a host and the connections over them; takes arrivals as `mrc.Demux` does.

    The process must be in the host's network namespace, which holds all that this sets up.
    """

    def __init__(self, plan: EndpointPlan, transport: KernelTransport) -> None:
        """Bring the devices up.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
            OSError: there are no TUN devices here.
        """
        topology, host = plan.scenario.topology, plan.host
        planes = range(topology.planes)
        self._by_peer: dict[tuple[bytes, int], StreamQp] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REFUSALS, 0))
        self._plane_of = {ordinary_address(topology, host, plane).packed: plane for plane in planes}
        self._tuns = tuple(Tun(topology, plane) for plane in planes)
        self._plan = plan
        self._plans = {qp.qpn: qp for qp in plan.qps}
        peers = dict.fromkeys(qp.peer for qp in plan.qps)
        floor_ns = None
        if transport.rto_min is not None:
            floor_ns = round(transport.rto_min * topology.dilation)
        with Netlink(host.name) as netlink:
            for tun in self._tuns:
                address = ordinary_address(topology, host, tun.plane)
                routed = (ordinary_address(topology, peer, tun.plane) for peer in peers)
                netlink.send(tun.requests(address, routed, floor_ns))
        _let_send_buffers_grow(SEND_BUFFER_BDP * topology.planes * topology.bdp_bytes)
        if transport.ecn:
            _ECN_SYSCTL.write_text("1", encoding="utf-8")
        if isinstance(transport, Mptcp):
            _ADD_ADDR_TIMEOUT_SYSCTL.write_text(str(_ADD_ADDR_TIMEOUT_S), encoding="utf-8")
            listening = any(qp.peer < host for qp in plan.qps)  # the other end opens the subflows
            others = planes[1:] if listening else ()
            addresses = [ordinary_address(topology, host, plane) for plane in others]
            with GenericNetlink(host.name) as generic:
                generic.announce_to_mptcp_peers(addresses)

    def add(self, qp: StreamQp) -> None:
        """Take packets to and from a connection."""
        plan, topology = self._plans[qp.config.qpn], self._plan.scenario.topology
        for plane in range(topology.planes):
            address = ordinary_address(topology, plan.peer, plane).packed
            self._by_peer[address, _port_of(self._plan.host, plan)] = qp
        qp.attach(self.collect)

    def collect(self, now_ns: int) -> None:
        """Hand each packet that the kernel has sent to its connection."""
        for tun in self._tuns:
            for packet in tun.read():
                segment = parse(packet)
                if segment is None:
                    continue  # such as neighbour discovery, which these links do not need
                qp = self._find(segment.dst, segment.src_port, segment.dst_port)
                if qp is not None:
                    qp.sent(packet, segment, tun.plane, now_ns)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Process a packet that arrived undamaged, given in its pieces."""
        self.receive(memoryview(datagram.join()), arrival)

    def receive(self, data: memoryview, arrival: Arrival) -> None:
        """Hand an arrival to the kernel, and read what its connection can deliver then."""
        segment = parse(data)
        if segment is None:
            self._dropped["not_tcp"] += 1
            return
        plane = self._plane_of.get(segment.dst)
        qp = self._find(segment.src, segment.dst_port, segment.src_port)
        if plane is None or qp is None:
            self._dropped["unknown_connection"] += 1
            return
        congested = arrival.ecn == ECN_CE and segment.ecn not in (0, ECN_CE)
        self._tuns[plane].write(marked(data) if congested else data)
        qp.arrived(data, segment, plane, arrival)

    def refused(self) -> dict[str, int]:
        """How many packets were not acted on, by reason."""
        return dict(self._dropped)

    def _find(self, peer: bytes, host_port: int, peer_port: int) -> StreamQp | None:
        """The connection between two ports, one of which listens."""
        return self._by_peer.get((peer, peer_port)) or self._by_peer.get((peer, host_port))


def _let_send_buffers_grow(size: int) -> None:
    least, first, most = map(int, _SEND_BUFFER_SYSCTL.read_text(encoding="utf-8").split())
    _SEND_BUFFER_SYSCTL.write_text(f"{least} {first} {max(most, size)}", encoding="utf-8")


# --------------------------------------------------------------------------------------------------
# Whether this kernel supports a scenario's transport.


_ALGORITHMS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def require_kernel_support(transport: Transport) -> None:
    """Check that the kernel supports a transport; only TCP and MPTCP need its support.

    Raises:
        MachineError: it does not; the remedy says what to load or choose.
    """
    if not isinstance(transport, KernelTransport):
        return
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        raise MachineError(f"there is no {TUN_DEVICE}", TUN_REMEDY)
    if isinstance(transport, Mptcp):
        require(MPTCP)
    name = transport.congestion
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            algorithms = _ALGORITHMS.read_text(encoding="ascii")
            raise MachineError(
                f"transport.congestion: this kernel has no {name} ({error.strerror})",
                f"modprobe tcp_{name}, or one that it has: {algorithms.strip()}",
            ) from error
