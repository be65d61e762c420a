"""Which program a host runs for a workload."""

from collections.abc import Sequence

from testbed.model import workload as model
from testbed.model.fabric.topology import Topology
from testbed.workloads.phases import Compute, Exchange, Phases
from testbed.workloads.program import End, Program
from testbed.workloads.transfers import Transfer, Transfers
from testbed.workloads.write_bw import WriteBw


def program_of(
    workload: model.Workload,
    topology: Topology,
    host: str,
    sends: Sequence[End],
    receives: Sequence[End],
) -> Program:
    """The program of a host from which the flows `sends` leave and at which `receives` end."""
    match workload:
        case model.WriteBw() | model.Permutation() | model.Incast():
            return WriteBw([end.flow for end in sends], workload.message_size, workload.depth)
        case model.Connections():
            own = [
                Transfer(i, one.dst, round(one.start * topology.dilation), one.size)
                for i, one in enumerate(workload.matrix)
                if one.src == host
            ]
            return Transfers(own, sends, workload.depth)
        case _:
            return _in_step(workload, topology, host, sends, receives)


def _in_step(
    workload: model.Collective,
    topology: Topology,
    host: str,
    sends: Sequence[End],
    receives: Sequence[End],
) -> Phases:
    hosts = model.members(workload.hosts, topology)
    count, place = len(hosts), hosts.index(host)
    lanes = 1 + max(end.lane for end in sends)
    size = workload.longest_bytes(topology, lanes)
    following, before = hosts[(place + 1) % count], hosts[place - 1]
    phases: list[Compute | Exchange]
    match workload:
        case model.SendRecv():
            phases = [Exchange(_to(following, sends), _to(before, receives), size)]
        case model.AllToAll():
            outs = tuple(end.flow for end in sends)
            phases = [Exchange(outs, tuple(end.flow for end in receives), size)]
        case model.AllReduce():
            phases = [_around(following, before, sends, receives, workload.slices, count, size)]
        case model.Training():
            phases = [
                Compute(workload.compute),
                _around(following, before, sends, receives, workload.slices, count, size),
                *_barrier(hosts, host, sends, receives),
            ]
    return Phases(
        phases, kind=_NAMES[workload.kind], size=workload.size, hosts=count, depth=workload.depth
    )


_NAMES = {
    "sendrecv": "sendrecv",
    "alltoall": "alltoall",
    "allreduce": "allreduce",
    "training": "step",
}


def _to(peer: str, ends: Sequence[End]) -> tuple[int, ...]:
    """The flows to or from a peer, lane by lane."""
    return tuple(end.flow for end in sorted(ends, key=lambda end: end.lane) if end.peer == peer)


def _around(
    following: str,
    before: str,
    sends: Sequence[End],
    receives: Sequence[End],
    slices: int,
    hosts: int,
    size: int,
) -> Exchange:
    """All-reduce around a ring: each chunk goes around twice, less one hop each time.

    The first time it gathers every host's share of the sum, the second time it brings the sum to
    every host. Each lane is a ring of its own, as a channel of NCCL is.
    """
    return Exchange(
        _to(following, sends),
        _to(before, receives),
        size,
        messages=2 * (hosts - 1) * slices,
        lead=slices,
    )


def _barrier(
    hosts: Sequence[str], host: str, sends: Sequence[End], receives: Sequence[End]
) -> list[Compute | Exchange]:
    """One byte from everybody to the first host; when it has all, one byte to everybody."""
    first, *others = hosts
    if host != first:
        return [Exchange(_to(first, sends)[:1], _to(first, receives)[:1], size=1)]
    come = tuple(_to(other, receives)[0] for other in others)
    go = tuple(_to(other, sends)[0] for other in others)
    return [Exchange((), come, size=1), Exchange(go, (), size=1)]
