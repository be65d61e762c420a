"""Whether a timeline fits its scenario: names, times, and faults that get in each other's way.

What overlaps adds up (`impairment`), so that most faults may; only what could not be told apart is
refused: two of one kind on one link at a time. Chance may bring such together, but for losses of
two different paths: a link has room for one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.model.errors import Problem, Remark, did_you_mean, few
from testbed.model.fabric.addressing import Path, directions_of_path, links_of_path, path_named
from testbed.model.fabric.names import direction_named, link_between, node_named, searchable
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, LONGEST_WAIT_NS, Topology
from testbed.model.faults.kinds import (
    CONTROLLER,
    MAX_HAPPENINGS,
    Degrade,
    Delay,
    EvLoss,
    Fault,
    Happening,
    Kill,
    Passing,
    Reboot,
    happenings,
    repetitions,
)
from testbed.model.faults.targets import GROUPS, expand, members
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce, Tcp
from testbed.model.units import show_duration, show_rate, shown_at_least, shown_at_most

ROOM_RTTS = 10
"""RTTs before a fault and after its healing in which a run shows what is normal."""


# --- what is impossible -----------------------------------------------------------------------


def fault_problems(scenario: Scenario) -> Iterator[Problem]:
    """Everything that makes a timeline impossible."""
    wrong = set[int]()
    for i, fault in enumerate(scenario.timeline):
        found = [
            *one_fault_problems(scenario.topology, fault, f"timeline[{i}]"),
            *_time_problems(scenario, fault, f"timeline[{i}]"),
        ]
        yield from found
        if found:
            wrong.add(i)
    count = sum(
        len(fault.begins(scenario.duration))
        for i, fault in enumerate(scenario.timeline)
        if i not in wrong
    )
    if count > MAX_HAPPENINGS:
        yield Problem("timeline", f"{count} faults", f"at most {MAX_HAPPENINGS}, repeated ones too")
    else:
        yield from _overlap_problems(scenario, wrong)


def one_fault_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    """What makes one fault impossible whenever it strikes: its names, and how far it goes."""
    found = [*_target_problems(topology, fault, where)]
    yield from found or _degree_problems(topology, fault, where)


def _target_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    """What is wrong with the names of one fault."""
    unknown = [_unknown_target(topology, fault, where, i) for i in range(len(fault.target))]
    yield from filter(None, unknown)
    if any(unknown):
        return
    known = len(members(topology, fault.target))
    if fault.choose is not None and fault.choose > known:
        yield Problem(
            f"{where}.choose",
            str(fault.choose),
            f"at most {known}, as many as there are",
            "fewer, or a target that stands for more (docs/faults.md)",
        )
    if isinstance(fault, EvLoss):
        path = path_named(fault.path)
        if path is None or path.plane >= topology.planes or (path.t1 or 0) >= topology.t1_per_plane:
            last = Path(topology.planes - 1, topology.t1_per_plane - 1)
            yield Problem(
                f"{where}.path",
                fault.path,
                f"a path of {topology.name}, from {Path(0, 0).name} to {last.name}",
                "testbed paths TOPOLOGY SRC DST names them",
            )


def _unknown_target(topology: Topology, fault: Fault, where: str, i: int) -> Problem | None:
    """What is wrong with one target of a fault, if anything is."""
    name = fault.target[i]
    place = f"{where}.target" if len(fault.target) == 1 else f"{where}.target[{i}]"
    node = node_named(topology, name)
    is_host = node is not None and node.tier is Tier.HOST
    if isinstance(fault, Kill) and name == CONTROLLER:
        return None
    if fault.on_hosts:
        expected = f"a host of {topology.name}, such as h0: {fault.kind} strikes endpoints"
        return None if is_host or name == "hosts" else Problem(place, name, expected)
    if isinstance(fault, Reboot):
        is_switch = (node is not None and not is_host) or name in {"t0", "t1"}
        expected = (
            f"a switch of {topology.name}, such as {topology.t1(0, 0).name}: only one reboots"
        )
        return None if is_switch else Problem(place, name, expected)
    if fault.both_ways and direction_named(topology, name) is not None:
        expected = f"a link, both ways: a {fault.kind} takes carrier from both ends"
        return Problem(place, name, expected, "one direction may be a blackhole")
    if name in GROUPS or expand(topology, name) is not None:
        return None
    return Problem(place, name, _known_targets(topology), _target_remedy(topology, name))


def _known_targets(topology: Topology) -> str:
    fabric = topology.fabric_link(0, 0, 0)
    return (
        f"a link of {topology.name}, such as {fabric.name}, one direction of it "
        f"({fabric.directions[0]}), a switch ({topology.t1(0, 0).name}), a plane (p0), a row of "
        f"ports ({fabric.lower.node.name}-u0..1) or one of {', '.join(GROUPS)}"
    )


def _target_remedy(topology: Topology, name: str) -> str:
    ends = name.replace("--", ">").split(">")
    link = link_between(topology, ends[0], ends[-1]) if len(ends) > 1 else None
    if link is not None:
        return f"the end nearer to the hosts comes first: {link.name}"
    if not searchable(topology):
        return ""
    return did_you_mean(name, (*topology.links, *topology.nodes, *GROUPS))


def _degree_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    """What neither the kernel nor a run could wait for: a link so slow, or so long."""
    wait = show_duration(LONGEST_WAIT_NS)
    if isinstance(fault, Delay) and fault.extra * topology.dilation > LONGEST_WAIT_NS:
        fits = shown_at_most(LONGEST_WAIT_NS / topology.dilation)
        yield Problem(
            f"{where}.extra",
            show_duration(fault.extra),
            f"what is at most {wait} in a fabric slowed down by {topology.dilation:.10g}",
            f"{show_duration(fits)} at most" if fits >= 1 else "a smaller dilation",
        )
    if isinstance(fault, Degrade):
        struck = _links_struck(topology, fault)
        slowest_bps = min(topology.rate_bps(topology.links[name]) for name in struck)
        largest = LINK_MTU + ETHERNET_HEADER
        least = shown_at_least(largest * 8 * 10**9 / LONGEST_WAIT_NS / slowest_bps)
        if fault.factor < least:
            yield Problem(
                f"{where}.factor",
                f"{fault.factor:g}",
                f"what leaves a rate at which a packet of {largest} bytes is sent within {wait}, "
                f"so that HTB can pace it (the link has {show_rate(slowest_bps)})",
                f"{least:.4g} or more" if least < 1 else "a smaller dilation",
            )


def _time_problems(scenario: Scenario, fault: Fault, where: str) -> Iterator[Problem]:
    end = scenario.duration
    begins = fault.begins(end)
    if fault.at >= end:
        yield Problem(
            f"{where}.at",
            show_duration(fault.at),
            f"a time within the run, before {show_duration(end)}",
            "an earlier time, or a longer duration",
        )
    elif not isinstance(fault, Passing):
        return
    elif fault.until > end:
        yield Problem(
            f"{where}.for",
            f"{show_duration(fault.for_)} from {show_duration(fault.at)} on",
            f"healing within the run, by {show_duration(end)}",
            f"{show_duration(end - fault.at)} at most, or a longer duration",
        )
    elif begins[-1] + fault.for_ > end:
        fits = sum(begin + fault.for_ <= end for begin in begins)
        yield Problem(
            f"{where}.times",
            str(fault.times),
            f"as often as it heals within the run, by {show_duration(end)}",
            f"{fits} at most, or a longer duration",
        )


def _overlap_problems(scenario: Scenario, wrong: set[int]) -> Iterator[Problem]:
    """Two of one kind on one place at a time, unless they are drawn at random and add up."""
    held: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for i, fault in enumerate(scenario.timeline):
        if i in wrong or (fault.choose is not None and not isinstance(fault, EvLoss)):
            continue
        for one in repetitions(scenario.topology, fault, scenario.duration, f"{scenario.seed}/{i}"):
            until = scenario.duration if one.ends is None else one.ends
            for place in one.places:
                held.setdefault((one.kind, place), []).append((one.at, until, i))
    told = set[tuple[int, int]]()
    for (kind, place), times in held.items():
        lasting: list[tuple[int, int]] = []
        for at, until, second in sorted(times):
            lasting = [one for one in lasting if one[0] >= at]
            for end, first in lasting:
                add_up = _add_up(scenario.timeline[first], scenario.timeline[second])
                if add_up or (first, second) in told:
                    continue
                told.add((first, second))
                yield Problem(
                    f"timeline[{second}].at",
                    show_duration(at),
                    f"a time after timeline[{first}] is over at {place}, {show_duration(end)}",
                    f"one {kind} of a place at a time; faults of different kinds add up",
                )
            lasting.append((until, second))


def _add_up(one: Fault, other: Fault) -> bool:
    """Whether two of one kind may meet: by chance, and not as losses of two different paths."""
    if isinstance(one, EvLoss) and isinstance(other, EvLoss) and one.path != other.path:
        return False
    return one.choose is not None or other.choose is not None


# --- what may not be meant --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Way:
    """One path of a flow: its links and directions, and whether an active EV takes it."""

    links: frozenset[str]
    directions: frozenset[str]
    active: bool


def fault_remarks(scenario: Scenario) -> Iterator[Remark]:
    """What the author of a possible timeline may not have meant."""
    ways = _flow_ways(scenario) if scenario.timeline else {}
    struck = happenings(scenario.topology, scenario.timeline, scenario.duration, scenario.seed)
    yield from _time_remarks(scenario)
    yield from _target_remarks(scenario, [way for found in ways.values() for way in found])
    if not isinstance(scenario.transport, Roce | Tcp):  # which have but one, and no say in it
        yield from _last_path_remarks(scenario, struck, ways)


_FlowWays = Mapping[tuple[str, str, int], tuple[_Way, ...]]
"""For every flow the distinct paths of its EVs."""


def _flow_ways(scenario: Scenario) -> _FlowWays:
    topology, transport, seed = scenario.topology, scenario.transport, scenario.seed
    found: dict[tuple[str, str, int], tuple[_Way, ...]] = {}
    for src, dst, lane in scenario.flows:
        a, b = (topology.host(int(name.removeprefix("h"))) for name in (src, dst))
        evs = transport.choose_evs(topology, a, b, lane=lane, seed=seed)
        active = {ev.path for ev in evs if ev.active}
        found[src, dst, lane] = tuple(
            _Way(
                frozenset(link.name for link in links_of_path(topology, a, b, path)),
                frozenset(directions_of_path(topology, a, b, path)),
                path in active,
            )
            for path in dict.fromkeys(ev.path for ev in evs)
        )
    return found


def _time_remarks(scenario: Scenario) -> Iterator[Remark]:
    room = ROOM_RTTS * scenario.topology.propagation_rtt_ns
    wanted = f"{ROOM_RTTS} RTTs ({show_duration(room)})"
    for i, fault in enumerate(scenario.timeline):
        if fault.at < room:
            yield Remark(
                f"timeline[{i}].at",
                f"leaves less than {wanted} before the fault to see what is normal",
            )
        if not isinstance(fault, Passing):
            continue
        if scenario.duration - (fault.begins(scenario.duration)[-1] + fault.for_) < room:
            yield Remark(
                f"timeline[{i}].for",
                f"leaves less than {wanted} after healing to see the recovery",
            )


def _target_remarks(scenario: Scenario, ways: Sequence[_Way]) -> Iterator[Remark]:
    if scenario.clustermapper is not None:
        return  # probes see every link
    used = frozenset[str]().union(*(way.links for way in ways))
    active = frozenset[str]().union(*(way.links for way in ways if way.active))
    for i, fault in enumerate(scenario.timeline):
        where, links = f"timeline[{i}].target", _links_struck(scenario.topology, fault)
        name = ", ".join(fault.target)
        if links and not links & used:
            yield Remark(where, f"no EV of any flow goes over {name}: no effect")
        elif links and not links & active:
            yield Remark(
                where,
                f"only backup EVs go over {name} with seed {scenario.seed}: no data is "
                "lost, and there is no detection to measure",
            )


def _links_struck(topology: Topology, fault: Fault) -> frozenset[str]:
    if fault.on_hosts:
        return frozenset()
    names = members(topology, fault.target)
    places = (place for name in names for place in expand(topology, name) or ())
    found = (direction_named(topology, place) for place in places)
    return frozenset(one[0].name for one in found if one is not None)


def _last_path_remarks(
    scenario: Scenario,
    struck: Sequence[Happening],
    ways: _FlowWays,
) -> Iterator[Remark]:
    """Say it of the first time that an entry takes a last path."""
    entry_of = [
        entry
        for entry, fault in enumerate(scenario.timeline)
        for _ in fault.begins(scenario.duration)
    ]
    told = set[int]()
    for one in struck:
        for step in one.steps:
            entry = entry_of[one.index]
            if step.state.passes or entry in told:
                continue
            dead = frozenset(
                place
                for other in struck
                if not other.state_at(step.at).passes
                for place in other.places
            )
            severed = [
                f"{src} -> {dst}"
                for (src, dst, _), found in ways.items()
                if all(way.directions & dead for way in found)
                and any(way.directions & frozenset(one.places) for way in found)
            ]
            if severed:
                told.add(entry)
                yield Remark(
                    f"timeline[{entry}]",
                    f"takes the last path at {show_duration(step.at)}; until a link heals nothing "
                    f"arrives: {few(severed)}",
                )
