"""The event stream of a run, from its scenario, the rows of its tables and records of faults.

The first record is the snapshot of fabric, flows and EVs. The rows may come from a run that goes on
(`writer.py`) or from a finished one (`recorded.py`).
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.drawings import places_of
from testbed.live.stream.measures import Measures, PacketFollower, Tables
from testbed.live.stream.records import (
    Detection,
    Ended,
    EvChange,
    EvPath,
    FaultChange,
    FlowEnds,
    LinkEnds,
    NodePlace,
    Opened,
    OperatorCommand,
    Record,
    RunEnd,
    Snapshot,
    StreamRecord,
    SuspectChange,
    VerdictChange,
)
from testbed.model.fabric.addressing import (
    address,
    carrier_usids,
    directions_of_path,
    management_address,
    path_of_ev,
)
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import PPM
from testbed.model.faults.record import FaultRecord
from testbed.model.flows import Flow, flows_recorded
from testbed.model.run_files.content import FlowRecord, HealthSample, OpenedFlow
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results.analysis.lateness import Level, lasting_lateness
from testbed.results.records import CONTROL_DILATION, EV_EVENTS, FINDINGS, OPERATOR

STEP_S = 0.1
"""Time between two `State` records: ten a second."""

LEAST_STEPS = 100
"""A run shorter than ten seconds has so many steps, as where time is not dilated."""


PROMPT = "shell"
"""In place of a scenario's name."""

_PROGRAMS = "Programs at the prompt. A flow begins with the first packet that its program sends."


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a stream has to know of its run.

    Attributes:
        topology: the fabric.
        scenario: what is run; None: programs at the prompt.
        run: name of the run's directory.
        simulated: whether it takes place in virtual time.
        live: whether it goes on while the stream is written.
        base_rtt_s: the base RTT.
        duration_s: planned duration; 0: none.
        slow_flow: the flow whose single packets are in the stream, if any.
        recorded: the flows that a finished run recorded; where programs send, no scenario has them.
    """

    topology: Topology
    scenario: Scenario | None
    run: str
    simulated: bool
    live: bool
    base_rtt_s: float
    duration_s: float
    slow_flow: int | None = None
    recorded: tuple[FlowRecord, ...] = ()

    @property
    def of_programs(self) -> bool:
        """Whether programs send, whose flows begin with their first packets."""
        return self.scenario is None or bool(self.scenario.programs)

    @property
    def slow_motion(self) -> bool:
        """Whether single packets of a flow are in the stream: at a prompt, of the newest flow."""
        if self.of_programs:
            return self.topology.dilation >= CONTROL_DILATION
        return self.slow_flow is not None

    @property
    def management(self) -> str:
        """The first host's address in the management network, which only emulated fabrics have."""
        programs_meet = self.of_programs and not self.simulated
        return str(management_address(self.topology.host(0))) if programs_meet else ""

    @property
    def step_s(self) -> float:
        """Time between two `State` records."""
        return min(STEP_S, self.duration_s / LEAST_STEPS) if self.duration_s else STEP_S


@dataclass(frozen=True, slots=True)
class FirstState:
    """An EV's state at the beginning, as its first row of `ev_events` has it."""

    flow: int
    ev: int
    state: str
    active: bool


def snapshot_of(beginning: Beginning, evs: Iterable[FirstState], t: float) -> Snapshot:
    scenario, topology = beginning.scenario, beginning.topology
    flows = flows_of_beginning(beginning)
    return Snapshot(
        t=t,
        scenario=PROMPT if scenario is None else scenario.name,
        description=_PROGRAMS if scenario is None else " ".join(scenario.description.split()),
        topology=topology.name,
        run=beginning.run,
        simulated=beginning.simulated,
        live=beginning.live,
        duration_s=beginning.duration_s,
        step_s=beginning.step_s,
        base_rtt_s=beginning.base_rtt_s,
        dilation=topology.dilation,
        planes=topology.planes,
        nics_per_node=topology.nics_per_node,
        clustermapper=scenario is not None and scenario.clustermapper is not None,
        judged=scenario is not None,
        slow_motion=beginning.slow_motion,
        management=beginning.management,
        nodes=tuple(_nodes(topology)),
        links=tuple(_links(topology)),
        flows=tuple(flow_ends(flow, beginning) for flow in flows.values()),
        evs=tuple(ev_path(topology, flows, first) for first in evs),
    )


def flows_of_beginning(beginning: Beginning) -> dict[int, Flow]:
    if beginning.scenario is None:
        return {}
    flows = flows_recorded(beginning.scenario, beginning.recorded)
    return {flow.number: flow for flow in flows}


def transport_of(beginning: Beginning) -> str:
    return "mrc" if beginning.scenario is None else beginning.scenario.transport.kind


