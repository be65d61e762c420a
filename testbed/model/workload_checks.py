"""Whether a workload fits its fabric: its hosts exist and its flows make sense."""

from collections.abc import Iterator, Sequence

from testbed.model import workload as model
from testbed.model.errors import Problem
from testbed.model.fabric.names import unknown_host
from testbed.model.fabric.topology import Topology

_FEWEST_MEMBERS = 2


def workload_problems(topology: Topology, workload: model.Workload) -> Iterator[Problem]:
    """All that makes a workload impossible on a fabric."""
    match workload:
        case model.WriteBw():
            yield from _pair_problems(topology, workload)
        case model.Incast():
            yield from _incast_problems(topology, workload)
        case model.Connections():
            yield from _matrix_problems(topology, workload)
        case _:
            yield from _member_problems(topology, workload)


def _member_problems(
    topology: Topology, workload: model.Permutation | model.Collective
) -> Iterator[Problem]:
    yield from _named_once(topology, "workload.hosts", workload.hosts or ())
    count = len(model.members(workload.hosts, topology))
    if count < _FEWEST_MEMBERS:
        yield Problem(
            "workload", f"{count} host", "two hosts or more", "use a topology with more hosts"
        )
    elif isinstance(workload, model.Permutation) and (workload.shift or 1) >= count:
        expected = f"1 to {count - 1}, as {count} hosts take part"
        yield Problem("workload.shift", str(workload.shift), expected)


def _named_once(topology: Topology, where: str, names: Sequence[str]) -> Iterator[Problem]:
    for i, name in enumerate(names):
        unknown = unknown_host(topology, f"{where}[{i}]", name)
        if unknown is not None:
            yield unknown
        elif name in names[:i]:
            yield Problem(f"{where}[{i}]", f"{name} a second time", "each host once", "remove one")


def _incast_problems(topology: Topology, workload: model.Incast) -> Iterator[Problem]:
    yield from _named_once(topology, "workload.senders", workload.senders)
    unknown = unknown_host(topology, "workload.target", workload.target)
    if unknown is not None:
        yield unknown
    elif workload.target in workload.senders:
        expected = "a host that is not one of the senders"
        yield Problem("workload.target", workload.target, expected)
    if workload.victim is not None:
        yield from _named_once(topology, "workload.victim", workload.victim)
        src, dst = workload.victim
        if src in workload.senders and dst == workload.target:
            expected = "a flow that is not part of the incast"
            yield Problem("workload.victim", f"{src} to {dst}", expected)


def _matrix_problems(topology: Topology, workload: model.Connections) -> Iterator[Problem]:
    for i, transfer in enumerate(workload.matrix):
        where = f"workload.matrix[{i}]"
        ends = {f"{where}.src": transfer.src, f"{where}.dst": transfer.dst}
        yield from filter(None, (unknown_host(topology, key, name) for key, name in ends.items()))
        if transfer.src == transfer.dst:
            yield Problem(where, f"{transfer.src} to itself", "two different hosts")


def _pair_problems(topology: Topology, workload: model.WriteBw) -> Iterator[Problem]:
    seen: dict[tuple[str, str], str] = {}
    for i, pair in enumerate(workload.pairs):
        where = f"workload.pairs[{i}]"
        unknown = [unknown_host(topology, f"{where}[{end}]", name) for end, name in enumerate(pair)]
        yield from filter(None, unknown)
        if pair[0] == pair[1]:
            yield Problem(where, f"{pair[0]} with itself", "two different hosts")
            continue
        key = (min(pair), max(pair)) if workload.bidirectional else pair
        if key in seen:
            found = f"{pair[0]} and {pair[1]} a second time"
            expected = f"each pair once (the first is {seen[key]})"
            yield Problem(where, found, expected, "remove one of the two")
        seen.setdefault(key, where)
