"""Whether a fault `busy` fits a run: its transport, its hosts that take part, their paths."""

from collections.abc import Iterator, Sequence

from testbed.model.errors import Problem, few
from testbed.model.fabric.addressing import Path, path_named, paths
from testbed.model.fabric.topology import Topology
from testbed.model.faults.host_kinds import Busy
from testbed.model.faults.kinds import Fault
from testbed.model.faults.targets import expand_groups
from testbed.model.transport import Mrc


def busy_problems(
    topology: Topology,
    transport: str,
    flows: Sequence[tuple[str, str, int]],
    fault: Fault,
    where: str,
) -> Iterator[Problem]:
    """What makes a fault `busy` impossible in a run.

    Args:
        topology: the fabric.
        transport: the kind of the run's transport.
        flows: its flows (`Scenario.flows`).
        fault: the fault, of any kind; its names are right.
        where: its place, for messages.
    """
    if not isinstance(fault, Busy):
        return
    if transport != Mrc().kind:
        expected = f"another fault with {transport}: only MRC's responders say that they are busy"
        yield Problem(f"{where}.kind", fault.kind, expected)
    if not flows:
        expected = "another fault: only the endpoints of a scenario's run can be busy"
        yield Problem(f"{where}.kind", fault.kind, expected, "testbed run SCENARIO --hold")
        return
    ends = sorted({end for src, dst, _ in flows for end in (src, dst)})
    absent = [name for name in expand_groups(topology, fault.target) if name not in ends]
    if absent:
        found = absent[0] if absent[0] in fault.target else ", ".join(fault.target)
        remedy = "" if found == absent[0] else f"name hosts: {few(absent)} take no part"
        yield Problem(f"{where}.target", found, f"a host that takes part: {few(ends)}", remedy)
    elif fault.path is not None:
        yield from _path_problems(topology, flows, fault, fault.path, f"{where}.path")


def _path_problems(
    topology: Topology, flows: Sequence[tuple[str, str, int]], fault: Busy, named: str, where: str
) -> Iterator[Problem]:
    """A path that no flow to the target can take: one of a T0 where all flows cross a T1, or so."""

    def paths_of(*ends: str) -> tuple[Path, ...]:
        src, dst = map(topology.host_named, ends)
        return paths(topology, src, dst)

    targets = expand_groups(topology, fault.target)
    arriving = [(src, dst) for src, dst, _ in flows if dst in targets]
    if arriving and all(path_named(named) not in paths_of(*ends) for ends in arriving):
        src, dst = arriving[0]
        example = paths_of(src, dst)[0].name
        expected = f"a path of a flow to {dst}, such as {example} from {src}"
        yield Problem(where, named, expected, f"testbed paths {topology.name} {src} {dst}")
