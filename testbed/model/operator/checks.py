"""Whether an operator's commands fit the flows, EVs and ports of a run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.model.errors import Problem, did_you_mean, few
from testbed.model.fabric.addressing import (
    ev_for_path,
    path_named,
    path_of_ev,
    path_remedy,
    paths,
)
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.topology import Topology
from testbed.model.operator.commands import (
    AllowEvs,
    Command,
    DenyEvs,
    DisablePort,
    EnablePort,
    ListEvs,
    ProbeEvs,
    ReplaceEv,
    TimedCommand,
    ev_number,
    evs_named,
    flow_ends,
    flow_name,
)
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Transport
from testbed.model.units import exact_duration

# --------------------------------------------------------------------------------------------------
# Whether the commands of a scenario leave each flow a path, one after the other.


Ends = tuple[str, str, int]
"""Source, destination and lane of a flow."""


@dataclass
class RemainingPaths:
    """The EVs and ports that are out of use so far: denied EVs, and disabled ports.

    An EV through a disabled port, at either end, is not a remaining path.

    Attributes:
        flows: the flows of the run.
        evs_of: the EVs of a flow when the run begins.
    """

    flows: Sequence[Ends]
    evs_of: Callable[[str, str, int], Sequence[EvChoice]]
    _evs: dict[Ends, list[EvChoice]] = field(default_factory=dict, init=False)
    _denied: dict[Ends, set[int]] = field(default_factory=dict, init=False)
    _disabled: dict[str, set[int]] = field(default_factory=dict, init=False)

    def evs(self, src: str, dst: str, lane: int) -> Sequence[EvChoice]:
        return self._evs_by_now((src, dst, lane))

    def problems(
        self, command: TimedCommand, where: str, added: EvChoice | None
    ) -> Iterator[Problem]:
        """Apply a command; yield the problem that it leaves a flow no path.

        Args:
            command: the next one.
            where: its place, for messages.
            added: the EV that takes another's place, if it replaces one.
        """
        flows = self._touched(command)
        before = [flow for flow in flows if self._has_path(flow)]
        key, found = self._carry_out(command, added)
        lost = [flow_name(*flow) for flow in before if not self._has_path(flow)]
        if lost:
            expected = f"what leaves {few(lost)} a path: the EVs of all others are denied, or "
            yield Problem(f"{where}.{key}", found, f"{expected}their ports are disabled by then")

    def _touched(self, command: TimedCommand) -> list[Ends]:
        if isinstance(command, DisablePort | EnablePort):
            return [flow for flow in self.flows if command.host in flow[:2]]
        ends = flow_ends(command.flow)
        return [] if ends is None else [ends]

    def _carry_out(self, command: TimedCommand, added: EvChoice | None) -> tuple[str, str]:
        """Note what a command does; returns the key and value to name if that is wrong."""
        match command:
            case DisablePort():
                self._disabled.setdefault(command.host, set()).add(command.plane)
                return "plane", str(command.plane)
            case EnablePort():
                self._disabled.setdefault(command.host, set()).discard(command.plane)
            case DenyEvs():
                self._denied_of(command.flow).update(self._values(command.flow, command.ev))
                return "ev", few(command.ev)
            case AllowEvs():
                self._denied_of(command.flow).difference_update(
                    self._values(command.flow, command.ev)
                )
            case ReplaceEv():
                self._denied_of(command.flow).update(self._values(command.flow, [command.ev]))
                ends = flow_ends(command.flow)
                if ends is not None and added is not None:
                    self._evs_by_now(ends).append(added)
                return "ev", command.ev
        return "", ""

    def _values(self, flow: str, names: Iterable[str]) -> set[int]:
        ends = flow_ends(flow)
        evs = [] if ends is None else self._evs_by_now(ends)
        return {value for name in names for value in evs_named(evs, name)}

    def _denied_of(self, flow: str) -> set[int]:
        ends = flow_ends(flow)
        return set() if ends is None else self._denied.setdefault(ends, set())

    def _evs_by_now(self, flow: Ends) -> list[EvChoice]:
        if flow not in self._evs:
            self._evs[flow] = list(self.evs_of(*flow))
        return self._evs[flow]

    def _has_path(self, flow: Ends) -> bool:
        src, dst, _ = flow
        down = self._disabled.get(src, set()) | self._disabled.get(dst, set())
        denied = self._denied.get(flow, set())
        return any(
            ev.value not in denied and ev.path.plane not in down for ev in self._evs_by_now(flow)
        )


OnFlow = DenyEvs | AllowEvs | ReplaceEv | ProbeEvs | ListEvs
EvsOf = Callable[[str, str, int], Sequence[EvChoice]]
"""The EVs of the flow with these ends and lane."""


def operator_problems(scenario: Scenario) -> Iterator[Problem]:
    """Everything that makes the operator's part of a scenario impossible."""

    def evs_of(src: str, dst: str, lane: int) -> Sequence[EvChoice]:
        topology = scenario.topology
        return scenario.transport.choose_evs(
            topology,
            topology.host_named(src),
            topology.host_named(dst),
            lane=lane,
            seed=scenario.seed,
        )

    if not scenario.operator:
        return
    remaining = RemainingPaths(tuple(dict.fromkeys(scenario.flows)), evs_of)
    problems: list[tuple[int, Problem]] = []
    for i, order in sorted(enumerate(scenario.operator), key=lambda each: each[1].at):
        where = f"operator[{i}]"
        if order.at >= scenario.duration:
            expected = f"a time within the run, before {exact_duration(scenario.duration)}"
            problems.append((i, Problem(f"{where}.at", exact_duration(order.at), expected)))
        wrong = list(command_problems(scenario, order, where, remaining.evs))
        if not wrong:
            wrong = list(remaining.problems(order, where, _added(scenario.topology, order)))
        problems += [(i, problem) for problem in wrong]
    yield from (problem for _, problem in sorted(problems, key=lambda each: each[0]))


