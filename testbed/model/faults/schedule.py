"""From a timeline to scheduled faults: which places have which impairment, and when.

A timeline is what the user writes. Here every repetition of every entry becomes a `ScheduledFault`
with its steps in time. Chance (jitter, targets drawn at random) is drawn here, from the seed. A
target is the name of directions of links:

    p0_t0_0--p0_t1_1   a link, both directions   p0_t0_0>p0_t1_1   one direction of it
    p0_t0_1, p2_t1_0   a switch: all its links   h3                a host: its NIC's links
    p2                 a plane: all its links    n1                a node: the links of all its NICs
    p0_t0_0-d0..3      a transceiver: the links of neighbouring ports of a switch
    ports  links  t0  t1  planes  hosts  nodes   groups: all of a kind, to choose from at random

`target_directions` is the only place that turns a target into links.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random

from testbed.model.fabric.names import direction_named, link_named, node_named
from testbed.model.fabric.nodes import Link, Node, Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.kinds import Fault, OperationStart

CONTROLLER = "controller"
"""The target and place of a fault that strikes the controller itself."""

_PLANE = re.compile(r"p([0-9])", re.ASCII)
_NODE = re.compile(r"n(0|[1-9]\d{0,8})", re.ASCII)
_PORTS = re.compile(r"(p\d_t[01]_\d+)-([ud])(\d{1,3})(?:\.\.(\d{1,3}))?", re.ASCII)


GROUPS: Mapping[str, Callable[[Topology], Iterator[str]]] = {
    "ports": lambda topology: (link.name for link in topology.nic_links()),
    "links": lambda topology: (link.name for link in topology.fabric_links()),
    "t0": lambda topology: (s.name for s in topology.switches if s.tier is Tier.T0),
    "t1": lambda topology: (s.name for s in topology.switches if s.tier is Tier.T1),
    "planes": lambda topology: (f"p{plane}" for plane in range(topology.planes)),
    "hosts": lambda topology: (host.name for host in topology.hosts),
    "nodes": lambda topology: (f"n{node}" for node in range(topology.node_count)),
}
"""Groups by name: NIC links, T0-T1 links, switches of a tier, planes, hosts, nodes."""


def member_count(topology: Topology, name: str) -> int:
    """For how many names a target stands, without listing them: one that is no group, for one."""
    counts = {
        "ports": topology.host_count * topology.planes,
        "links": topology.planes * topology.t0_per_plane * topology.t1_per_plane,
        "t0": topology.planes * topology.t0_per_plane,
        "t1": topology.planes * topology.t1_per_plane,
        "planes": topology.planes,
        "hosts": topology.host_count,
        "nodes": topology.node_count,
    }
    return counts.get(name, 1)


def most_directions(topology: Topology, names: tuple[str, ...], choose: int | None) -> int:
    """An upper bound of the directions of links, or hosts, that targets are, without listing them.

    Args:
        topology: the fabric.
        names: the targets.
        choose: how many of them are drawn; None: all count.
    """
    each = [(member_count(topology, name), _links_of_member(topology, name)) for name in names]
    if choose is not None:
        return 2 * choose * max(links for _, links in each)
    return 2 * sum(count * links for count, links in each)


def _links_of_member(topology: Topology, name: str) -> int:
    """How many links a target is, or each member of a group, at most."""
    t0 = topology.hosts_per_t0 + topology.t1_per_plane
    if name == "planes" or _PLANE.fullmatch(name):
        return topology.t0_per_plane * t0
    if name == "hosts":
        return topology.planes
    if name == "nodes" or _NODE.fullmatch(name):
        return topology.planes * topology.nics_per_node
    if name in GROUPS:
        return {"t0": t0, "t1": topology.t0_per_plane}.get(name, 1)
    node = node_named(topology, name)
    if node is None:
        return t0 if _PORTS.fullmatch(name) else 1
    links = {Tier.HOST: topology.planes, Tier.T0: t0, Tier.T1: topology.t0_per_plane}
    return links[node.tier]


def expand_groups(topology: Topology, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names with every group replaced by its members, each name once."""
    members = (GROUPS[name](topology) if name in GROUPS else (name,) for name in names)
    return tuple(dict.fromkeys(chain.from_iterable(members)))


def nics_named(topology: Topology, name: str) -> tuple[Node, ...] | None:
    """The NICs of the node with this name; None if the fabric has no such node."""
    number = _NODE.fullmatch(name)
    if number is None or int(number[1]) >= topology.node_count:
        return None
    return topology.nics(int(number[1]))


