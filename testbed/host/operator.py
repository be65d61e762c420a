"""Carries out an operator's commands on the queue pairs of one host, and records them.

Commands come from the scenario (key `operator`), by hand while a run goes on, and from the
Clustermapper as its denylist. An EV is denied as long as one of these three denies it.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Protocol

from testbed.host.plan import QpPlan, ev_entries
from testbed.host.recording import Tables
from testbed.model.errors import Problem, as_answer, few
from testbed.model.fabric.addressing import directions_of_path, path_of_ev
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.operator.checks import CommandScope, OnFlow, command_problems, replacement
from testbed.model.operator.commands import (
    OVER,
    AllowEvs,
    Command,
    DenyEvs,
    DisablePort,
    EnablePort,
    EvRow,
    ListEvents,
    ListEvs,
    ListPorts,
    ProbeEvs,
    ReplaceEv,
    evs_named,
    flow_ends,
    flow_name,
    host_of,
)
from testbed.model.operator.replayed import BY_HAND, asked
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER, EvChanged, EvState, QueuePair
from testbed.mrc.ev.probing import ProbeBatch

# --------------------------------------------------------------------------------------------------
# A flow as an operator sees it: its EVs at present, who denies them, and which remain in use.


@dataclass(slots=True)
class OperatedFlow:
    """A flow of a host.

    Attributes:
        number: its number; -1 for a queue pair that only receives.
        qp: its queue pair.
        plan: the plan that the queue pair was made from.
        evs: its EVs, with those that replaced others.
        denials: who denies which EV.
        has_ended: whether its program has destroyed the queue pair.
    """

    number: int
    qp: QueuePair
    plan: QpPlan
    evs: list[EvChoice]
    denials: dict[int, set[str]]
    has_ended: bool = False

    def remaining(
        self,
        *,
        denied: Collection[int] = (),
        freed: Collection[int] = (),
        disabled: int | None = None,
    ) -> list[int]:
        """The EVs that would remain in use after a change.

        Args:
            denied: these EVs are denied.
            freed: nobody denies these any more.
            disabled: this port is disabled.
        """
        down = self.qp.down_planes() | {disabled}
        return [
            ev.ev
            for ev in self.qp.evs()
            if (ev.state is not EvState.DENIED or ev.ev in freed)
            and ev.plane not in down
            and ev.ev not in denied
        ]

    def values(self, names: Sequence[str]) -> list[int]:
        """The EVs with these names (paths, planes, numbers), each once."""
        named = (value for name in names for value in evs_named(self.evs, name))
        return list(dict.fromkeys(named))

    def plane(self, value: int) -> int:
        return next(ev.path.plane for ev in self.evs if ev.value == value)

    def listing(self, now_ns: int, rtt_ns: int) -> list[EvRow]:
        """The rows of all EVs; ages are in round trips of `rtt_ns`."""
        paths = {ev.value: ev.path.name for ev in self.evs}
        return [
            EvRow(
                ev=ev.ev,
                path=paths[ev.ev],
                port=ev.plane,
                state=ev.state.value,
                active=ev.active,
                losses=ev.losses,
                condemnations=ev.condemnations,
                denied_by=sorted(self.denials.get(ev.ev, ())),
                changed_rtts_ago=(
                    round((now_ns - ev.changed_ns) / rtt_ns, 2) if ev.changed_ns else None
                ),
                reason=ev.reason,
            )
            for ev in self.qp.evs()
        ]


BY_SCENARIO: Final = "scenario"
BY_MAPPER: Final = "clustermapper"

PROBE_RTTS: Final = 4
"""Default of the deadline of a batch of probes, in base RTTs."""

KEPT_EVENTS: Final = 4096
"""The most events that wait to be listed; beyond it the oldest is dropped, and counted."""

Answer = Callable[[dict[str, Any]], None]
"""Takes the answer to a command: its result, or `errors`. It may raise that nobody waits for it."""


@dataclass(slots=True)
class _Probing:
    """A batch of probes that is under way."""

    flow: OperatedFlow
    batch: ProbeBatch
    by: str
    answer: Answer


class HostOperator:
    """The operator's side of one host. Times in ns."""

    def __init__(self, operated: CommandScope, host: Node, tables: Tables) -> None:
        """Have no queue pairs yet; `operated` has the flows, and the scenario's commands if any."""
        self._scenario = operated
        self._host = host
        self._record = tables.operator
        self._flows: dict[tuple[str, str, int], OperatedFlow] = {}
        self._qps: list[OperatedFlow] = []
        self._profiles: dict[int, str] = {}
        self._commands = deque[tuple[int, Command]]()
        self._probing: list[_Probing] = []
        self._events = deque[tuple[int, EvChanged] | tuple[int, int, str]](maxlen=KEPT_EVENTS)
        self._dropped = 0
        self._disabled: set[int] = set()
        self._t0_ns = 0
        self._end_ns = NEVER

    @property
    def flows(self) -> tuple[tuple[str, str, int], ...]:
        """What commands may name."""
        return self._scenario.flows

    def use_flows_of(self, operated: CommandScope) -> None:
        """Check commands against the flows of `operated` from now on."""
        self._scenario = operated

    def add(self, qp: QueuePair, plan: QpPlan, now_ns: int) -> None:
        """Let commands apply to a queue pair, which was made from a plan.

        One that was added when it only received may be added again when it sends.
        """
        number = -1 if plan.sends is None else plan.sends
        denied = (ev.ev for ev in qp.evs() if ev.state is EvState.DENIED)  # before it sent
        denials = {ev: {BY_HAND} for ev in denied}
        flow = OperatedFlow(number, qp, plan, self._evs_now(qp, plan), denials)
        self._qps = [*(other for other in self._qps if other.qp is not qp), flow]
        for plane in self._disabled:
            qp.set_port_disabled(plane, disabled=True, now_ns=now_ns)
        if plan.sends is not None:
            ends = self._host.name, plan.peer.name, plan.lane
            self._flows[ends] = flow
            self._profiles[number] = flow_name(*ends)

    def begin(self, t0_ns: int, disabled: Collection[int] = ()) -> None:
        """Carry out the scenario's commands at their times; these ports are disabled already."""
        self._disabled.update(disabled)
        self._t0_ns = t0_ns
        own = (each for each in self._scenario.operator if host_of(each) == self._host.name)
        self._commands.extend(
            (t0_ns + command.at, command) for command in sorted(own, key=lambda each: each.at)
        )

    def end_at(self, end_ns: int) -> None:
        """Carry out no command that comes or is due when the run ends, or later."""
        self._end_ns = end_ns

    @property
    def deadline_ns(self) -> int:
        """When `work` has something to do, or `NEVER`."""
        due_ns = self._commands[0][0] if self._commands else NEVER
        for probing in self._probing:
            over = probing.batch.is_over(0)
            due_ns = min(due_ns, 0 if over else probing.batch.deadline_ns)
        return due_ns

    def work(self, now_ns: int) -> None:
        """Carry out the scenario's commands that are due, and report finished batches of probes."""
        while self._commands and self._commands[0][0] <= now_ns:
            due_ns, command = self._commands.popleft()
            if due_ns < self._end_ns:
                self._carry_out(command, now_ns, lambda _: None, BY_SCENARIO)
        if self._probing:
            for probing in [p for p in self._probing if p.batch.is_over(now_ns)]:
                self._probing.remove(probing)
                probing.answer({"evs": self._probed(probing, now_ns)})

    def handle(self, command: Command, now_ns: int, answer: Answer) -> None:
        """Carry out a command by hand; `answer` is called when it took effect or was refused."""
        if now_ns >= self._end_ns:
            answer(OVER)
        else:
            self._carry_out(command, now_ns, answer, BY_HAND)

    @property
    def disabled(self) -> frozenset[int]:
        return frozenset(self._disabled)

    def forget(self, qps: Collection[QueuePair]) -> None:
        """Carry out no more commands on queue pairs that have ended; their probes come to nothing.

        Their flows stay flows of the run, so that a command for one is told what is wrong.
        """
        for flow in self._qps:
            flow.has_ended = flow.qp in qps
        self._qps = [flow for flow in self._qps if not flow.has_ended]
        for probing in [probing for probing in self._probing if probing.flow.has_ended]:
            self._probing.remove(probing)
            plan = probing.flow.plan
            name = flow_name(self._host.name, plan.peer.name, plan.lane)
            with suppress(ConnectionError):  # nobody waits for it
                probing.answer(as_answer(_ended(name)))

    def order_ev(self, qp: QueuePair, value: int, *, deny: bool, now_ns: int) -> bool:
        """Deny an EV by hand, or allow it again; returns whether the queue pair is known here."""
        flow = next((flow for flow in self._qps if flow.qp is qp), None)
        if flow is None:
            return False
        if deny:
            self._deny(flow, [value], now_ns, BY_HAND)
        else:
            self._allow(flow, [value], {BY_HAND, BY_SCENARIO}, now_ns, BY_HAND)
        return True

    def replaced_ev(self, qp: QueuePair, value: int, new: EvChoice) -> None:
        """Note that another EV has taken the place of one by hand, if the queue pair is known."""
        for flow in self._qps:
            if flow.qp is qp:
                flow.evs.append(new)
                flow.denials.setdefault(value, set()).add(BY_HAND)

    def _evs_now(self, qp: QueuePair, qp_plan: QpPlan) -> list[EvChoice]:
        """The EVs of a plan, and those that have taken another's place since."""
        planned = {ev.value for ev in qp_plan.evs}
        path = partial(path_of_ev, self._scenario.topology, self._host, qp_plan.peer)
        added = (ev for ev in qp.evs() if ev.ev not in planned)
        return [*qp_plan.evs, *(EvChoice(ev.ev, path(ev.ev), ev.active) for ev in added)]

    def switch_port(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Disable a port by hand, or enable it again."""
        self._switch_port(plane, disabled, now_ns, BY_HAND)

    def record_event(self, flow: int, event: EvChanged) -> None:
        self._keep((flow, event))

    def record_port(self, plane: int, state: str, now_ns: int) -> None:
        """Keep the new state of a port until it is listed."""
        self._keep((now_ns, plane, state))

    def _keep(self, event: tuple[int, EvChanged] | tuple[int, int, str]) -> None:
        self._dropped += len(self._events) == KEPT_EVENTS
        self._events.append(event)

    def deny_crossing(self, directions: frozenset[str], now_ns: int) -> None:
        """Have the Clustermapper deny exactly the EVs whose paths cross one of these directions.

        A denial that would leave a flow no path is refused: a faulty path is better than none.
        """
        topology, host = self._scenario.topology, self._host
        for flow in self._qps:
            crossing = {
                ev.value
                for ev in flow.evs
                if directions.intersection(
                    directions_of_path(topology, host, flow.plan.peer, ev.path)
                )
            }
            denied = {ev for ev, by in flow.denials.items() if BY_MAPPER in by}
            freed = {ev for ev in denied - crossing if flow.denials[ev] == {BY_MAPPER}}
            if flow.remaining(denied=crossing, freed=freed) or not crossing - denied:
                self._deny(flow, sorted(crossing - denied), now_ns, BY_MAPPER)
            else:
                refusal = "refused: it leaves the flow no path"
                self._record(now_ns, BY_MAPPER, "deny", host.name, flow.number, -1, 0, refusal, -1)
            self._allow(flow, sorted(denied - crossing), {BY_MAPPER}, now_ns, BY_MAPPER)

    # --- commands -----------------------------------------------------------------------------

    def _carry_out(self, command: Command, now_ns: int, answer: Answer, by: str) -> None:
        problems = [*command_problems(self._scenario, command, "command", self._evs_of)]
        if not problems and isinstance(command, OnFlow) and self._flow_of(command).has_ended:
            problems.append(_ended(command.flow))
        if not problems and isinstance(command, DenyEvs | DisablePort):
            problems += self._last_paths(command)
        if problems:
            if not isinstance(command, ListEvs | ListPorts | ListEvents):
                reasons = (f"{problem.found}: expected {problem.expected}" for problem in problems)
                refusal = f"refused: {'; '.join(reasons)}"
                self._record(now_ns, by, command.kind, self._host.name, -1, -1, 0, refusal, -1)
            answer(as_answer(*problems))
            return
        if isinstance(command, OnFlow):
            self._operate_flow(command, now_ns, answer, by)
            return
        match command:
            case DisablePort() | EnablePort():
                self._switch_port(command.plane, isinstance(command, DisablePort), now_ns, by)
                answer({"ports": self._ports()})
            case ListPorts():
                answer({"ports": self._ports()})
            case ListEvents():
                events = [self._listed_event(event) for event in self._events]
                answer({"events": events, "dropped": self._dropped})
                self._events.clear()
                self._dropped = 0

    def _operate_flow(self, command: OnFlow, now_ns: int, answer: Answer, by: str) -> None:
        flow = self._flow_of(command)
        rtt_ns = self._scenario.topology.propagation_rtt_ns
        match command:
            case DenyEvs():
                self._deny(flow, flow.values(command.ev), now_ns, by)
            case AllowEvs():
                values = flow.values(command.ev)
                self._allow(flow, values, {BY_HAND, BY_SCENARIO}, now_ns, by)
            case ReplaceEv():
                self._replace(flow, command, now_ns, by)
            case ProbeEvs():
                values = flow.values(command.ev) or [ev.value for ev in flow.evs]
                within_ns = command.within or PROBE_RTTS * rtt_ns
                batch = flow.qp.probe_evs(values, within_ns, now_ns)
                for value in values:
                    self._record_ev(flow, "probe", value, now_ns, by, asked(within_ns))
                self._probing.append(_Probing(flow, batch, by, answer))
                return
        answer({"evs": [asdict(row) for row in flow.listing(now_ns, rtt_ns)]})

    def _flow_of(self, command: OnFlow) -> OperatedFlow:
        ends = flow_ends(command.flow)
        assert ends is not None  # noqa: S101 - it was checked
        return self._flows[ends]

    def _evs_of(self, src: str, dst: str, lane: int) -> Sequence[EvChoice]:
        return self._flows[src, dst, lane].evs

    def _last_paths(self, command: DenyEvs | DisablePort) -> Iterator[Problem]:
        """The problem that a flow would have no path left, with what is out of use already."""
        if isinstance(command, DenyEvs):
            flow = self._flow_of(command)
            if not flow.remaining(denied=flow.values(command.ev)):
                expected = (
                    "EVs that leave the flow a path: all others are denied, or their ports are down"
                )
                remedy = f"testbed ev allow RUN '{command.flow}' EV"
                yield Problem("command.ev", ", ".join(command.ev), expected, remedy)
            return
        for flow in self._qps:
            if flow.remaining() and not flow.remaining(disabled=command.plane):
                peer, host = flow.plan.peer.name, self._host.name
                expected = (
                    f"a port whose loss leaves {host} a path to {peer}: the EVs of all others are "
                    "denied, or their ports are down"
                )
                remedy = f"testbed port enable RUN {host} PLANE, or testbed ev allow RUN FLOW EV"
                yield Problem("command.plane", str(command.plane), expected, remedy)
                return

    def _deny(self, flow: OperatedFlow, values: Sequence[int], now_ns: int, by: str) -> None:
        for value in values:
            denials = flow.denials.setdefault(value, set())
            if not denials:
                flow.qp.deny_ev(value, now_ns)
            denials.add(by)
            self._record_ev(flow, "deny", value, now_ns, by)

    def _allow(
        self, flow: OperatedFlow, values: Sequence[int], deniers: set[str], now_ns: int, by: str
    ) -> None:
        """Lift the denials of EVs by `deniers`; the order to do so is of `by`."""
        for value in values:
            denials = flow.denials.get(value, set())
            if denials:
                denials -= deniers
                if not denials:
                    flow.qp.allow_ev(value, now_ns)
            self._record_ev(flow, "allow", value, now_ns, by)

    def _replace(self, flow: OperatedFlow, command: ReplaceEv, now_ns: int, by: str) -> None:
        ends = self._host.name, flow.plan.peer.name, flow.plan.lane
        (value,) = evs_named(flow.evs, command.ev)
        new = replacement(self._scenario.topology, ends, command.by)
        assert new is not None  # noqa: S101 - it was checked
        (entry,) = ev_entries([new])
        flow.qp.replace_ev(value, entry, now_ns)
        flow.evs.append(new)
        flow.denials.setdefault(value, set()).add(by)
        self._record_ev(flow, "replace", value, now_ns, by)
        self._record_ev(flow, "replace", new.value, now_ns, by)

    def _switch_port(self, plane: int, disable: bool, now_ns: int, by: str) -> None:
        changes = disable is not (plane in self._disabled)
        for flow in self._qps:
            flow.qp.set_port_disabled(plane, disabled=disable, now_ns=now_ns)
        (self._disabled.add if disable else self._disabled.discard)(plane)
        state = self._port_state(plane)
        kind = "disable" if disable else "enable"
        self._record(now_ns, by, kind, self._host.name, -1, plane, 0, state, -1)
        if changes:
            self.record_port(plane, state, now_ns)

    # --- what is answered ---------------------------------------------------------------------

    def _record_ev(
        self,
        flow: OperatedFlow,
        kind: str,
        value: int,
        now_ns: int,
        by: str,
        result: str = "",
        rtt_ns: int = -1,
    ) -> None:
        plane = flow.plane(value)
        result = result or flow.qp.ev_states()[value].value
        self._record(now_ns, by, kind, self._host.name, flow.number, plane, value, result, rtt_ns)

    def _probed(self, probing: _Probing, now_ns: int) -> list[dict[str, Any]]:
        flow, batch = probing.flow, probing.batch
        results = []
        for value in batch.evs:
            rtt_ns = batch.rtts_ns.get(value)
            result = "unanswered" if rtt_ns is None else "answered"
            self._record_ev(flow, "probe", value, now_ns, probing.by, result, rtt_ns or -1)
            path = next(ev.path.name for ev in flow.evs if ev.value == value)
            results.append(
                {
                    "ev": value,
                    "path": path,
                    "port": flow.plane(value),
                    "result": result,
                    "rtt_ns": rtt_ns,
                    "service_time_subtracted": False,
                }
            )
        return results

    def _ports(self) -> list[dict[str, Any]]:
        planes = range(self._scenario.topology.planes)
        return [{"port": plane, "state": self._port_state(plane)} for plane in planes]

    def _port_state(self, plane: int) -> str:
        return "disabled" if plane in self._disabled else "enabled"

    def _listed_event(self, event: tuple[int, EvChanged] | tuple[int, int, str]) -> dict[str, Any]:
        if len(event) == 3:  # noqa: PLR2004 - of a port
            time_ns, plane, state = event
            return {"t": (time_ns - self._t0_ns) / NS_PER_S, "port": plane, "state": state}
        flow, change = event
        return {
            "t": (change.time_ns - self._t0_ns) / NS_PER_S,
            "flow": flow,
            "profile": self._profiles[flow],
            "ev": change.ev,
            "port": change.plane,
            "state": change.new.value,
            "active": change.active,
            "reason": change.reason,
        }


class OperatedHost(Protocol):
    """A host that carries out commands."""

    def operate(self, command: Command, answer: Answer) -> None:
        """Carry one out; `answer` is called when it has taken effect."""


def operate_one_of(hosts: Mapping[str, OperatedHost], command: Command, answer: Answer) -> None:
    """Have a command carried out by the host that it is for, unless that takes no part."""
    host = hosts.get(host_of(command))
    if host is None:
        expected = f"a host that takes part: {few([*hosts])}"
        answer(as_answer(Problem("command.host", host_of(command), expected)))
    else:
        host.operate(command, answer)


def _ended(flow: str) -> Problem:
    return Problem("command.flow", flow, "a flow whose queue pair its program has not destroyed")
