"""What one endpoint is told before it starts."""

from dataclasses import dataclass
from pathlib import Path

from testbed.model.ev_set import Ev
from testbed.model.topology import Node, Topology


@dataclass(frozen=True, slots=True)
class QpPlan:
    """One queue pair of a host.

    Attributes:
        peer: the host at the other end.
        qpn: this end's queue pair number.
        peer_qpn: the other end's.
        sends: the number of the flow that this end sends, None if it only receives.
        receives: the number of the flow that this end receives, None if it only sends.
        evs: the EVs from here to the peer.
        window_bytes: congestion window, where it is fixed.
        nscc: whether NSCC moves the window instead.
        probe_successes: probes in a row that bring an EV back.
        message_size: bytes of each WRITE of the workload.
        depth: WRITEs outstanding.
        seed: of the run: chooses content and first PSN.
    """

    peer: Node
    qpn: int
    peer_qpn: int
    sends: int | None
    receives: int | None
    evs: tuple[Ev, ...]
    window_bytes: int
    nscc: bool
    probe_successes: int
    message_size: int
    depth: int
    seed: int


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """One host's part in a run.

    Attributes:
        topology: the fabric.
        host: which of its hosts this is.
        qps: its queue pairs.
        raw_directory: where records go while the run lasts.
    """

    topology: Topology
    host: Node
    qps: tuple[QpPlan, ...]
    raw_directory: Path
