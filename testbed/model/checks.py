"""What cannot be said of a single value: whether a scenario's parts fit one another.

`problems` are what makes a scenario impossible, `remarks` what its author may not have meant.
Both name places by key path, such as `timeline[0].at`. Nothing here builds the whole fabric, so
that a fabric of the real size is checked as fast as a small one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from testbed.model.addressing import links_of_path, paths
from testbed.model.errors import Problem
from testbed.model.ev_set import ev_count
from testbed.model.faults import Fault
from testbed.model.scenario import Scenario
from testbed.model.topology import Link, Node, Tier, Topology
from testbed.model.transport import Mrc
from testbed.model.units import show_duration, show_size
from testbed.model.workload import Workload, WriteBw

ROOM_RTTS = 10
"""RTTs before a fault and after its healing in which a run shows what is normal."""

MIN_MESSAGES = 10
"""Completions of a flow below which the stall says little."""

_MAX_NAMES = 20_000
"""Fabrics with more links are not searched for similar names."""

_NODE = re.compile(r"h(0|[1-9]\d{0,8})|p(\d)_(t[01])_(0|[1-9]\d{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something possible that may not be meant.

    Attributes:
        where: the key path.
        what: what it leads to.
    """

    where: str
    what: str

    def __str__(self) -> str:
        """Show it on one line."""
        return f"{self.where}: {self.what}"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A remedy that names the known word most like this one; empty if none is like it."""
    by_lower = {name.lower(): name for name in known}
    similar = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[similar[0]]}?" if similar else ""


# --- names ------------------------------------------------------------------------------------


def node_named(topology: Topology, name: str) -> Node | None:
    """The node of that name, if the fabric has it."""
    match = _NODE.fullmatch(name)
    if match is None:
        return None
    host, plane, tier, index = match.groups()
    if host is not None:
        inside = int(host) < topology.t0_per_plane * topology.hosts_per_t0
        return topology.host(int(host)) if inside else None
    count = topology.t0_per_plane if tier == Tier.T0 else topology.t1_per_plane
    inside = int(plane) < topology.planes and int(index) < count
    return Node(Tier(tier), int(plane), int(index)) if inside else None


def link_named(topology: Topology, name: str) -> Link | None:
    """The link of that name, if the fabric has it."""
    ends = [node_named(topology, end) for end in name.split("--")]
    match ends:
        case [Node(tier=Tier.HOST) as host, Node(tier=Tier.T0) as t0]:
            link = topology.nic_link(host, t0.plane)
        case [Node(tier=Tier.T0) as t0, Node(tier=Tier.T1) as t1]:
            link = topology.fabric_link(t0.plane, t0.index, t1.index)
        case _:
            return None
    return link if link.name == name else None


def unknown_host(topology: Topology, where: str, name: str) -> Problem | None:
    """What is wrong with a host's name, if anything is."""
    node = node_named(topology, name)
    if node is not None and node.tier is Tier.HOST:
        return None
    last = topology.host(topology.t0_per_plane * topology.hosts_per_t0 - 1)
    expected = f"a host of {topology.name}: h0 to {last.name}"
    remedy = "a switch sends no data: name a host below it" if node is not None else ""
    return Problem(where, name, expected, remedy)


def unknown_link(topology: Topology, where: str, name: str) -> Problem | None:
    """What is wrong with a link's name, if anything is."""
    if link_named(topology, name) is not None:
        return None
    fabric = topology.fabric_link(0, 0, 0)
    nic = topology.nic_link(topology.host(0), 0)
    expected = f"a link of {topology.name}, such as {fabric.name} or {nic.name}"
    return Problem(where, name, expected, _link_remedy(topology, name))


def _link_remedy(topology: Topology, name: str) -> str:
    if node_named(topology, name) is not None:
        return f"{name} is a node: name the link, with both its ends"
    turned = "--".join(reversed(re.split(r"--?|>", name)))
    if link_named(topology, turned) is not None:
        return f"the end nearer to the hosts comes first: {turned}"
    many = topology.planes * topology.t0_per_plane * (topology.hosts_per_t0 + topology.t1_per_plane)
    return did_you_mean(name, tuple(topology.links)) if many <= _MAX_NAMES else ""


# --- what is impossible -----------------------------------------------------------------------


def problems(scenario: Scenario) -> tuple[Problem, ...]:
    """Everything that makes a scenario impossible."""
    return (
        *_workload_problems(scenario.topology, scenario.workload),
        *_fault_problems(scenario),
        *_overlap_problems(scenario.timeline),
    )


