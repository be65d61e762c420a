"""The faults of a scenario's timeline and by hand, in virtual time, and their records."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from testbed.model.errors import Problem
from testbed.model.fabric.names import direction_named
from testbed.model.fabric.nodes import Node
from testbed.model.faults.checks import EMULATED_ONLY, busy_problems, conflict
from testbed.model.faults.impairment import HEALTHY, ActiveFaults
from testbed.model.faults.kinds import Fault, OperationStart
from testbed.model.faults.record import FaultRecord, StepRecord, entry_of
from testbed.model.faults.schedule import ScheduledFault, Step, schedule_fault
from testbed.model.scenario import Scenario
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric


class Struck(Protocol):
    """A host, as faults strike it."""

    @property
    def refused_busy(self) -> int: ...

    def port_changed(self, now_ns: int, plane: int, *, up: bool) -> None:
        """Act on the loss or the return of the carrier of the port of a plane."""
        ...

    def set_busy(self, state: Mapping[str, Any]) -> None:
        """Apply a fault `busy`."""
        ...


class FaultInjection:
    """Applies faults to a simulated fabric, and records when they took effect, with proof.

    They take effect exactly at their times. The proof of a fault is the number of packets that were
    dropped, damaged or refused while it was in force, by direction or host.
    """

    def __init__(
        self, scenario: Scenario, engine: Engine, fabric: Fabric, hosts: Mapping[Node, Struck]
    ) -> None:
        """Begin without faults; `hosts` learn of the carrier of their own ports."""
        self._scenario = scenario
        self._topology = scenario.topology
        self._engine = engine
        self._fabric = fabric
        self._hosts = hosts
        self._active = ActiveFaults()
        self._faults: dict[int, ScheduledFault] = {}
        self._records: dict[int, FaultRecord] = {}
        self._dropped_before: dict[int, dict[str, int]] = {}
        self._healed_by_hand: set[int] = set()
        self._entries: dict[int, Mapping[str, Any]] = {}
        self._t0_ns = 0

    def begin(self, t0_ns: int) -> None:
        """Schedule every step of the timeline, at its time after `t0_ns`, or as `begun` says."""
        self._t0_ns = t0_ns
        for fault in self._scenario.scheduled_faults:
            self._faults[fault.index] = fault
            if fault.after is None:
                self._play(fault, t0_ns)

    def begun(self, start: OperationStart) -> None:
        """Begin the faults now that wait for an operation of the programs."""
        for fault in [*self._faults.values()]:
            if fault.after == start:
                self._play(fault, self._engine.now_ns)

    def _play(self, fault: ScheduledFault, origin_ns: int) -> None:
        for step in fault.steps:
            self._engine.at(origin_ns + step.at_ns, self._step, (fault, step))

    def records(self) -> Mapping[int, FaultRecord]:
        """The record of every fault that has taken effect, in the order of the timeline."""
        for index, record in self._records.items():
            if record.healed_ns is None:
                self._records[index] = replace(record, proof=self._proof(self._faults[index]))
        return dict(sorted(self._records.items()))

    def inject(self, fault: Fault) -> FaultRecord | Problem:
        """Begin a fault by hand now, and return its record, or the problem that it has."""
        now_ns = self._engine.now_ns
        if fault.needs_process:
            expected = "another fault: this one strikes a process, and the simulator has none"
            return Problem("request", fault.kind, expected, EMULATED_ONLY)
        transport = self._scenario.transport.kind
        flows = () if self._scenario.programs else self._scenario.flows
        problem = next(busy_problems(self._topology, transport, flows, fault, "request"), None)
        if problem is not None:
            return problem
        index = max(self._faults, default=-1) + 1
        scheduled = schedule_fault(
            self._topology, fault, index, now_ns - self._t0_ns, f"hand/{index}"
        )
        due = (other for i, other in self._faults.items() if i not in self._records)
        problem = conflict(scheduled, self._records.values(), due)
        if problem is not None:
            return problem
        self._faults[index] = scheduled
        self._entries[index] = entry_of(fault)
        first, *later = scheduled.steps
        self._step(now_ns, (scheduled, first))
        for step in later:
            self._engine.at(self._t0_ns + step.at_ns, self._step, (scheduled, step))
        return self._records[index]

    def heal(self, index: int) -> FaultRecord | None:
        """Heal a fault now; None if it is not in force."""
        record = self._records.get(index)
        if record is None or record.healed_ns is not None:
            return None
        fault = self._faults[index]
        now_ns = self._engine.now_ns
        self._step(now_ns, (fault, Step(now_ns, HEALTHY)), heals=True)
        self._healed_by_hand.add(index)
        return self._records[index]

    def heal_by_hand(self) -> None:
        """Heal what was injected by hand and is still in force: the run ends."""
        for index in self._entries:
            self.heal(index)

    def _step(
        self, now_ns: int, fault_and_step: tuple[ScheduledFault, Step], *, heals: bool = False
    ) -> None:
        """Bring a fault's places into their next state."""
        fault, step = fault_and_step
        index = fault.index
        if index in self._healed_by_hand:
            return
        record = self._records.get(index)
        if record is None:
            self._dropped_before[index] = self._dropped(fault)
            record = FaultRecord(
                index,
                fault.kind,
                fault.target,
                fault.places,
                "simulator",
                requested_ns=now_ns,
                effective_after_ns=now_ns,
                effective_ns=now_ns,
                entry=self._entries.get(index, {}),
            )
        self._active.put(index, fault.places, step.state)
        for place in fault.places:
            state = self._active.impairment_at(place)
            if ">" not in place:
                self._host(place).set_busy(state.busy)
                continue
            self._fabric.impair(place, state)
            self._announce(now_ns, place, up=not state.cut)
        done = StepRecord(now_ns, now_ns, now_ns, step.state.as_record)
        record = replace(record, steps=(*record.steps, done))
        if heals or step is fault.steps[-1]:
            record = replace(
                record,
                heal_requested_ns=now_ns,
                heal_after_ns=now_ns,
                healed_ns=now_ns,
                proof=self._proof(fault),
            )
        self._records[index] = record

    def _announce(self, now_ns: int, direction: str, *, up: bool) -> None:
        """Tell a host that the carrier of its own port changed, as its NIC would."""
        named = direction_named(self._topology, direction)
        if named is not None and named[1].node in self._hosts:
            link, port = named
            self._hosts[port.node].port_changed(now_ns, link.plane, up=up)

    def _host(self, name: str) -> Struck:
        return self._hosts[self._topology.host_named(name)]

    def _dropped(self, fault: ScheduledFault) -> dict[str, int]:
        """Packets dropped or damaged so far on each direction, or refused by each host."""
        dropped = {}
        for place in fault.places:
            if ">" in place:
                c = self._fabric.named(place).counts
                dropped[place] = c.cut + c.blackholed + c.lost + c.corrupted
            else:
                dropped[place] = self._host(place).refused_busy
        return dropped

    def _proof(self, fault: ScheduledFault) -> dict[str, int]:
        before = self._dropped_before[fault.index]
        return {name: count - before[name] for name, count in self._dropped(fault).items()}
