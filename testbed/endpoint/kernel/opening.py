"""From a plan to the ends of connections: who calls whom, where, with which buffers."""

import socket

from testbed.endpoint.kernel.qp import StreamConfig, StreamQp
from testbed.host.plan import EndpointPlan, QpPlan
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.fabric.nodes import Node
from testbed.model.transport import Mptcp, Tcp
from testbed.mrc import MemoryTable

FIRST_PORT = 20_000
"""Connections are taken at this port and those behind it: below the ports that callers get."""

SEND_BUFFER_BDP = 8
"""What a socket's send buffer may grow to, in BDPs of the host, if the kernel's own limit is less.
It grows with the congestion window, so that Multipath TCP gives a subflow two windows ahead or so.
One set large from the start is given away at once, by how fast subflows happen to be then. Ours."""

RECEIVE_BUFFER_BDP = 16
"""Of a socket, in BDPs of the host; half of it is window. It must never limit: at the edge of the
window that subflows share, Multipath TCP's sender goes a segment too far now and then, and the
receiver, which has acknowledged it to the subflow, drops it. Only the connection's own timer, a
second of the kernel's time, brings it again. Ours."""


def open_stream(
    plan: EndpointPlan, transport: Tcp | Mptcp, qp: QpPlan, memory: MemoryTable
) -> StreamQp:
    """Make a host's end of a connection: of a pair, the host with the lower number calls."""
    topology = plan.topology
    plane = qp.evs[0].path.plane  # where Multipath TCP begins
    port = port_of(plan.host, qp)
    calling = plan.host < qp.peer
    listener = ordinary_address(topology, qp.peer if calling else plan.host, plane)
    config = StreamConfig(
        qpn=qp.qpn,
        protocol=protocol_of(transport),
        congestion=transport.congestion,
        listens=None if calling else ("::", port),  # subflows come to the other planes' addresses
        calls=(str(listener), port) if calling else None,
        paths={ev.path.plane: (ev.value, ev.path.plane) for ev in qp.evs},
        receive_buffer_bytes=RECEIVE_BUFFER_BDP * topology.planes * topology.bdp_bytes,
        retry_ns=topology.propagation_rtt_ns,
    )
    return StreamQp(config, memory)


def port_of(host: Node, qp: QpPlan) -> int:
    """The port at which the called end of a connection takes the call."""
    return FIRST_PORT + (qp.peer_qpn if host < qp.peer else qp.qpn)


def protocol_of(transport: Tcp | Mptcp) -> int:
    """The socket's protocol."""
    return socket.IPPROTO_MPTCP if isinstance(transport, Mptcp) else socket.IPPROTO_TCP
