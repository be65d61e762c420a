"""Plays faults: takes each through its course when it is due, proves it, and records it."""

import gc
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.emulation.controller._ryu import hub
from testbed.emulation.controller.actuators import Clock, Places, wait_until
from testbed.emulation.controller.plan import ControllerPlan
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.errors import Problem
from testbed.model.fabric.names import link_of
from testbed.model.faults.checks import busy_problems, conflict
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.kinds import Fault, OperationStart
from testbed.model.faults.record import FAULTS, FaultRecord, StepRecord, entry_of
from testbed.model.faults.schedule import CONTROLLER, ScheduledFault, schedule_fault

# --------------------------------------------------------------------------------------------------
# The file `faults.jsonl` while a run goes on: the newest record of every fault so far.
#
# At every change the whole file is written anew beside the old one and renamed over it. So a reader
# never sees half a line or a fault twice, and the file is complete even if the controller is killed
# the moment after.


class FaultLog:
    """The records of a run by the faults' numbers, in memory and in the file."""

    def __init__(self, path: Path) -> None:
        """Write an empty file."""
        self._path = path
        self._lines: dict[int, tuple[FaultRecord, str]] = {}
        self.records: dict[int, FaultRecord] = {}
        self._write()

    def write(self, record: FaultRecord) -> None:
        """Replace a fault's record, and write the file."""
        self.records[record.index] = record
        self._write()

    def update(self, record: FaultRecord) -> None:
        """Replace a fault's record; the file is written later, as the record changes again soon."""
        self.records[record.index] = record

    @property
    def has_errors(self) -> bool:
        """Whether any fault failed to take effect, to hold or to heal."""
        return any(record.error is not None for record in self.records.values())

    def _write(self) -> None:
        _replace(self._path, [self._line(record) for _, record in sorted(self.records.items())])

    def _line(self, record: FaultRecord) -> str:
        """The record's line; only changed records are formatted, as other faults wait meanwhile."""
        formatted = self._lines.get(record.index)
        if formatted is None or formatted[0] is not record:
            formatted = self._lines[record.index] = record, record.to_line()
        return formatted[1]


def amend(path: Path, change: Callable[[FaultRecord], FaultRecord]) -> None:
    """Change every record of a file whose writer has ended."""
    records = map(FaultRecord.from_line, path.read_text(encoding="utf-8").splitlines())
    _replace(path, [change(record).to_line() for record in records])


def _replace(path: Path, lines: Iterable[str]) -> None:
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    new.replace(path)


ANSWER_POLL_S = 0.0005

REPLY_TIME_NS = 50_000_000
"""How long a controller that is to be killed by hand has to reply first."""

RECORDED_AT_ONCE = ("carrier", "read_back", "stopped", "ended", "busy", "refused")
"""The proof that is recorded when a fault takes effect and when it heals; counters come later."""

log = logging.getLogger("testbed.emulation.controller")