def _nodes(topology: Topology) -> Iterator[NodePlace]:
    for node, (x, y) in places_of(topology).items():
        place = {"name": node.name, "tier": str(node.tier), "plane": node.plane}
        yield NodePlace(**place, x=round(x, 3), y=round(y, 3))


def _links(topology: Topology) -> Iterator[LinkEnds]:
    for link in topology.links.values():
        yield LinkEnds(
            name=link.name,
            plane=link.plane,
            lower=link.lower.node.name,
            upper=link.upper.node.name,
            rate_bps=topology.rate_bps(link),
        )


def flow_ends(flow: Flow, beginning: Beginning) -> FlowEnds:
    """A flow as the stream has it; nobody knows the job of a program's."""
    jobs = () if beginning.scenario is None else beginning.scenario.planned.jobs
    job = jobs[flow.job].name if jobs and flow.job >= 0 else ""
    transport = transport_of(beginning)
    lane = f" #{flow.lane}" if flow.lane else ""
    name = f"{flow.src.name} → {flow.dst.name}{lane}"
    src, dst = flow.src.name, flow.dst.name
    return FlowEnds(flow=flow.number, name=name, src=src, dst=dst, transport=transport, job=job)


def ev_path(topology: Topology, flows: Mapping[int, Flow], first: FirstState) -> EvPath:
    """An EV of one of these flows as the stream has it, with its path."""
    flow = flows[first.flow]
    path = path_of_ev(topology, flow.src, flow.dst, first.ev)
    usids = carrier_usids(topology, flow.src, flow.dst, path)
    return EvPath(
        flow=first.flow,
        ev=first.ev,
        path=path.name,
        plane=path.plane,
        crosses=directions_of_path(topology, flow.src, flow.dst, path),
        addresses=tuple(str(address(*usids[i:])) for i in range(len(usids))),
        usids=tuple(f"{usid:04x}" for usid in usids),
        state=first.state,
        active=first.active,
    )


# --------------------------------------------------------------------------------------------------
# The events of faults: how far each has got, and which flows have detected it.


class FaultEvents:
    """Compares the records of faults with what the stream has of them already."""

    def __init__(self, t0_ns: int) -> None:
        """Begin without faults; `t0_ns` is the start of the run on the clock of the records."""
        self._t0_ns = t0_ns
        self._hosts: dict[int, set[str]] = {}
        self._passes: dict[tuple[int, int], set[str]] = {}
        self._active: dict[tuple[int, int], bool] = {}
        self._records: dict[int, FaultRecord] = {}
        self._shown: dict[int, int] = {}
        self._detected: set[tuple[int, int]] = set()

    def add(self, flows: Iterable[FlowEnds], evs: Iterable[EvPath]) -> None:
        """Tell of flows, and of EVs of these or earlier ones, with their states."""
        self._hosts |= {flow.flow: {flow.src, flow.dst} for flow in flows}
        for ev in evs:
            key = ev.flow, ev.ev
            self._passes[key] = {*ev.crosses, *self._hosts[ev.flow]}
            self._active[key] = ev.active

    def changes(self, records: Iterable[FaultRecord], until_s: float) -> Iterator[FaultChange]:
        """What has happened to these faults by a time and has not been shown yet."""
        for record in records:
            self._records[record.index] = record
            shown = self._shown.get(record.index, 0)
            for change in [*self._course(record)][shown:]:
                if change.t > until_s:
                    break
                self._shown[record.index] = self._shown.get(record.index, 0) + 1
                yield change

    def detections(self, change: EvChange) -> Iterator[Detection]:
        """The faults that a flow has detected by this change of an EV."""
        key = change.flow, change.ev
        left = self._active.get(key, False) and not change.active
        self._active[key] = change.active
        if not left:
            return
        for record in self._records.values():
            effective_s, healed_s = self._s(record.effective_ns), self._s(record.healed_ns)
            if effective_s is None or change.t < effective_s:
                continue
            if healed_s is not None and change.t > healed_s:
                continue
            if (record.index, change.flow) in self._detected:
                continue
            if self._passes.get(key, set()).isdisjoint(record.places):
                continue
            self._detected.add((record.index, change.flow))
            yield Detection(
                t=change.t,
                fault=record.index,
                flow=change.flow,
                ev=change.ev,
                after_s=change.t - effective_s,
            )

    def _s(self, time_ns: int | None) -> float | None:
        return None if time_ns is None else (time_ns - self._t0_ns) / NS_PER_S

    def _course(self, record: FaultRecord) -> Iterator[FaultChange]:
        """All that is known of a fault, in order of time."""
        yield self._change(record, "requested", record.requested_ns)
        for number, step in enumerate(record.steps):
            healed = record.healed_ns is not None and step is record.steps[-1]
            first_phase = "in effect" if number == 0 else "changed"
            yield self._change(
                record,
                "healed" if healed else first_phase,
                step.by_ns,
                after_s=(step.by_ns - step.requested_ns) / NS_PER_S,
                within_s=(step.by_ns - step.after_ns) / NS_PER_S,
                impairment=dict(step.state),
                proof=_proof(record.proof, healed=healed, first=number == 0),
            )
        if record.error is not None:
            last_ns = record.steps[-1].by_ns if record.steps else record.requested_ns
            yield self._change(record, "failed", last_ns, error=record.error)

    def _change(self, record: FaultRecord, phase: str, time_ns: int, **more: object) -> FaultChange:
        values = {
            "fault": record.index,
            "phase": phase,
            "kind": record.kind,
            "target": record.target,
            "places": record.places,
            "actuator": record.actuator,
            **more,
        }
        return FaultChange.model_validate({"t": self._s(time_ns), **values})


