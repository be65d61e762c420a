"""Whether a timeline fits its scenario: names, times, and faults that conflict.

Faults that overlap add up (`impairment`), so most of them may. Two faults of one kind on one link
at a time are refused, as nothing would tell them apart. Random targets may still bring them
together, except `ev_loss` of two different paths: a link has room for one path.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from random import Random

from testbed.model.errors import Problem, Remark, did_you_mean, few
from testbed.model.fabric.addressing import Path, directions_of_path, path_named, path_remedy, paths
from testbed.model.fabric.names import (
    direction_named,
    ends_remedy,
    host_remedy,
    link_named,
    link_of,
    node_named,
    searchable,
)
from testbed.model.fabric.nodes import Link, Tier
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, LONGEST_WAIT_NS, Topology
from testbed.model.faults.impairment import HEALTHY
from testbed.model.faults.kinds import (
    Busy,
    Degrade,
    Delay,
    EvLoss,
    Fault,
    Kill,
    Reboot,
    TemporaryFault,
)
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import (
    CONTROLLER,
    GROUPS,
    ScheduledFault,
    Step,
    expand_groups,
    hosts_meant,
    member_count,
    nics_named,
    repetitions,
    target_directions,
)
from testbed.model.flows import Flow, flows_of
from testbed.model.limits import too_many_evs
from testbed.model.scenario import Scenario
from testbed.model.transport import HashedPath, Mrc
from testbed.model.units import (
    NS_PER_S,
    exact_duration,
    show_duration,
    show_rate,
    shown_at_least,
    shown_at_most,
)
from testbed.model.workload import Program

# --------------------------------------------------------------------------------------------------
# Whether a fault `busy` fits a run: its transport, its hosts that take part, their paths.


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
    struck = hosts_meant(topology, expand_groups(topology, fault.target))
    absent = [name for name in struck if name not in ends]
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

    targets = hosts_meant(topology, expand_groups(topology, fault.target))
    arriving = [(src, dst) for src, dst, _ in flows if dst in targets]
    if arriving and all(path_named(named) not in paths_of(*ends) for ends in arriving):
        src, dst = arriving[0]
        example = paths_of(src, dst)[0].name
        expected = f"a path of a flow to {dst}, such as {example} from {src}"
        yield Problem(where, named, expected, f"testbed paths {topology.name} {src} {dst}")


MAX_MEMBERS = 100_000
"""Most names for which the groups of a target may stand."""

EMULATED_ONLY = "testbed run, on the emulated fabric"
"""The remedy for what a simulated fabric has not."""

ROOM_RTTS = 10
"""RTTs that a run should have before a fault and after its healing, to show the normal state."""


# --- problems: what cannot run ------------------------------------------------------------------


def fault_problems(scenario: Scenario) -> Iterator[Problem]:
    """Everything that makes a timeline impossible."""
    if not scenario.timeline:
        return
    valid: dict[int, Fault] = {}
    topology, transport, flows = scenario.topology, scenario.transport.kind, scenario.flows
    for i, fault in enumerate(scenario.timeline):
        problems = [
            *single_fault_problems(topology, fault, f"timeline[{i}]"),
            *_time_problems(scenario, fault, f"timeline[{i}]"),
        ] or [*busy_problems(topology, transport, flows, fault, f"timeline[{i}]")]
        yield from problems
        if not problems:
            valid[i] = fault
    yield from _overlap_problems(scenario, valid)


def process_problems(scenario: Scenario) -> list[Problem]:
    """The faults of a timeline that strike a process; on a simulated fabric there is none."""
    return [
        Problem(
            f"timeline[{i}].kind",
            fault.kind,
            f"another fault: a {fault.kind} strikes a process, and a simulated fabric has none",
            EMULATED_ONLY,
        )
        for i, fault in enumerate(scenario.timeline)
        if fault.needs_process
    ]


def single_fault_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    """What makes a fault impossible at any time: its targets, or its degree.

    `where` is its place in the document, for messages.
    """
    problems = [*_target_problems(topology, fault, where)]
    yield from problems or _degree_problems(topology, fault, where)


def _target_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    problems = [_unknown_target(topology, fault, where, i) for i in range(len(fault.target))]
    yield from filter(None, problems)
    if any(problems):
        return
    members = sum(member_count(topology, name) for name in fault.target)
    if members > MAX_MEMBERS:
        found, expected = f"{members:,} targets", f"groups of {MAX_MEMBERS:,} at most"
        yield Problem(f"{where}.target", found, expected, "name some of them")
        return
    available = len(expand_groups(topology, fault.target))
    if fault.choose is not None and fault.choose > available:
        expected = f"at most {available}, the number of targets"
        remedy = "choose fewer, or a target that stands for more (docs/faults.md)"
        yield Problem(f"{where}.choose", str(fault.choose), expected, remedy)
    named = fault.path if isinstance(fault, EvLoss | Busy) else None
    if named is not None:
        path = path_named(named)
        if path is None or path.plane >= topology.planes or (path.t1 or 0) >= topology.t1_per_plane:
            last = Path(topology.planes - 1, topology.t1_per_plane - 1)
            expected = f"a path of {topology.name}, from {Path(0, 0).name} to {last.name}"
            remedy = path_remedy(named) or "testbed paths TOPOLOGY SRC DST names them"
            yield Problem(f"{where}.path", named, expected, remedy)


def _unknown_target(topology: Topology, fault: Fault, where: str, i: int) -> Problem | None:
    """The problem with the i-th target of a fault, if it has one."""
    place = f"{where}.target" if len(fault.target) == 1 else f"{where}.target[{i}]"
    expected = _expected_target(topology, fault, fault.target[i])
    return None if expected is None else Problem(place, fault.target[i], *expected)


def _expected_target(topology: Topology, fault: Fault, name: str) -> tuple[str, str] | None:
    """What is expected in place of a target, and the remedy; None if the target is right."""
    node = node_named(topology, name)
    is_host = node is not None and node.tier is Tier.HOST
    if fault.strikes_hosts:
        is_controller = isinstance(fault, Kill) and name == CONTROLLER
        expected = f"a host of {topology.name}, such as h0: {fault.kind} applies to endpoints"
        is_node = nics_named(topology, name) is not None
        if is_host or is_node or is_controller or name in {"hosts", "nodes"}:
            return None
        return expected, host_remedy(topology, name)
    if isinstance(fault, Reboot):
        is_switch = (node is not None and not is_host) or name in {"t0", "t1"}
        example = topology.t1(0, 0).name
        expected = f"a switch of {topology.name}, such as {example}: only switches reboot"
        return None if is_switch else (expected, "")
    if fault.needs_both_directions and direction_named(topology, name) is not None:
        expected = f"a link, not one direction: a {fault.kind} takes carrier from both ends"
        return expected, "a blackhole may strike one direction"
    if name in GROUPS or target_directions(topology, name) is not None:
        return None
    known = (*topology.links, *topology.nodes, *GROUPS) if searchable(topology) else GROUPS
    remedy = ends_remedy(topology, name) or did_you_mean(name, tuple(known))
    return _example_targets(topology), remedy


def _example_targets(topology: Topology) -> str:
    fabric = topology.fabric_link(0, 0, 0)
    return (
        f"a link of {topology.name}, such as {fabric.name}, one direction of it "
        f"({fabric.directions[0]}), a switch ({topology.t1(0, 0).name}), a plane (p0), a node "
        f"(n0), a row of ports ({fabric.lower.node.name}-u0..1) or one of {', '.join(GROUPS)}"
    )


def _degree_problems(topology: Topology, fault: Fault, where: str) -> Iterator[Problem]:
    """A delay or rate at which a packet takes longer than the kernel, or a run, can wait."""
    wait = exact_duration(LONGEST_WAIT_NS)
    if isinstance(fault, Delay) and fault.extra * topology.dilation > LONGEST_WAIT_NS:
        longest = shown_at_most(LONGEST_WAIT_NS / topology.dilation)
        expected = f"at most {wait} when slowed down by the dilation, {topology.dilation:.10g}"
        remedy = f"{exact_duration(int(longest))} at most" if longest >= 1 else "a smaller dilation"
        yield Problem(f"{where}.extra", exact_duration(fault.extra), expected, remedy)
    if isinstance(fault, Degrade):
        links = _struck_links(topology, fault)
        slowest_bps = min(map(topology.rate_bps, links))
        largest = LINK_MTU + ETHERNET_HEADER
        least = shown_at_least(largest * 8 * NS_PER_S / LONGEST_WAIT_NS / slowest_bps)
        if fault.factor < least:
            expected = (
                f"a rate at which a packet of {largest} bytes is sent within {wait}, "
                f"so that HTB can pace it (the link has {show_rate(slowest_bps)})"
            )
            remedy = f"{least:.4g} or more" if least < 1 else "a smaller dilation"
            yield Problem(f"{where}.factor", f"{fault.factor:g}", expected, remedy)


def _operation_problems(scenario: Scenario, name: str, where: str) -> Iterator[Problem]:
    """A name that no program can report: the fault would never begin."""
    if name.split() != [name]:
        yield Problem(where, repr(name), "a name without blanks, as programs report it")
    jobs = [job for job in scenario.job_list if isinstance(job.workload, Program) and job.name]
    if jobs and not name.startswith(tuple(job.label("") for job in jobs)):
        expected = "a name after that of its job: " + ", ".join(job.label(name) for job in jobs)
        yield Problem(where, name, expected)


def _time_problems(scenario: Scenario, fault: Fault, where: str) -> Iterator[Problem]:
    end = scenario.duration
    if fault.after is not None and not scenario.programs:
        expected = "no such key: only programs report operations (kind: program)"
        yield Problem(f"{where}.after", str(fault.after), expected, "a time from the start: at")
    elif fault.after is not None:
        yield from _operation_problems(scenario, fault.after.operation, f"{where}.after.operation")
    if fault.at >= end:
        expected = f"a time within the run, before {exact_duration(end)}"
        remedy = "an earlier time, or a longer duration"
        yield Problem(f"{where}.at", exact_duration(fault.at), expected, remedy)
    elif not isinstance(fault, TemporaryFault):
        return
    elif fault.heals_at_ns > end:
        found = f"{exact_duration(fault.for_)} from {exact_duration(fault.at)} on"
        expected = f"healing within the run, by {exact_duration(end)}"
        remedy = f"{exact_duration(end - fault.at)} at most, or a longer duration"
        yield Problem(f"{where}.for", found, expected, remedy)
    elif (fitting := _fitting(fault, end)) < len(fault.start_times_ns(end)):
        expected = f"only repetitions that heal within the run, by {exact_duration(end)}"
        remedy = f"{fitting} at most, or a longer duration"
        yield Problem(f"{where}.times", str(fault.times), expected, remedy)


def _fitting(fault: TemporaryFault, end: int) -> int:
    """How many repetitions of a fault heal by the end."""
    times = len(fault.start_times_ns(end))
    if fault.every is None:
        return times if fault.heals_at_ns <= end else 0
    return min(times, max((end - fault.heals_at_ns) // fault.every + 1, 0))


def _overlap_problems(scenario: Scenario, timeline: Mapping[int, Fault]) -> Iterator[Problem]:
    """Two faults of one kind at one place at a time, unless they are random and add up.

    `timeline` has the entries to look at by their numbers.
    """
    strikes: dict[tuple[str, str], set[tuple[int, int, int]]] = {}
    for i, fault in timeline.items():
        if fault.choose is not None and not isinstance(fault, EvLoss):
            continue
        seed = f"{scenario.seed}/{i}"
        for strike in repetitions(scenario.topology, fault, scenario.duration, seed):
            until = scenario.duration if strike.heals_at_ns is None else strike.heals_at_ns
            # When an operation begins is not known: it may be any time of the run.
            span = (strike.at_ns, until) if fault.after is None else (0, scenario.duration)
            for place in strike.places:
                strikes.setdefault((strike.kind, place), set()).add((*span, i))
    reported = set[tuple[int, int]]()
    for (kind, place), times in strikes.items():
        active: list[tuple[int, int]] = []
        for at, until, second in sorted(times):
            active = [(end, first) for end, first in active if end >= at]
            for end, first in active:
                may_overlap = _may_overlap(timeline[first], timeline[second])
                if may_overlap or (first, second) in reported:
                    continue
                reported.add((first, second))
                over = f"timeline[{first}] is over at {place}, {exact_duration(end)}"
                remedy = f"one {kind} of a place at a time; faults of different kinds add up"
                where = f"timeline[{second}].at"
                yield Problem(where, exact_duration(at), f"a time after {over}", remedy)
            active.append((until, second))


def _may_overlap(first: Fault, second: Fault) -> bool:
    """Whether two faults of one kind may be in force at once on one place.

    They may if one of them is random, unless both are losses of EVs on different paths.
    """
    if isinstance(first, EvLoss) and isinstance(second, EvLoss) and first.path != second.path:
        return False
    return first.choose is not None or second.choose is not None


# --- remarks: what the author may not have meant ----------------------------------------------


@dataclass(frozen=True, slots=True)
class _FlowPath:
    """One path of a flow: the directions that it takes, and whether an active EV takes it."""

    directions: frozenset[str]
    active: bool

    @property
    def links(self) -> frozenset[str]:
        return frozenset(map(link_of, self.directions))


_FlowPaths = Mapping[Flow, tuple[_FlowPath, ...]]
"""The distinct paths of the EVs of every flow."""


def fault_remarks(scenario: Scenario) -> Iterator[Remark]:
    """What the author of a possible timeline may not have meant."""
    yield from _time_remarks(scenario)
    yield from _short_fault_remarks(scenario)
    if scenario.timeline and (many := too_many_evs(scenario)):
        yield Remark("timeline", f"{many}: whether the faults meet traffic is not said")
        return
    paths = _flow_paths(scenario) if scenario.timeline else {}
    yield from _target_remarks(scenario, [path for of_flow in paths.values() for path in of_flow])
    if not isinstance(scenario.transport, HashedPath):  # they have one path, and no choice of it
        yield from _last_path_remarks(scenario, paths)


def _flow_paths(scenario: Scenario) -> _FlowPaths:
    topology, transport = scenario.topology, scenario.transport
    paths: dict[Flow, tuple[_FlowPath, ...]] = {}
    for flow in flows_of(scenario):
        ends = topology, flow.src, flow.dst
        evs = transport.choose_evs(*ends, lane=flow.lane, seed=scenario.seed)
        active = {ev.path for ev in evs if ev.active}
        paths[flow] = tuple(
            _FlowPath(frozenset(directions_of_path(*ends, path)), path in active)
            for path in dict.fromkeys(ev.path for ev in evs)
        )
    return paths


def _time_remarks(scenario: Scenario) -> Iterator[Remark]:
    room = ROOM_RTTS * scenario.topology.propagation_rtt_ns
    needed = f"{ROOM_RTTS} RTTs ({show_duration(room)})"
    for i, fault in enumerate(scenario.timeline):
        if fault.after is not None:
            continue
        if fault.at < room:
            what = f"leaves less than {needed} before the fault to see what is normal"
            yield Remark(f"timeline[{i}].at", what)
        if not isinstance(fault, TemporaryFault):
            continue
        if scenario.duration - (fault.start_times_ns(scenario.duration)[-1] + fault.for_) < room:
            what = f"leaves less than {needed} after healing to see the recovery"
            yield Remark(f"timeline[{i}].for", what)


def _short_fault_remarks(scenario: Scenario) -> Iterator[Remark]:
    """Faults that a packet may pass unharmed, since it takes longer to send than they last."""
    topology = scenario.topology
    for i, fault in enumerate(scenario.timeline):
        links = _struck_links(topology, fault)
        if not links:
            continue
        slowest_bps = min(map(topology.rate_bps, links))
        packet_ns = topology.wire_bytes * 8 * NS_PER_S / slowest_bps
        lasts_ns = _shortest_ns(fault, scenario.seed)
        if lasts_ns is not None and lasts_ns < packet_ns:
            what = f"lasts {show_duration(lasts_ns)}, less than a full packet takes on the link"
            chance = "whether any packet meets it is chance"
            yield Remark(f"timeline[{i}]", f"{what} ({show_duration(packet_ns)}): {chance}")


def _shortest_ns(fault: Fault, seed: int) -> int | None:
    """The shortest time for which an entry impairs its places; None if it never heals."""
    course = [*fault.course(Random(str(seed)))]  # noqa: S311 - repeatable chance
    if fault.heals_at_ns is not None:
        course.append((fault.heals_at_ns - fault.at, HEALTHY))
    lengths, begin = [], None
    for offset, state in course:
        if state != HEALTHY and begin is None:
            begin = offset
        elif state == HEALTHY and begin is not None:
            lengths.append(offset - begin)
            begin = None
    return min(lengths, default=None)


def _target_remarks(scenario: Scenario, paths: Sequence[_FlowPath]) -> Iterator[Remark]:
    if scenario.clustermapper is not None:
        return  # probes cross every link
    used = frozenset[str]().union(*(path.links for path in paths))
    active = frozenset[str]().union(*(path.links for path in paths if path.active))
    for i, fault in enumerate(scenario.timeline):
        where, links = f"timeline[{i}].target", _links_struck(scenario.topology, fault)
        name = ", ".join(fault.target)
        if links and not links & used:
            yield Remark(where, f"no EV of any flow goes over {name}: no effect")
        elif links and not links & active:
            backups = f"only backup EVs go over {name} with seed {scenario.seed}"
            yield Remark(where, f"{backups}: no data is lost, and there is no detection to measure")


def _links_struck(topology: Topology, fault: Fault) -> frozenset[str]:
    if fault.strikes_hosts:
        return frozenset()
    names = expand_groups(topology, fault.target)
    return frozenset(
        link_of(place) for name in names for place in target_directions(topology, name) or ()
    )


def _struck_links(topology: Topology, fault: Fault) -> list[Link]:
    named = (link_named(topology, name) for name in _links_struck(topology, fault))
    return [link for link in named if link is not None]


def _last_path_remarks(scenario: Scenario, paths: _FlowPaths) -> Iterator[Remark]:
    """Where a timeline takes the last path of a flow: once for each entry, in order of time."""
    faults = scenario.scheduled_faults
    counts = (len(fault.start_times_ns(scenario.duration)) for fault in scenario.timeline)
    ends = [*accumulate(counts)]
    changes = sorted(((step, fault) for fault in faults for step in fault.steps), key=_change_time)
    dead, down, reported = Counter[str](), set[int](), dict[int, Remark]()
    for at, group in groupby(changes, key=_change_time):
        now = [*group]
        for step, fault in now:
            if bool(step.state.deliverable_share) is not (fault.index in down):
                continue  # as before
            down ^= {fault.index}
            dead.update(dict.fromkeys(fault.places, 1 if fault.index in down else -1))
        for step, fault in now:
            entry = bisect(ends, fault.index)
            if step.state.deliverable_share or entry in reported:
                continue
            struck = frozenset(fault.places)
            severed = [
                f"{flow.src.name} -> {flow.dst.name}"
                for flow, of_flow in paths.items()
                if all(any(dead[place] for place in path.directions) for path in of_flow)
                and not all(path.directions.isdisjoint(struck) for path in of_flow)
            ]
            if severed:
                what = f"takes the last path at {exact_duration(at)}"
                what += f"; until a link heals nothing arrives: {few(severed)}"
                reported[entry] = Remark(f"timeline[{entry}]", what)
    yield from (reported[entry] for entry in sorted(reported))


def _change_time(change: tuple[Step, ScheduledFault]) -> int:
    return change[0].at_ns


# --------------------------------------------------------------------------------------------------
# Whether a fault by hand conflicts with another of its kind, as the checks of a timeline do.


def conflict(
    fault: ScheduledFault, begun: Iterable[FaultRecord], due: Iterable[ScheduledFault]
) -> Problem | None:
    """The conflict of a fault with one of its kind, in force now or due before the fault heals.

    Args:
        fault: the fault, with times of the run.
        begun: every fault that has begun; those that have healed or failed do not conflict.
        due: the faults of the timeline that have not begun.
    """
    for record in begun:
        place = _common_place(fault, record.kind, record.places)
        if place and record.healed_ns is None and record.error is None:
            return Problem(
                "request",
                f"{fault.kind} of {fault.target}",
                f"no other {fault.kind} there: fault {record.index} is in force at {place}",
                f"heal fault {record.index} first; faults of different kinds add up",
            )
    for other in due:
        place = _common_place(fault, other.kind, other.places)
        if place and other.after is not None:
            return Problem(
                "request",
                f"{fault.kind} of {fault.target}",
                f"no other {fault.kind} there: fault {other.index} of the timeline affects {place} "
                f"after {other.after} has begun",
                "another kind; faults of different kinds add up",
            )
        if place and (fault.heals_at_ns is None or other.at_ns <= fault.heals_at_ns):
            remaining = show_duration(max(other.at_ns - fault.at_ns, 0))
            return Problem(
                "request",
                f"{fault.kind} of {fault.target}",
                f"one that heals before fault {other.index} of the timeline, a {fault.kind} too, "
                f"affects {place} in {remaining}",
                f"for: less than {remaining}, or another kind; faults of different kinds add up",
            )
    return None


def _common_place(fault: ScheduledFault, kind: str, places: Iterable[str]) -> str:
    """A place that both strike, if they are of one kind; empty if there is none."""
    struck = frozenset(fault.places) if kind == fault.kind else frozenset[str]()
    return next((place for place in places if place in struck), "")
