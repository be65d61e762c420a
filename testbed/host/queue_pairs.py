"""From a plan to queue pairs: the one place where transports differ for whoever drives them.

Whatever the transport, a queue pair has the methods of `ReliableQp`, and a `Demux` takes the bytes
that arrive to it. The emulation and the simulator need nothing else.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from testbed import mrc
from testbed.baselines import roce
from testbed.endpoint.kernel.opening import open_stream
from testbed.endpoint.kernel.qp import StreamQp
from testbed.host.ev_entries import ev_entries
from testbed.host.plan import EndpointPlan, QpPlan
from testbed.model.fabric.addressing import Path, ev_for_path, nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.transport import Mptcp, Mrc, Roce, Tcp
from testbed.mrc import (
    Arrival,
    CcProfile,
    Completion,
    Datagram,
    Event,
    EvProfile,
    MemoryTable,
    Nscc,
    Outbound,
    QpConfig,
    QueuePair,
    ReceiveCompletion,
)


class Window(Protocol):
    """Congestion control, to an observer."""

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""


class Rtt(Protocol):
    """The estimate of the RTT, to an observer."""

    @property
    def smoothed_ns(self) -> int:
        """Its moving average."""


class ReliableQp(Protocol):
    """What every transport's queue pair can do; `mrc.QueuePair` says it in full. Times in ns."""

    @property
    def congestion(self) -> Window:
        """What moves the window."""

    @property
    def rtt(self) -> Rtt:
        """What measures the RTT."""

    @property
    def flight(self) -> int:
        """Payload bytes in flight."""

    def post_write(
        self,
        wr_id: int,
        payload: memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Queue an RDMA WRITE, with 32 bits of immediate data or without."""

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """What to send now, at most `limit` data packets."""

    def next_deadline(self) -> int | None:
        """When `transmit` is to be called even if nothing arrives."""

    def poll_cq(self) -> Sequence[Completion]:
        """The messages that have completed since the last call."""

    def poll_recv_cq(self) -> Sequence[ReceiveCompletion]:
        """The peer's messages that this end is told of since the last call."""

    def events(self) -> Sequence[Event]:
        """What has happened since the last call."""


class Demux(Protocol):
    """What takes arrivals to their queue pair; `mrc.Demux` says it in full."""

    def add(self, qp: Any) -> None:
        """Let a queue pair of this transport be found."""

    def receive(self, data: memoryview, arrival: Arrival) -> Outbound | None:
        """Take in an inner packet; returns what to answer at once, if any."""

    def refused(self) -> dict[str, int]:
        """How many packets were not acted on, by reason."""


def open_demux(plan: EndpointPlan) -> Demux:
    """Make what a host's arrivals go to."""
    match plan.transport:
        case Mrc():
            return mrc.Demux(nic_address(plan.topology, plan.host).packed, mrc.DscpClasses())
        case Roce():
            return roce.Demux()
        case Tcp() | Mptcp():
            from testbed.endpoint.kernel.stack import KernelStack  # noqa: PLC0415 - needs a kernel

            return KernelStack(plan, plan.transport)


def open_queue_pair(plan: EndpointPlan, qp: QpPlan, memory: MemoryTable) -> ReliableQp:
    """Make a host's end of a queue pair, ready to send and to receive into `memory`."""
    match plan.transport:
        case Mrc():
            return _open_mrc(plan, plan.transport, qp, memory)
        case Roce():
            return _open_roce(plan, plan.transport, qp, memory)
        case Tcp() | Mptcp():
            return open_stream(plan, plan.transport, qp, memory)


def tell_of_port(qp: ReliableQp, plane: int, *, up: bool, now_ns: int) -> None:
    """Tell a queue pair that its own port of a plane lost its carrier, or has it again.

    One that goes where the fabric routes it has nothing to do about it.
    """
    if isinstance(qp, QueuePair):
        change = qp.port_up if up else qp.port_down
        change(plane, now_ns)


def move_queue_pair(qp: ReliableQp, path: Path, now_ns: int) -> None:
    """Put a queue pair on another path, as the fabric's routing would.

    Raises:
        TypeError: its transport chooses paths itself.
    """
    if not isinstance(qp, roce.RoceQp | StreamQp):
        raise TypeError(f"{type(qp)} is not routed by the fabric")
    qp.reroute(ev_for_path(path), path.plane, now_ns)


def _open_mrc(plan: EndpointPlan, parameters: Mrc, qp: QpPlan, memory: MemoryTable) -> QueuePair:
    topology = plan.topology
    config = QpConfig(
        qpn=qp.qpn,
        peer_qpn=qp.peer_qpn,
        local_address=nic_address(topology, plan.host).packed,
        peer_address=nic_address(topology, qp.peer).packed,
        mtu=PAYLOAD_MTU,
        ev_profile=EvProfile(
            entries=ev_entries(qp.evs),
            probe_successes=parameters.probe_successes,
            grey_probe_successes=parameters.grey_probe_successes,
            adaptive=parameters.spray == "adaptive",
        ),
        base_rtt_ns=topology.propagation_rtt_ns,
        cwnd=round(parameters.window * topology.planes * topology.bdp_bytes),
        seed=plan.seed + qp.lane,
        ecn_skip=parameters.ecn_skip,
        go_back=parameters.repair == "go-back",
    )
    nscc = _nscc(plan, qp.peer) if parameters.congestion == "nscc" else None
    return QueuePair(config, memory, nscc)


def _open_roce(
    plan: EndpointPlan, parameters: Roce, qp: QpPlan, memory: MemoryTable
) -> roce.RoceQp:
    topology, (ev,) = plan.topology, qp.evs
    config = roce.RoceConfig(
        qpn=qp.qpn,
        peer_qpn=qp.peer_qpn,
        local_address=nic_address(topology, plan.host).packed,
        peer_address=nic_address(topology, qp.peer).packed,
        ev=ev.value,
        plane=ev.path.plane,
        base_rtt_ns=topology.propagation_rtt_ns,
        mtu=PAYLOAD_MTU,
        dcqcn=roce.DcqcnProfile.derive(
            line_rate_bps=topology.port_rate_bps,
            base_rtt_ns=topology.propagation_rtt_ns,
            dilation=topology.dilation,
        ),
        ack_timeout_ns=round(parameters.ack_timeout * topology.dilation),
        cnp_interval_ns=round(roce.CNP_INTERVAL_NS * topology.dilation),
    )
    return roce.RoceQp(config, memory)


def _nscc(plan: EndpointPlan, peer: Node) -> Nscc:
    topology = plan.topology
    return Nscc(
        CcProfile.derive(
            base_rtt_ns=topology.propagation_rtt_ns,
            path_rtt_ns=topology.path_rtt_ns(plan.host, peer, serialised=plan.serialised),
            rate_bps=topology.planes * topology.port_rate_bps,
            mss=PAYLOAD_MTU,
            trimming=topology.queue.last_hop.trim is not None,
            dilation=topology.dilation,
        )
    )