def _proof(proof: Mapping[str, object], *, healed: bool, first: bool) -> dict[str, object]:
    """The part of a record's proof that belongs to a step.

    The emulation's proof has a part for the injection and one for the healing. The simulator's is
    the number of packets that were hit until the end, by link direction.
    """
    parts = {"injected", "healed", "until_end"}
    if parts.isdisjoint(proof):
        return {"packets_hit": dict(proof)} if healed and proof else {}
    key = "injected" if first else "healed" if healed else ""
    found = proof.get(key, {})
    return dict(found) if isinstance(found, Mapping) else {}


_JUDGED_NS = 3 * NS_PER_S
"""Samples of health are judged again for so long: by then every fault of their time is recorded.
A verdict never gets better during a run."""

_Kind = TypeVar("_Kind", bound=Record)


class Stream:
    """Numbers the records of one run, and keeps what they refer to.

    Call `snapshot` once, then `step` for each step of the run's time in order, then `end`.
    """

    def __init__(self, beginning: Beginning, t0_ns: int) -> None:
        """Begin; `t0_ns` is the start of the workload on the clock of the run's records."""
        self._beginning = beginning
        self._t0_ns = t0_ns
        self._measures = Measures(beginning.topology)
        self._health: list[HealthSample] = []
        self._verdict = Level.TRUSTED
        self._flows = flows_of_beginning(beginning)
        self._follower: PacketFollower | None = None
        if beginning.slow_flow is not None:
            self._follow(self._flows[beginning.slow_flow])
        self._unopened = deque[Flow]()
        self._ending: set[int] = set()
        self._first: list[FirstState] = []
        self._next_id = 0

    def snapshot(self, evs: Sequence[FirstState], t: float = 0.0) -> Snapshot:
        snapshot = snapshot_of(self._beginning, evs, t)
        self._faults = FaultEvents(self._t0_ns)
        self._faults.add(snapshot.flows, snapshot.evs)
        self._known = {(ev.flow, ev.ev) for ev in snapshot.evs}
        return self._numbered(snapshot)

    def step(
        self,
        tables: Tables,
        faults: Sequence[FaultRecord],
        health: Sequence[HealthSample],
        begin_s: float,
        end_s: float,
        opened: Sequence[OpenedFlow] = (),
        ended: Collection[int] = (),
    ) -> Iterator[StreamRecord]:
        """The records of one step: events in order of time, then the state at its end.

        Args:
            tables: the rows between the two times.
            faults: the newest record of every fault so far.
            health: the samples that are new.
            begin_s: when the step begins, in seconds of the run.
            end_s: when it ends.
            opened: the flows that are new.
            ended: the flows whose program has ended.
        """
        yield from self._opened(tables, opened, begin_s)
        events: list[StreamRecord] = [*self._faults.changes(faults, end_s)]
        for change in _ev_changes(tables):
            events += [change, *self._faults.detections(change)]
        events += _findings(tables)
        events += _operator_commands(tables)
        events += self._verdicts(health, faults, end_s)
        events.sort(key=lambda record: record.t)
        if self._follower is not None:
            events.append(self._follower.batch(tables, end_s))
        for record in [*events, self._measures.state(tables, begin_s, end_s)]:
            yield self._numbered(record)
        yield from self._ended(ended, end_s)

    def _opened(
        self, tables: Tables, opened: Sequence[OpenedFlow], t: float
    ) -> Iterator[StreamRecord]:
        """The flows that are new, and the EVs of which no record has told."""
        beginning = self._beginning
        nodes = {node.name: node for node in beginning.topology.hosts} if opened else {}
        self._unopened += (Flow(o.flow, nodes[o.src], nodes[o.dst], o.lane, job=-1) for o in opened)
        self._first += (s for s in first_states(tables) if (s.flow, s.ev) not in self._known)
        with_evs = {state.flow for state in self._first}
        new: list[Flow] = []
        while self._unopened and self._unopened[0].number in with_evs:  # in the order of numbers
            new.append(self._unopened.popleft())
        self._flows |= {flow.number: flow for flow in new}
        first = [state for state in self._first if state.flow in self._flows]
        if not first:
            return
        self._first = [state for state in self._first if state.flow not in self._flows]
        self._known |= {(state.flow, state.ev) for state in first}
        flows = tuple(flow_ends(flow, beginning) for flow in new)
        evs = tuple(ev_path(beginning.topology, self._flows, state) for state in first)
        self._faults.add(flows, evs)
        yield self._numbered(Opened(t=t, flows=flows, evs=evs))
        if new and beginning.slow_motion:
            self._follow(new[-1])

    def _ended(self, flows: Collection[int], t: float) -> Iterator[StreamRecord]:
        """The flows that have ended, of those that the stream has."""
        self._ending |= set(flows)
        known = self._ending & self._flows.keys()
        if known:
            self._ending -= known
            yield self._numbered(Ended(t=t, flows=tuple(sorted(known))))

    def _follow(self, flow: Flow) -> None:
        beginning = self._beginning
        self._follower = PacketFollower(beginning.topology, flow, beginning.base_rtt_s)

    def end(
        self, outcome: str, t: float, verdict: str | None = None, reasons: Sequence[str] = ()
    ) -> Iterator[StreamRecord]:
        """The last records: the final verdict, where there is one, and how the run ended."""
        if verdict is not None:
            yield self._numbered(
                VerdictChange.model_validate(
                    {"t": t, "verdict": verdict, "reasons": tuple(reasons), "final": True}
                )
            )
        yield self._numbered(RunEnd(t=t, outcome=outcome))

    def _numbered(self, record: _Kind) -> _Kind:
        number, self._next_id = self._next_id, self._next_id + 1
        return record.model_copy(update={"id": number})

    def _verdicts(
        self, health: Sequence[HealthSample], faults: Sequence[FaultRecord], t: float
    ) -> Iterator[VerdictChange]:
        """The verdict so far, by what no later second can make good, if it has become worse."""
        if not health:
            return
        since_ns = max(self._t0_ns, health[-1].t_ns - _JUDGED_NS)
        self._health = [sample for sample in (*self._health, *health) if sample.t_ns >= since_ns]
        base_rtt_ns = round(self._beginning.base_rtt_s * NS_PER_S)
        grades = sorted(lasting_lateness(self._health, faults, base_rtt_ns), reverse=True)
        if grades and grades[0][0] > self._verdict:
            self._verdict = grades[0][0]
            verdict = self._verdict.name.lower()
            reasons = tuple(sentence for _, sentence in grades)
            yield VerdictChange.model_validate({"t": t, "verdict": verdict, "reasons": reasons})


