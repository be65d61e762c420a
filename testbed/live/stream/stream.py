"""The event stream of a run, from the rows of its tables and the records of its faults.

The rows may come from a run that goes on (`tail.py`) or from a finished one (`recorded.py`).
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from testbed.live.stream.measures import Measures, Tables
from testbed.live.stream.packets import PacketFollower
from testbed.live.stream.records import (
    Detection,
    Ended,
    EvChange,
    EvPath,
    FaultChange,
    FlowEnds,
    Opened,
    OperatorCommand,
    Record,
    RunEnd,
    Snapshot,
    StreamRecord,
    SuspectChange,
    VerdictChange,
)
from testbed.live.stream.snapshot import (
    Beginning,
    FirstState,
    ev_path,
    flow_ends,
    flows_of_beginning,
    snapshot_of,
)
from testbed.model.faults.impairment import PPM
from testbed.model.faults.record import FaultRecord
from testbed.model.flows import Flow
from testbed.model.run_files.health import HealthSample
from testbed.model.run_files.run import OpenedFlow
from testbed.model.units import NS_PER_S
from testbed.results.analysis.lateness import Level, lasting_lateness
from testbed.results.records import EV_EVENTS, FINDINGS, OPERATOR

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