def hosts_meant(topology: Topology, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names with every node replaced by its NICs, for faults that strike endpoints."""
    nics = ((name, nics_named(topology, name)) for name in names)
    hosts = ((name,) if found is None else (nic.name for nic in found) for name, found in nics)
    return tuple(dict.fromkeys(chain.from_iterable(hosts)))


def choose_targets(names: tuple[str, ...], count: int, seed: str) -> tuple[str, ...]:
    """`count` of the names, drawn at random by the seed, in their order."""
    chosen = set(Random(seed).sample(range(len(names)), count))  # noqa: S311 - repeatable chance
    return tuple(name for i, name in enumerate(names) if i in chosen)


def target_directions(topology: Topology, name: str) -> tuple[str, ...] | None:
    """The directions of links that a target stands for; None if the fabric has no such target."""
    if ">" in name:
        return (name,) if direction_named(topology, name) is not None else None
    links = _links(topology, name)
    return None if links is None else tuple(d for link in links for d in link.directions)


def _links(topology: Topology, name: str) -> tuple[Link, ...] | None:
    link, node = link_named(topology, name), node_named(topology, name)
    if link is not None:
        return (link,)
    if node is not None:
        return links_of_node(topology, node)
    nics = nics_named(topology, name)
    if nics is not None:
        return tuple(link for nic in nics for link in links_of_node(topology, nic))
    plane, ports = _PLANE.fullmatch(name), _PORTS.fullmatch(name)
    if plane is not None and int(plane[1]) < topology.planes:
        t0s = (topology.t0(int(plane[1]), i) for i in range(topology.t0_per_plane))
        return tuple(link for t0 in t0s for link in links_of_node(topology, t0))
    return None if ports is None else _neighbours(topology, *ports.groups())


def links_of_node(topology: Topology, node: Node) -> tuple[Link, ...]:
    """Every link of a host or switch; a T0's downlinks come first."""
    match node.tier:
        case Tier.HOST:
            return tuple(topology.nic_link(node, plane) for plane in range(topology.planes))
        case Tier.T1:
            return _downlinks(topology, node)
        case Tier.T0:
            return (*_downlinks(topology, node), *_uplinks(topology, node))


def _downlinks(topology: Topology, switch: Node) -> tuple[Link, ...]:
    if switch.tier is Tier.T1:
        t0s = range(topology.t0_per_plane)
        return tuple(topology.fabric_link(switch.plane, t0, switch.index) for t0 in t0s)
    hosts = topology.hosts_below(switch.index)
    return tuple(topology.nic_link(host, switch.plane) for host in hosts)


def _uplinks(topology: Topology, t0: Node) -> tuple[Link, ...]:
    t1s = range(topology.t1_per_plane)
    return tuple(topology.fabric_link(t0.plane, t0.index, t1) for t1 in t1s)


def _neighbours(
    topology: Topology, switch: str, side: str, first: str, last: str | None
) -> tuple[Link, ...] | None:
    """The links of neighbouring ports: `d0..3` are downlinks, `u0..3` uplinks."""
    node = node_named(topology, switch)
    if node is None or (side == "u" and node.tier is Tier.T1):
        return None
    links = _uplinks(topology, node) if side == "u" else _downlinks(topology, node)
    begin, end = int(first), int(last if last is not None else first)
    return links[begin : end + 1] if begin <= end < len(links) else None


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """From a time on, counted from the fault's origin, the places are in this state."""

    at_ns: int
    state: Impairment = field(compare=False)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One repetition of one entry of a timeline.

    Attributes:
        index: its number among all faults of the run.
        kind: its kind.
        target: the names of what it strikes, joined by commas.
        places: what it strikes: directions of links, or hosts where it strikes endpoints.
        steps: its course in order of time; the last step leaves the places healthy if it heals.
        after: the operation from whose start its times count; None: from the start of the run.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    steps: tuple[Step, ...]
    after: OperationStart | None = None

    @property
    def at_ns(self) -> int:
        """When it begins, from its origin."""
        return self.steps[0].at_ns

    @property
    def heals_at_ns(self) -> int | None:
        """When it heals, from its origin; None if it never does."""
        last = self.steps[-1]
        return last.at_ns if last.state == HEALTHY else None

    def is_healed_by(self, step: Step) -> bool:
        """Whether this step of its course is the one that heals it."""
        return step is self.steps[-1] and step.state == HEALTHY


def scheduled_faults(
    topology: Topology, timeline: Sequence[Fault], duration_ns: int, seed: int
) -> tuple[ScheduledFault, ...]:
    """Every fault of a timeline, entry by entry.

    Args:
        topology: the fabric; the timeline's names must be names of it.
        timeline: the entries.
        duration_ns: of the run; entries repeat within it.
        seed: repeats the choice of targets and the jitter.
    """
    faults: list[ScheduledFault] = []
    for entry, fault in enumerate(timeline):
        faults += repetitions(topology, fault, duration_ns, f"{seed}/{entry}", first=len(faults))
    return tuple(faults)


def repetitions(
    topology: Topology, fault: Fault, duration_ns: int, seed: str, first: int = 0
) -> Iterator[ScheduledFault]:
    """Every repetition of one entry, numbered from `first` on."""
    for i, start_ns in enumerate(fault.start_times_ns(duration_ns)):
        yield schedule_fault(topology, fault, first + i, start_ns, f"{seed}/{i}")


def schedule_fault(
    topology: Topology, fault: Fault, index: int, start_ns: int, seed: str
) -> ScheduledFault:
    """One repetition of an entry, which begins at `start_ns` of the run, or from `after` on."""
    names = expand_groups(topology, fault.target)
    if fault.choose is not None:
        names = choose_targets(names, fault.choose, seed)
    course = fault.course(Random(f"{seed}/course"))  # noqa: S311 - repeatable chance
    steps = [
        Step(start_ns + offset, replace(state, delay_ns=round(state.delay_ns * topology.dilation)))
        for offset, state in course
    ]
    if fault.heals_at_ns is not None:
        steps.append(Step(start_ns + fault.heals_at_ns - fault.at, HEALTHY))
    target = ", ".join(fault.target if fault.choose is None else names)
    places = _places(topology, fault, names)
    return ScheduledFault(index, fault.kind, target, places, tuple(steps), fault.after)


def _places(topology: Topology, fault: Fault, names: tuple[str, ...]) -> tuple[str, ...]:
    if fault.strikes_hosts:
        return hosts_meant(topology, names)
    directions = (place for name in names for place in target_directions(topology, name) or ())
    return tuple(dict.fromkeys(directions))
