"""Each host's part in a run: its queue pairs and their EVs, from the scenario."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from mmap import mmap
from pathlib import Path

from testbed.host.workloads.programs import Mailbox, Meeting
from testbed.model.ecmp import Move, outages_of
from testbed.model.fabric.addressing import links_of_path, nic_address
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Link, Node
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.transport import HashedPath
from testbed.model.units import NS_PER_S
from testbed.model.workload import Collective, Graphed
from testbed.mrc import EvEntry, PortAttributes
from testbed.mrc.constants import FIRST_QPN

ENDPOINT_ROUNDS_PER_RTT = 40
"""Rounds of an emulated host per base RTT, at most: on a small machine each wake-up is costly."""


def rtt_timeout_s(topology: Topology) -> float:
    """How long an emulated packet may take to be acknowledged on an idle fabric, in s."""
    return max(10.0, 4 * topology.propagation_rtt_ns / NS_PER_S)


@dataclass(frozen=True, slots=True)
class QpPlan:
    """One queue pair of a host.

    Attributes:
        peer: the host at the other end.
        lane: the index of the queue pair among those between the two hosts.
        qpn: the queue pair number of this end.
        peer_qpn: the queue pair number of the other end.
        sends: the number of the flow that this end sends; None if it only receives.
        receives: the number of the flow that this end receives; None if it only sends.
        evs: the EVs from this host to the peer.
        moves: the changes of its path by the fabric's routing, if the fabric chooses the path.
        job: the number of its job among those of the scenario.
    """

    peer: Node
    lane: int
    qpn: int
    peer_qpn: int
    sends: int | None
    receives: int | None
    evs: tuple[EvChoice, ...]
    moves: tuple[Move, ...]
    job: int = 0


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """One host's part in a run.

    Attributes:
        scenario: what is run; its seed chooses content and the order of EVs.
        host: the host.
        qps: its queue pairs.
        raw_directory: the directory of the records while the run lasts.
        serialised: whether a link forwards a packet when its last bit has left, as real links do.
            The kernel's forward it with its first bit, on an idle link.
        sealed: whether data packets have an iCRC (see `testbed.mrc.wire.kinds.WireOptions`), and
            their payloads are copied into the receiver's memory.
        meetings: where the NICs of its node meet, by the numbers of its jobs.
    """

    scenario: Scenario
    host: Node
    qps: tuple[QpPlan, ...]
    raw_directory: Path
    serialised: bool
    sealed: bool
    meetings: Mapping[int, Meeting | Mailbox] = field(default_factory=dict)

    @property
    def mailboxes(self) -> list[Mailbox]:
        """Those of its jobs whose NICs pass messages to others of the node."""
        return [each for each in self.meetings.values() if isinstance(each, Mailbox)]


def plan_endpoints(
    scenario: Scenario, raw_directory: Path, *, serialised: bool = False, sealed: bool = True
) -> dict[Node, EndpointPlan]:
    """Plan both ends of every queue pair of a scenario; returns the plan of each host with a part.

    The other arguments are fields of `EndpointPlan`.
    """
    topology, transport = scenario.topology, scenario.transport
    numbers: dict[tuple[Node, Node, int], int] = {}
    pairs: dict[tuple[Node, Node, int], int] = {}  # each queue pair once, with its job
    for flow in flows_of(scenario):
        numbers[flow.src, flow.dst, flow.lane] = flow.number
        pairs.setdefault((min(flow.src, flow.dst), max(flow.src, flow.dst), flow.lane), flow.job)
    qpns: dict[Node, count[int]] = defaultdict(lambda: count(FIRST_QPN))
    qps: dict[Node, list[QpPlan]] = defaultdict(list)
    for (a, b, lane), job in pairs.items():
        a_qpn, b_qpn = next(qpns[a]), next(qpns[b])
        for host, peer, host_qpn, peer_qpn in ((a, b, a_qpn, b_qpn), (b, a, b_qpn, a_qpn)):
            qps[host].append(
                QpPlan(
                    peer=peer,
                    lane=lane,
                    qpn=host_qpn,
                    peer_qpn=peer_qpn,
                    sends=numbers.get((host, peer, lane)),
                    receives=numbers.get((peer, host, lane)),
                    evs=transport.choose_evs(topology, host, peer, lane=lane, seed=scenario.seed),
                    moves=_moves(scenario, host, peer, lane),
                    job=job,
                )
            )
    for workload in scenario.workloads.values():
        if isinstance(workload, Graphed):  # whose hosts may compute without sending
            for name in filter(workload.graph.of_host, workload.graph.hosts):
                qps.setdefault(topology.host_named(name), [])
    meetings: dict[Node, dict[int, Meeting | Mailbox]] = defaultdict(dict)
    for host, number, meeting in _meetings(scenario):
        meetings[host][number] = meeting
    how = raw_directory, serialised, sealed
    return {
        host: EndpointPlan(scenario, host, tuple(host_qps), *how, meetings[host])
        for host, host_qps in qps.items()
    }


def _meetings(scenario: Scenario) -> Iterator[tuple[Node, int, Meeting | Mailbox]]:
    """Where the NICs of each node meet, with a NIC and the number of a job.

    Their processes are forked from this one, and share the memory.
    """
    topology = scenario.topology
    look_ns = topology.propagation_rtt_ns // ENDPOINT_ROUNDS_PER_RTT
    for number, job in enumerate(scenario.job_list):
        if isinstance(job.workload, Graphed):
            for name, mailbox in _mailboxes(job.workload.graph.passed(), look_ns):
                yield topology.host_named(name), number, mailbox
        rails = job.workload.rails(topology) if isinstance(job.workload, Collective) else ()
        if len(rails) < 2:  # noqa: PLR2004 - a NIC alone waits for nobody
            continue
        rounds = memoryview(mmap(-1, 8 * len(rails) * len(rails[0]))).cast("q")
        for node, nics in enumerate(zip(*rails, strict=True)):
            of_node = rounds[node * len(nics) : (node + 1) * len(nics)]
            for nic, name in enumerate(nics):
                yield topology.host_named(name), number, Meeting(of_node, nic, look_ns)


def _mailboxes(
    passed: Mapping[tuple[str, str], int], look_ns: int
) -> Iterator[tuple[str, Mailbox]]:
    """The mailbox of each host, given how many messages each passes to each other."""
    memory = memoryview(mmap(-1, 8 * max(sum(passed.values()), 1))).cast("q")
    sends: dict[str, dict[str, memoryview]] = defaultdict(dict)
    receives: dict[str, list[memoryview]] = defaultdict(list)
    for (host, peer), messages in passed.items():
        sends[host][peer], memory = memory[:messages], memory[messages:]
        receives[peer].append(sends[host][peer])
    for host in sends | receives:
        yield host, Mailbox(sends[host], receives[host], look_ns)


def _moves(scenario: Scenario, host: Node, peer: Node, lane: int) -> tuple[Move, ...]:
    """The paths on which routing puts a queue pair whose path the fabric chooses, after faults."""
    topology, transport = scenario.topology, scenario.transport
    if not isinstance(transport, HashedPath) or transport.convergence is None:
        return ()
    flow = transport.hashed_flow(host, peer, lane=lane, seed=scenario.seed)
    outages = outages_of(scenario.scheduled_faults)
    return flow.moves(topology, outages, round(transport.convergence * topology.dilation))


def links_in_use_by_all(scenario: Scenario) -> tuple[Link, ...]:
    """The T0-T1 links that the active EVs of every flow cross: a fault there affects all flows."""
    topology = scenario.topology

    def crossed(plan: QpPlan, host: Node) -> set[Link]:
        paths = (links_of_path(topology, host, plan.peer, ev.path) for ev in plan.evs if ev.active)
        return {link for links in paths for link in links if link.is_fabric}

    plans = plan_endpoints(scenario, Path())
    crossed_by_flow = [
        crossed(qp, host) for host, plan in plans.items() for qp in plan.qps if qp.sends is not None
    ]
    return tuple(sorted(set.intersection(*crossed_by_flow), key=lambda link: link.name))


# --------------------------------------------------------------------------------------------------
# A host's NIC and EVs in the form that the MRC core expects.


def port_attributes(topology: Topology, host: Node) -> PortAttributes:
    return PortAttributes(
        nic_address(topology, host).packed,
        PAYLOAD_MTU,
        topology.propagation_rtt_ns,
        topology.planes * topology.port_rate_bps,
        topology.dilation,
        trimming=topology.queue.last_hop.trim is not None,
    )


def ev_entries(evs: Iterable[EvChoice]) -> tuple[EvEntry, ...]:
    """The entries of an EV profile; EVs that are known to share a path have the same path key."""
    return tuple(EvEntry(ev.value, ev.path.plane, _path_key(ev), ev.active) for ev in evs)


_KEY_BITS = 32
"""More bits than the key of a path has."""


def _path_key(ev: EvChoice) -> int:
    if ev.hashed:
        return ev.value + 1 << _KEY_BITS
    return ev.path.plane << 16 | (ev.path.t1 or 0)
