"""Between the kernel's stack and the fabric: the connection and the plane of every packet."""

from collections import Counter
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

from testbed.endpoint.kernel.opening import SEND_BUFFER_BDP, open_stream, port_of
from testbed.endpoint.kernel.qp import StreamQp
from testbed.endpoint.kernel.segment import ECN_CE, marked, parse
from testbed.endpoint.kernel.tun import Tun
from testbed.fabric.netlink.generic import GenericNetlink
from testbed.fabric.netlink.socket import Netlink
from testbed.host.plan import EndpointPlan
from testbed.host.queue_pairs import Stack
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.transport import Mptcp, Tcp
from testbed.mrc import Arrival

_ECN_SYSCTL = Path("/proc/sys/net/ipv4/tcp_ecn")
_SEND_BUFFER_SYSCTL = Path("/proc/sys/net/ipv4/tcp_wmem")
_REFUSALS = ("not_tcp", "unknown_connection")


def kernel_stack(plan: EndpointPlan, transport: Tcp | Mptcp) -> Stack:
    """The stack of the kernel's TCP or Multipath TCP, for a process in the host's namespace.

    Raises:
        NetlinkError: the kernel refused, such as one without MPTCP.
        OSError: there are no TUN devices here.
    """
    return Stack(KernelStack(plan, transport), partial(open_stream, plan, transport))


class KernelStack:
    """The TUN devices of a host and the connections over them; as `mrc.Demux` it takes arrivals.

    The process must be in the host's network namespace: its addresses, routes and what else it
    sets there end with it.
    """

    def __init__(self, plan: EndpointPlan, transport: Tcp | Mptcp) -> None:
        """Bring the devices up.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
            OSError: there are no TUN devices here.
        """
        topology, host = plan.topology, plan.host
        planes = range(topology.planes)
        self._by_peer: dict[tuple[bytes, int], StreamQp] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REFUSALS, 0))
        self._plane_of = {ordinary_address(topology, host, plane).packed: plane for plane in planes}
        self._peers = {
            qp.peer: tuple(ordinary_address(topology, qp.peer, plane) for plane in planes)
            for qp in plan.qps
        }
        self._tuns = tuple(Tun(topology, plane) for plane in planes)
        self._plans = {qp.qpn: qp for qp in plan.qps}
        self._host = host
        floor_ns = None
        if transport.rto_min is not None:
            floor_ns = round(transport.rto_min * topology.dilation)
        with Netlink(host.name) as netlink:
            for tun in self._tuns:
                own = ordinary_address(topology, host, tun.plane)
                peers = (addresses[tun.plane] for addresses in self._peers.values())
                netlink.send(tun.requests(own, peers, floor_ns))
        _let_send_buffers_grow(SEND_BUFFER_BDP * topology.planes * topology.bdp_bytes)
        if transport.ecn:
            _ECN_SYSCTL.write_text("1")
        if isinstance(transport, Mptcp):
            called = any(qp.peer < host for qp in plan.qps)  # who calls opens the subflows
            others = planes[1:] if called else ()
            self._announce([ordinary_address(topology, host, plane) for plane in others])

    def _announce(self, addresses: list[IPv6Address]) -> None:
        with GenericNetlink(self._host.name) as generic:
            generic.announce_to_mptcp_peers(addresses)

    def add(self, qp: StreamQp) -> None:
        """Take packets to and from a connection."""
        plan = self._plans[qp.config.qpn]
        for address in self._peers[plan.peer]:
            self._by_peer[address.packed, port_of(self._host, plan)] = qp
        qp.attach(self.collect)

    def collect(self, now_ns: int) -> None:
        """Hand what the kernel has sent to the connections that it belongs to."""
        for tun in self._tuns:
            for packet in tun.read():
                segment = parse(packet)
                if segment is None:
                    continue  # neighbour discovery and the like: no such thing on these links
                qp = self._find(segment.dst, segment.src_port, segment.dst_port)
                if qp is not None:
                    qp.sent(packet, segment, tun.plane, now_ns)

    def receive(self, data: memoryview, arrival: Arrival) -> None:
        """Hand an arrival to the kernel, and have its connection read what that released."""
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

    def _find(self, peer: bytes, own_port: int, peer_port: int) -> StreamQp | None:
        """The connection between two ports: one of them is where calls are taken."""
        return self._by_peer.get((peer, peer_port)) or self._by_peer.get((peer, own_port))


def _let_send_buffers_grow(size: int) -> None:
    least, first, most = map(int, _SEND_BUFFER_SYSCTL.read_text().split())
    _SEND_BUFFER_SYSCTL.write_text(f"{least} {first} {max(most, size)}")