class FaultPlayer:
    """Plays the faults of one run: those of the timeline, and those injected by hand."""

    def __init__(
        self,
        plan: ControllerPlan,
        places: Places,
        links: LinkControl,
        clock: Clock,
        report: Callable[[FaultRecord], None],
    ) -> None:
        """Play nothing yet.

        Args:
            plan: the faults of the timeline, and the fabric.
            places: where faults act.
            links: control over links, opened before a fault is due.
            clock: the clock.
            report: called with a fault's record when it has taken effect, has healed or failed.
        """
        self._plan = plan
        self._places = places
        self._links = links
        self._clock = clock
        self._report = report
        self._log = FaultLog(plan.run_directory / FAULTS)
        self._t0_ns: int | None = None
        self._begun: dict[OperationStart, int] = {}
        self._begins = defaultdict[OperationStart, Any](hub.Event)
        self._healed_by_hand = set[int]()
        self._entries: dict[int, Mapping[str, Any]] = {}
        self._locks = defaultdict[int, Any](hub.Semaphore)
        self._is_over = False
        self._asks_until_ns: float = math.inf
        self._playing: list[tuple[ScheduledFault, Any]] = []

    @property
    def has_errors(self) -> bool:
        """Whether any fault did not go as asked."""
        return self._log.has_errors

    def open_links(self) -> None:
        """Prepare the links that the timeline strikes, before anything is due."""
        for fault in self._plan.faults:
            self._open_links(fault)

    def play(self, t0_ns: int) -> None:
        """Play the timeline from a time on, its faults beside each other; return at its end."""
        self._t0_ns = t0_ns
        gc.freeze()  # Ryu's objects stay: examining them would delay a fault
        faults = self._plan.faults
        self._playing = [(fault, hub.spawn(self._play, fault, t0_ns)) for fault in faults]
        hub.joinall([thread for _, thread in self._playing])

    def begun(self, start: OperationStart, at_ns: int) -> None:
        """Note when an operation of the programs began: faults wait for it."""
        self._begun.setdefault(start, at_ns)
        self._begins[start].set()

    def _origin_ns(self, fault: ScheduledFault) -> int | None:
        """From when on the times of a fault count; None if that is not known yet."""
        return self._t0_ns if fault.after is None else self._begun.get(fault.after)

    def await_healing(self, end_ns: int) -> None:
        """Wait until the faults of the timeline have healed that heal until a time.

        What has begun by then has taken effect, too. From then on nobody takes messages to
        endpoints, so faults `busy` stay as they are.
        """
        self._asks_until_ns = end_ns
        hub.joinall(
            [
                thread
                for fault, thread in self._playing
                if fault.heals_at_ns is not None
                and (origin_ns := self._origin_ns(fault)) is not None
                and origin_ns + fault.heals_at_ns <= end_ns
            ]
        )
        for fault, _ in self._playing:
            with self._locks[fault.index]:
                pass  # a step that had begun is over

    def conclude(self) -> None:
        """Prove the faults that have not healed, and record those that never began."""
        if self._t0_ns is None:
            return
        for fault in self._plan.faults:
            if fault.index not in self._log.records:
                origin_ns = self._origin_ns(fault)
                error = "the run ended before it was due"
                if origin_ns is None:
                    error = f"the run ended before {fault.after} began"
                record = self._new_record(fault, (origin_ns or self._t0_ns) + fault.at_ns)
                self._log.write(replace(record, error=error))
        for record in self.records().values():
            if record.effective_ns is not None and record.healed_ns is None and not record.error:
                self._log.write(self._with_proof(record, "until_end"))

    def before_kill(self, name: str) -> None:
        """Record that the controller is about to be killed; its parent records the outcome."""
        if name == CONTROLLER:
            now_ns = self._clock.now_ns()
            for record in list(self._log.records.values()):
                if CONTROLLER in record.places:
                    self._log.write(replace(record, effective_after_ns=now_ns))

    # --- by hand ----------------------------------------------------------------------------

    def records(self) -> Mapping[int, FaultRecord]:
        return dict(sorted(self._log.records.items()))

    def inject(self, fault: Fault) -> FaultRecord | Problem:
        """Inject a fault now; return when it has taken effect, or failed to.

        Returns a problem if the run has not begun or is over, or if the fault conflicts with
        another. A fault that kills the controller begins after the return.
        """
        t0_ns, now_ns = self._t0_ns, self._clock.now_ns()
        if self._is_over or t0_ns is None or now_ns < t0_ns:
            return Problem(
                "request",
                "a fault",
                "a run that has begun and is not over",
                "inject faults while the run shows running, or held",
            )
        plan, records = self._plan, self._log.records
        planned = plan.faults
        index = max([len(planned) - 1, *records]) + 1
        kills_itself = CONTROLLER in fault.target
        start = now_ns - t0_ns + (REPLY_TIME_NS if kills_itself else 0)
        seed = f"{plan.run_directory.name}/{index}"
        scheduled = schedule_fault(plan.topology, fault, index, start, seed)
        due = (other for other in planned if other.index not in records)
        busy = busy_problems(plan.topology, plan.transport, plan.flows, fault, "request")
        problem = next(busy, None) or conflict(scheduled, records.values(), due)
        if problem is not None:
            return problem
        self._open_links(scheduled)
        self._entries[index] = entry_of(fault)
        self._log.update(self._new_record(scheduled, t0_ns + scheduled.at_ns))
        thread = hub.spawn(self._play, scheduled, t0_ns)
        while not (kills_itself or thread.dead or self._log.records[index].effective_ns):
            self._clock.sleep(ANSWER_POLL_S)
        return self._log.records[index]

    def heal(self, index: int) -> FaultRecord | None:
        """Heal a fault now; None if it is not in force, or is of a kind that never heals."""
        requested_ns = self._clock.now_ns()
        with self._locks[index]:
            record = self._log.records.get(index)
            if record is None or record.effective_ns is None or record.healed_ns is not None:
                return None
            if any("dead" in step.state for step in record.steps):
                return None
            self._healed_by_hand.add(index)
            return self._heal(record, requested_ns)

    def heal_by_hand(self) -> None:
        """Heal what was injected by hand and is still in force, and inject no more."""
        self._is_over = True
        for index in sorted(self._log.records):
            if index >= len(self._plan.faults):
                self.heal(index)

    # --- a fault's course -------------------------------------------------------------------

    def _open_links(self, fault: ScheduledFault) -> None:
        for link in {link_of(place) for place in fault.places if ">" in place}:
            self._links.open(link)

    def _play(self, fault: ScheduledFault, t0_ns: int) -> None:
        if fault.after is not None:
            self._begins[fault.after].wait()
            t0_ns = self._begun[fault.after]
        first = fault.steps[0]
        record = self._new_record(fault, t0_ns + first.at_ns)
        for step in fault.steps:
            due_ns = t0_ns + step.at_ns
            wait_until(self._clock, due_ns)
            with self._locks[fault.index]:
                if fault.index in self._healed_by_hand:
                    return
                if fault.kind == "busy" and due_ns > self._asks_until_ns:
                    return
                if fault.is_healed_by(step):
                    self._heal(record, due_ns)
                    return
                if step is not first:
                    record = self._with_proof(record, "")
                self._log.update(record)
                record = self._with_step(record, step.state, due_ns)
                if step is first:
                    self._publish(record)
                self._log.update(record)
            if record.effective_ns is None:
                return

    def _new_record(self, fault: ScheduledFault, requested_ns: int) -> FaultRecord:
        actuator = self._places.actuators(fault.places)
        entry = self._entries.get(fault.index, {})
        return FaultRecord(
            fault.index, fault.kind, fault.target, fault.places, actuator, requested_ns, entry=entry
        )

    def _heal(self, record: FaultRecord, due_ns: int) -> FaultRecord:
        """Heal a fault, after a last proof that it has held until now."""
        record = replace(self._with_proof(record, "until_end"), heal_requested_ns=due_ns)
        record = self._with_step(record, HEALTHY, due_ns)
        self._publish(record)
        return record

    def _publish(self, record: FaultRecord) -> None:
        self._log.write(record)
        self._report(record)
        log.info("%s", record)

    def _with_step(self, record: FaultRecord, state: Impairment, due_ns: int) -> FaultRecord:
        """Bring a fault's places into their next state; an error is put into the record."""
        try:
            effect, proof = self._places.put(record.index, record.places, state)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d: a step did not take effect", record.index)
            self._places.forget(record.index, record.places)
            return replace(record, error=record.error or str(error))
        step = StepRecord(due_ns, effect.after_ns, effect.by_ns, state.as_record)
        record = replace(record, steps=(*record.steps, step))
        proof = {key: proof[key] for key in RECORDED_AT_ONCE if key in proof}
        if effect.routes:
            routes = record.proof.get("routes_read_back", 0) + effect.routes
            record = replace(record, proof={**record.proof, "routes_read_back": routes})
        if record.effective_ns is None:
            return replace(
                record,
                effective_after_ns=effect.after_ns,
                effective_ns=effect.by_ns,
                proof={**record.proof, "injected": proof},
            )
        if record.heal_requested_ns is None:
            return record
        return replace(
            record,
            heal_after_ns=effect.after_ns,
            healed_ns=effect.by_ns,
            proof={**record.proof, "healed": proof},
        )

    def _with_proof(self, record: FaultRecord, key: str) -> FaultRecord:
        """Check that a fault has held until now; record the proof under a key, if it is given."""
        try:
            proof = self._places.prove(record.places)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d has no proof", record.index)
            return replace(record, error=record.error or str(error))
        return replace(record, proof={**record.proof, key: proof}) if key else record