def first_states(tables: Tables) -> list[FirstState]:
    """Every EV as it is at the beginning, from the rows of `ev_events`."""
    return [
        FirstState(change.flow, change.ev, change.new, change.active)
        for change in _all_ev_rows(tables)
        if not change.old
    ]


def _ev_changes(tables: Tables) -> Iterator[EvChange]:
    return (change for change in _all_ev_rows(tables) if change.old)


def _all_ev_rows(tables: Tables) -> Iterator[EvChange]:
    rows = tables.get(EV_EVENTS)
    if rows is None:
        return
    names = "t", "flow", "ev", "plane", "old", "new", "active", "reason"
    for values in zip(*(rows[name].tolist() for name in names), strict=True):
        yield EvChange.model_validate(dict(zip(names, values, strict=True)))


def _findings(tables: Tables) -> Iterator[SuspectChange]:
    rows = tables.get(FINDINGS)
    if rows is None:
        return
    columns = (rows[name].tolist() for name in ("t", "raised", "kind", "suspect", "loss_ppm"))
    for t, raised, kind, suspect, loss_ppm in zip(*columns, strict=True):
        yield SuspectChange(t=t, raised=raised, kind=kind, suspect=suspect, loss=loss_ppm / PPM)


def _operator_commands(tables: Tables) -> Iterator[OperatorCommand]:
    rows = tables.get(OPERATOR)
    if rows is None:
        return
    names = "t", "by", "kind", "host", "flow", "plane", "ev", "result", "rtt_ns"
    for t, by, kind, host, flow, plane, ev, result, rtt_ns in zip(
        *(rows[name].tolist() for name in names), strict=True
    ):
        of_ev = {"flow": flow, "ev": ev} if flow >= 0 else {}
        rtt = {"rtt_s": rtt_ns / NS_PER_S} if rtt_ns >= 0 else {}
        values = {"t": t, "by": by, "kind": kind, "host": host, "plane": plane, "result": result}
        yield OperatorCommand.model_validate({**values, **of_ev, **rtt})