def _workload_problems(topology: Topology, workload: Workload) -> Iterator[Problem]:
    match workload:
        case WriteBw():
            yield from _pair_problems(topology, workload)


def _pair_problems(topology: Topology, workload: WriteBw) -> Iterator[Problem]:
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
            yield Problem(
                where,
                f"{pair[0]} and {pair[1]} again",
                f"every pair once (the first is {seen[key]})",
                "remove one of the two",
            )
        seen.setdefault(key, where)


def _fault_problems(scenario: Scenario) -> Iterator[Problem]:
    end = scenario.duration
    for i, fault in enumerate(scenario.timeline):
        where = f"timeline[{i}]"
        unknown = unknown_link(scenario.topology, f"{where}.target", fault.target)
        if unknown is not None:
            yield unknown
        if fault.at >= end:
            yield Problem(
                f"{where}.at",
                show_duration(fault.at),
                f"a time within the run, before {show_duration(end)}",
                "an earlier time, or a longer duration",
            )
        elif fault.until > end:
            yield Problem(
                f"{where}.for",
                f"{show_duration(fault.for_)} from {show_duration(fault.at)} on",
                f"healing within the run, by {show_duration(end)}",
                f"{show_duration(end - fault.at)} at most, or a longer duration",
            )


def _overlap_problems(timeline: Sequence[Fault]) -> Iterator[Problem]:
    by_target: dict[str, list[tuple[int, Fault]]] = {}
    for i, fault in enumerate(timeline):
        by_target.setdefault(fault.target, []).append((i, fault))
    for target, faults in by_target.items():
        faults.sort(key=lambda one: one[1].at)
        for (first, earlier), (second, later) in pairwise(faults):
            if later.at <= earlier.until:
                yield Problem(
                    f"timeline[{second}].at",
                    show_duration(later.at),
                    f"a time after timeline[{first}] has healed {target}, at "
                    f"{show_duration(earlier.until)}",
                    "one fault on a link at a time",
                )


# --- what may not be meant --------------------------------------------------------------------


def remarks(scenario: Scenario) -> tuple[Remark, ...]:
    """What the author of a possible scenario may not have meant."""
    flows = _flow_paths(scenario)
    return (
        *_transport_remarks(scenario),
        *_workload_remarks(scenario),
        *_time_remarks(scenario),
        *_target_remarks(scenario, flows),
        *_last_path_remarks(scenario, flows),
    )


def buffer_bytes(scenario: Scenario) -> int:
    """Memory that the messages of all flows take, in bytes: content at both ends, slots, check."""
    return len(scenario.flows) * scenario.longest_bytes * (scenario.workload.depth + 4)


@dataclass(frozen=True, slots=True)
class _Way:
    """One path of a flow: the names of its links, and whether an active EV takes it."""

    links: frozenset[str]
    active: bool


_FlowPaths = dict[tuple[str, str, int], tuple[_Way, ...]]
"""For every flow the distinct paths of its EVs."""


def _flow_paths(scenario: Scenario) -> _FlowPaths:
    topology, transport, seed = scenario.topology, scenario.transport, scenario.seed
    found: _FlowPaths = {}
    for src, dst, lane in scenario.flows:
        a, b = _host(topology, src), _host(topology, dst)
        evs = transport.choose_evs(topology, a, b, lane=lane, seed=seed)
        active = {ev.path for ev in evs if ev.active}
        found[src, dst, lane] = tuple(
            _Way(
                frozenset(link.name for link in links_of_path(topology, a, b, path)),
                path in active,
            )
            for path in dict.fromkeys(ev.path for ev in evs)
        )
    return found


def _host(topology: Topology, name: str) -> Node:
    return topology.host(int(name.removeprefix("h")))


def _transport_remarks(scenario: Scenario) -> Iterator[Remark]:
    match scenario.transport:
        case Mrc():
            yield from _ev_remarks(scenario, scenario.transport)


