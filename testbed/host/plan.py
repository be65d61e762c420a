"""What one endpoint is told before it starts."""

from dataclasses import dataclass
from pathlib import Path

from testbed.model.ecmp import Move
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Transport
from testbed.model.workload import Workload


@dataclass(frozen=True, slots=True)
class QpPlan:
    """One queue pair of a host.

    Attributes:
        peer: the host at the other end.
        lane: which of the queue pairs between the two.
        qpn: this end's queue pair number.
        peer_qpn: the other end's.
        sends: the number of the flow that this end sends, None if it only receives.
        receives: the number of the flow that this end receives, None if it only sends.
        evs: the EVs from here to the peer.
        moves: when the fabric puts it on another path, where the host has no say in it.
    """

    peer: Node
    lane: int
    qpn: int
    peer_qpn: int
    sends: int | None
    receives: int | None
    evs: tuple[EvChoice, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """One host's part in a run.

    Attributes:
        topology: the fabric.
        transport: how it sends.
        workload: what it sends.
        host: which of the fabric's hosts this is.
        qps: its queue pairs.
        longest_bytes: the longest message of any flow.
        seed: of the run: chooses content and the order of EVs.
        raw_directory: where records go while the run lasts.
        serialised: whether a lone packet takes the time of its bits at every hop.
    """

    topology: Topology
    transport: Transport
    workload: Workload
    host: Node
    qps: tuple[QpPlan, ...]
    longest_bytes: int
    seed: int
    raw_directory: Path
    serialised: bool
