"""The choice of the program that a host runs for a workload."""

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.host.workloads.phases import Phase, Phases
from testbed.host.workloads.program import FlowEnd, Program
from testbed.host.workloads.transfers import Transfer, Transfers, WriteBw
from testbed.model import workload as model
from testbed.model.fabric.topology import Topology


def program_of(
    workload: model.Workload,
    topology: Topology,
    host: str,
    sends: Sequence[FlowEnd],
    receives: Sequence[FlowEnd],
) -> Program:
    """The program of a host, with the flows that leave it and those that end at it."""
    match workload:
        case model.WriteBw() | model.Permutation() | model.Incast():
            return WriteBw([end.flow for end in sends], workload.message_size, workload.depth)
        case model.Connections():
            transfers = [
                Transfer(i, row.dst, row.start_ns(topology), row.size)
                for i, row in enumerate(workload.matrix)
                if row.src == host
            ]
            return Transfers(transfers, sends, workload.depth)
        case _:
            hosts = model.members(workload.hosts, topology)
            lanes = 1 + max(end.lane for end in sends)
            return Phases(
                _Member(host, hosts, sends, receives).phases(workload, topology, lanes),
                kind=workload.operation,
                size=workload.sent_bytes(topology, lanes),
                hosts=len(hosts),
                depth=workload.depth,
            )


@dataclass(frozen=True, slots=True)
class _Member:
    """One host's place in the group of a collective.

    Attributes:
        host: the host.
        hosts: all hosts of the group, in the order of the ring.
        sends: the flows from the host.
        receives: the flows to the host.
    """

    host: str
    hosts: Sequence[str]
    sends: Sequence[FlowEnd]
    receives: Sequence[FlowEnd]

    def phases(self, workload: model.Collective, topology: Topology, lanes: int) -> list[Phase]:
        """The phases of one round of a collective or of training."""
        size = workload.longest_bytes(topology, lanes)
        match workload:
            case model.SendRecv():
                return [self._ring(size)]
            case model.AllToAll():
                outgoing = tuple(end.flow for end in self.sends)
                incoming = tuple(end.flow for end in self.receives)
                return [Phase(outgoing, incoming, size)]
            case model.AllReduce():
                return [self._all_reduce(workload.slices, size)]
            case model.Training():
                all_reduce = self._all_reduce(workload.slices, size)
                return [Phase(compute_ns=workload.compute), all_reduce, *self._barrier()]

    def _ring(self, size: int, messages: int = 1, lead: int = 1) -> Phase:
        """Messages to the next host of the ring, from the one before."""
        place = self.hosts.index(self.host)
        following = self.hosts[(place + 1) % len(self.hosts)]
        return Phase(
            _flows(following, self.sends),
            _flows(self.hosts[place - 1], self.receives),
            size,
            messages,
            lead,
        )

    def _all_reduce(self, slices: int, size: int) -> Phase:
        """All-reduce around a ring: each chunk goes around twice, less one hop each time.

        The first time it gathers every host's share of the sum, the second time it brings the sum
        to every host. Each lane is a ring of its own, as a channel of NCCL is.
        """
        return self._ring(size, messages=2 * (len(self.hosts) - 1) * slices, lead=slices)

    def _barrier(self) -> list[Phase]:
        """One byte from every host to the first; when it has all, one byte back to each."""
        first, *others = self.hosts
        if self.host != first:
            return [Phase(_flows(first, self.sends)[:1], _flows(first, self.receives)[:1], size=1)]
        incoming = tuple(_flows(peer, self.receives)[0] for peer in others)
        outgoing = tuple(_flows(peer, self.sends)[0] for peer in others)
        return [Phase((), incoming, size=1), Phase(outgoing, (), size=1)]


def _flows(peer: str, ends: Sequence[FlowEnd]) -> tuple[int, ...]:
    """The flows to or from a peer, lane by lane."""
    return tuple(end.flow for end in sorted(ends, key=lambda end: end.lane) if end.peer == peer)