def _ev_remarks(scenario: Scenario, transport: Mrc) -> Iterator[Remark]:
    topology = scenario.topology
    asked = transport.evs
    if asked is not None and asked != max(asked // topology.planes, 1) * topology.planes:
        used = max(asked // topology.planes, 1) * topology.planes
        yield Remark(
            "transport.evs",
            f"every plane gets the same number: {used} EVs for {topology.planes} planes, "
            f"not {asked}",
        )
    sharing, slow = [], []
    leaving = Counter(src for src, _, _ in scenario.flows)
    for src, dst, _ in scenario.flows:
        a, b = _host(topology, src), _host(topology, dst)
        count, ways = ev_count(topology, a, b, asked), len(paths(topology, a, b))
        if count > ways:
            sharing.append(f"{src} -> {dst} ({count} EVs, {ways} paths)")
        per_plane = count // topology.planes
        active = topology.planes * (per_plane - int(per_plane * transport.backups))
        rate_bps = topology.planes * topology.port_rate_bps / leaving[src]
        rotation_ns = active * topology.wire_bytes * 8 * 10**9 / rate_bps
        if rotation_ns > topology.propagation_rtt_ns:
            slow.append(f"{src} -> {dst} ({active} EVs in {show_duration(rotation_ns)})")
    if sharing:
        yield Remark(
            "transport.evs",
            "EVs that share a path must each notice its failure for themselves, which slows "
            f"detection: {_few(sharing)}",
        )
    if slow:
        yield Remark(
            "transport.evs",
            "a rotation through the active EVs takes longer than a base RTT "
            f"({show_duration(topology.propagation_rtt_ns)}), so that a dead path is noticed "
            f"later: {_few(slow)}",
        )


def _workload_remarks(scenario: Scenario) -> Iterator[Remark]:
    match scenario.workload:
        case WriteBw():
            yield from _message_remarks(scenario, scenario.workload)


def _message_remarks(scenario: Scenario, workload: WriteBw) -> Iterator[Remark]:
    topology = scenario.topology
    rate_bps = topology.planes * topology.port_rate_bps
    one_ns = workload.message_size * 8 * 10**9 / rate_bps
    if one_ns * MIN_MESSAGES > scenario.duration:
        yield Remark(
            "workload.message_size",
            f"{show_size(workload.message_size)} take {show_duration(one_ns)} at full rate: fewer "
            f"than {MIN_MESSAGES} messages complete in {show_duration(scenario.duration)}",
        )
    behind = (workload.depth - 1) * workload.message_size
    bdp_bytes = topology.planes * topology.bdp_bytes
    if behind < bdp_bytes:
        yield Remark(
            "workload.depth",
            f"while one message completes the others hold {show_size(behind)}, less than a host's "
            f"bandwidth-delay product ({show_size(bdp_bytes)}): the workload, not the fabric, "
            "limits goodput",
        )


def _time_remarks(scenario: Scenario) -> Iterator[Remark]:
    room = ROOM_RTTS * scenario.topology.propagation_rtt_ns
    wanted = f"{ROOM_RTTS} RTTs ({show_duration(room)})"
    for i, fault in enumerate(scenario.timeline):
        if fault.at < room:
            yield Remark(
                f"timeline[{i}].at",
                f"leaves less than {wanted} before the fault to see what is normal",
            )
        if scenario.duration - fault.until < room:
            yield Remark(
                f"timeline[{i}].for",
                f"leaves less than {wanted} after healing to see the recovery",
            )


def _target_remarks(scenario: Scenario, flows: _FlowPaths) -> Iterator[Remark]:
    ways = [way for ways in flows.values() for way in ways]
    used = frozenset[str]().union(*(way.links for way in ways))
    active = frozenset[str]().union(*(way.links for way in ways if way.active))
    for i, fault in enumerate(scenario.timeline):
        where = f"timeline[{i}].target"
        if fault.target not in used:
            yield Remark(where, f"no EV of any flow goes over {fault.target}: no effect")
        elif fault.target not in active:
            yield Remark(
                where,
                f"only backup EVs go over {fault.target} with seed {scenario.seed}: no data is "
                "lost, and there is no detection to measure",
            )


def _last_path_remarks(scenario: Scenario, flows: _FlowPaths) -> Iterator[Remark]:
    for i, fault in enumerate(scenario.timeline):
        down = frozenset(
            other.target for other in scenario.timeline if other.at <= fault.at < other.until
        )
        severed = [
            f"{src} -> {dst}"
            for (src, dst, _), ways in flows.items()
            if all(way.links & down for way in ways)
            and any(fault.target in way.links for way in ways)
        ]
        if severed:
            yield Remark(
                f"timeline[{i}]",
                f"takes the last path at {show_duration(fault.at)}; until a link heals nothing "
                f"arrives: {_few(severed)}",
            )


def _few(names: Sequence[str]) -> str:
    shown = 3
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