def _added(topology: Topology, command: TimedCommand) -> EvChoice | None:
    """The EV that a command puts in another's place; None if it replaces none."""
    ends = flow_ends(command.flow) if isinstance(command, ReplaceEv) else None
    if ends is None or not isinstance(command, ReplaceEv):
        return None
    return replacement(topology, ends, command.by)


class CommandScope(Protocol):
    """What commands apply to: a scenario, or the flows of a program at a prompt."""

    @property
    def topology(self) -> Topology:
        """The fabric."""

    @property
    def transport(self) -> Transport:
        """What the flows send with."""

    @property
    def flows(self) -> tuple[tuple[str, str, int], ...]:
        """Source, destination and lane of each flow."""

    @property
    def operator(self) -> tuple[TimedCommand, ...]:
        """The commands of its scenario, each with its time."""


def command_problems(
    scenario: CommandScope, command: Command, where: str, evs_of: EvsOf
) -> Iterator[Problem]:
    """What makes one command impossible.

    Args:
        scenario: the run.
        command: the command.
        where: its place, for messages.
        evs_of: the EVs of a flow, at present.
    """
    if not isinstance(scenario.transport, Mrc):
        expected = "a run of the transport mrc: others have no EVs"
        yield Problem(where, scenario.transport.kind, expected)
        return
    if not isinstance(command, OnFlow):
        yield from _port_problems(scenario, command, where)
        return
    ends = flow_ends(command.flow)
    flows = dict.fromkeys(scenario.flows)
    if ends is None or ends not in flows:
        names = [flow_name(*flow) for flow in flows]
        yield Problem(
            f"{where}.flow",
            command.flow,
            f"a flow of the run: {few(names)}",
            did_you_mean(command.flow, names),
        )
        return
    yield from _ev_problems(scenario.topology, command, where, ends, evs_of(*ends))


def _ev_problems(
    topology: Topology,
    command: OnFlow,
    where: str,
    ends: tuple[str, str, int],
    evs: Sequence[EvChoice],
) -> Iterator[Problem]:
    names = [command.ev] if isinstance(command, ReplaceEv) else getattr(command, "ev", ())
    known = {ev.path.name for ev in evs}
    for name in names:
        if not evs_named(evs, name):
            remedy = path_remedy(name) or did_you_mean(name, sorted(known))
            expected = f"an EV of {command.flow}, by path or number: {few(sorted(known))}"
            yield Problem(f"{where}.ev", name, expected, remedy)
    if isinstance(command, ReplaceEv):
        yield from _replacement_problems(topology, command, where, ends, evs)
    if isinstance(command, DenyEvs) and evs:
        denied = {value for name in command.ev for value in evs_named(evs, name)}
        if denied.issuperset(ev.value for ev in evs):
            yield Problem(f"{where}.ev", few(command.ev), "EVs that leave the flow a path")


def _replacement_problems(
    topology: Topology,
    command: ReplaceEv,
    where: str,
    ends: tuple[str, str, int],
    evs: Sequence[EvChoice],
) -> Iterator[Problem]:
    old = [ev for value in evs_named(evs, command.ev) for ev in evs if ev.value == value]
    if len(old) > 1:
        expected = f"one EV: {command.ev} has {len(old)}"
        yield Problem(f"{where}.ev", command.ev, expected, "name it by its number")
    new = replacement(topology, ends, command.by)
    if new is None:
        remedy = path_remedy(command.by)
        yield Problem(f"{where}.by", command.by, "a path of the fabric, or an EV of one", remedy)
    elif old and new.path.plane != old[0].path.plane:
        yield Problem(f"{where}.by", command.by, f"an EV of plane {old[0].path.plane}")
    elif new.value in {ev.value for ev in evs}:
        yield Problem(f"{where}.by", command.by, "an EV that the flow does not have yet")


def replacement(topology: Topology, ends: tuple[str, str, int], name: str) -> EvChoice | None:
    """The EV that takes another's place; None if the name is no path between these hosts.

    Args:
        topology: the fabric.
        ends: source, destination and lane of the flow.
        name: the name of a path, or the number of an EV.
    """
    src, dst = (topology.host_named(name_of_host) for name_of_host in ends[:2])
    path = path_named(name)
    if path is not None:
        return (
            EvChoice(ev_for_path(path), path, True) if path in paths(topology, src, dst) else None
        )
    value = ev_number(name)
    if value is None:
        return None
    return EvChoice(value, path_of_ev(topology, src, dst, value), True)


def _port_problems(scenario: CommandScope, command: Command, where: str) -> Iterator[Problem]:
    host = getattr(command, "host", "")
    hosts = sorted({end for src, dst, _ in scenario.flows for end in (src, dst)})
    if host not in hosts:
        expected = f"a host that takes part: {few(hosts)}"
        yield Problem(f"{where}.host", host, expected, did_you_mean(host, hosts))
    plane = getattr(command, "plane", 0)
    if plane >= scenario.topology.planes:
        expected = f"a plane of the fabric, 0 to {scenario.topology.planes - 1}"
        yield Problem(f"{where}.plane", str(plane), expected)
    is_blind = isinstance(scenario.transport, Mrc) and scenario.transport.spray == "blind"
    if is_blind and isinstance(command, DisablePort | EnablePort):
        found = f"{command.kind}, with transport.spray: blind"
        expected = "adaptive spraying: blind spraying uses all EVs, whatever the state of a port"
        remedy = f"deny the EVs of the plane: testbed ev deny RUN FLOW p{plane}"
        yield Problem(f"{where}.kind", found, expected, remedy)
