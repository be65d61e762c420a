"""From a plan to a queue pair: the one place that the endpoint and the simulator share for it."""

from testbed.endpoint.plan import QpPlan
from testbed.model.addressing import nic_address
from testbed.model.topology import PAYLOAD_MTU, Node, Topology
from testbed.mrc import (
    CcProfile,
    EvEntry,
    EvProfile,
    MemoryTable,
    Nscc,
    QpConfig,
    QueuePair,
)


def open_queue_pair(topology: Topology, host: Node, plan: QpPlan, memory: MemoryTable) -> QueuePair:
    """Make a host's end of a queue pair, ready to send and to receive into `memory`."""
    entries = tuple(
        EvEntry(ev.value, ev.path.plane, ev.path.plane << 16 | (ev.path.t1 or 0), ev.active)
        for ev in plan.evs
    )
    config = QpConfig(
        qpn=plan.qpn,
        peer_qpn=plan.peer_qpn,
        local_address=nic_address(topology, host).packed,
        peer_address=nic_address(topology, plan.peer).packed,
        mtu=PAYLOAD_MTU,
        ev_profile=EvProfile(entries=entries, probe_successes=plan.probe_successes),
        base_rtt_ns=topology.propagation_rtt_ns,
        cwnd=plan.window_bytes,
        seed=plan.seed,
    )
    return QueuePair(config, memory, _nscc(topology) if plan.nscc else None)


def _nscc(topology: Topology) -> Nscc:
    return Nscc(
        CcProfile.derive(
            base_rtt_ns=topology.propagation_rtt_ns,
            rate_bps=topology.planes * topology.port_rate_bps,
            mss=PAYLOAD_MTU,
            trimming=True,
            dilation=topology.dilation,
        )
    )
