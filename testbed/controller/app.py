"""The Ryu application: connects the switch, plays the timeline, reports what happened."""

import gc
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from testbed.controller._ryu import (
    DEAD,
    MAIN,
    HubClock,
    RyuApp,
    events,
    hub,
    ofproto,
    on,
    serve,
    wait_readable,
)
from testbed.controller.actuators import (
    EndpointActuator,
    LinkActuator,
    LinkControl,
    OpenFlowActuator,
)
from testbed.controller.live import SOCKET, LiveControl
from testbed.controller.openflow import Session, SwitchError
from testbed.controller.overlap import in_the_way
from testbed.controller.places import Places
from testbed.controller.plan import ControllerPlan
from testbed.controller.records import FaultLog
from testbed.controller.timeline import wait_until
from testbed.fabric.openvswitch.daemons import DecisionCache
from testbed.model.errors import Problem, TestbedError
from testbed.model.fabric.names import link_of
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FAULTS, FaultRecord, StepRecord
from testbed.model.faults.schedule import ScheduledFault, schedule_fault
from testbed.model.faults.targets import CONTROLLER
from testbed.sandbox.channel import Channel

RECONNECT_TIMEOUT_S = 3.0
"""How long a fault waits for a switch that has gone; Open vSwitch tries again every second."""

ANSWER_POLL_S = 0.0005

LAST_WORDS_NS = 50_000_000
"""What a controller that is to be killed by hand is given to answer."""

SHOWN_AT_ONCE = ("carrier", "read_back", "stopped", "ended")
"""What is shown when a fault has taken effect, and has healed; counters tell more later."""

log = logging.getLogger("testbed.controller")


class Controller(RyuApp):
    """Owns the timeline of one run.

    With wires it waits for the switch and answers every connection with their flows; without,
    it has no switch and acts on the links themselves. It obeys the experiment at the other end
    of the channel, and ends with it.
    """

    OFP_VERSIONS = (ofproto.OFP_VERSION,)

    def __init__(
        self,
        *args: Any,
        plan: ControllerPlan,
        channel: Channel,
        links: LinkControl,
        **kwargs: Any,
    ) -> None:
        """Send nothing yet.

        Args:
            args: Ryu's.
            plan: what to do.
            channel: to the experiment.
            links: control over links.
            kwargs: Ryu's.
        """
        super().__init__(*args, **kwargs)
        self.status = 1
        self._plan = plan
        self._channel = channel
        self._clock = HubClock()
        self._log = FaultLog(plan.run_directory / FAULTS)
        self._t0_ns: int | None = None
        self._healed_by_hand = set[int]()
        self._turns = defaultdict[int, Any](hub.Semaphore)
        self._over = False
        self._socket = plan.run_directory / SOCKET
        self._session: Session | None = None
        self._connected = hub.Event()
        self._ready = hub.Event()
        self._links = links
        self._on_endpoints = EndpointActuator(self._clock, self._before_end)
        self._decisions = DecisionCache(plan.switch_directory)
        self._on_wires = OpenFlowActuator(
            plan.openflow_wires,
            self._present_session,
            self._decisions.purge,
            links,
            self._clock,
        )
        self._places = Places(
            self._on_wires,
            LinkActuator(links, self._clock, plan.wires),
            self._on_endpoints,
            plan.wires,
            hub.Semaphore,
        )

    def start(self) -> Any:
        """Start to handle events and to obey; returns the green thread that obeys."""
        super().start()
        return hub.spawn(self._obey)

    # --- the experiment -------------------------------------------------------------------

    def _obey(self) -> None:
        """Report what there is, play the timeline when told, end when told or left alone."""
        for message in self._channel.messages(wait_readable):
            log.info("told %s", message)
            match message:
                case {"built": True}:
                    self._get_ready()
                case {"start": int(t0_ns), "endpoints": dict(pids)}:
                    self._on_endpoints.pids = {**pids, CONTROLLER: os.getpid()}
                    hub.spawn(self._play, t0_ns)
                case {"heal": True}:
                    self._heal_by_hand()
                    self._channel.send({"healed": True})
                case {"stop": True}:
                    break
                case _:
                    raise ValueError(f"not a command: {message}")
        self._socket.unlink(missing_ok=True)
        self._conclude()
        self.status = 1 if self._log.has_errors else 0

    def _get_ready(self) -> None:
        """Open what is needed of a fabric that stands, and listen to the user and the switch."""
        hub.spawn(serve, self._socket, LiveControl(self._plan.topology, self))
        for link in {link_of(p) for one in self._plan.faults for p in one.places if ">" in p}:
            self._links.open(link)  # before anything is due
        if self._plan.wires:
            self._channel.send({"listening": self._plan.port})
        else:
            self._channel.send({"ready": True, "datapath": None})

    def _play(self, t0_ns: int) -> None:
        """Play the timeline, the faults beside each other."""
        self._t0_ns = t0_ns
        gc.freeze()  # Ryu's objects stay: to look through them would make a fault late
        hub.joinall([hub.spawn(self._run, one, t0_ns) for one in self._plan.faults])
        self._channel.send({"done": True, "failed": self._log.has_errors})

    def _report(self, record: FaultRecord) -> None:
        self._log.put(record)
        self._channel.send({"fault": record.as_json()})
        log.info("%s", record)

    # --- faults ---------------------------------------------------------------------------

    def _run(self, fault: ScheduledFault, t0_ns: int) -> None:
        """Take one fault through its course."""
        first = fault.steps[0]
        record = self._new_record(fault, t0_ns + first.at)
        for step in fault.steps:
            due_ns = t0_ns + step.at
            wait_until(self._clock, due_ns)
            with self._turns[fault.index]:
                if fault.index in self._healed_by_hand:
                    return
                if fault.is_healed_by(step):
                    self._end(record, due_ns)
                    return
                if step is not first:
                    record = self._proven(record, "")
                self._log.keep(record)
                record = self._stepped(record, step.state, due_ns)
                if step is first:
                    self._report(record)
                self._log.keep(record)
            if record.effective_ns is None:
                return

    def _before_end(self, name: str) -> None:
        """Say that a process is about to end; what came of our own end, our parent adds."""
        if name == CONTROLLER:
            now_ns = self._clock.now_ns()
            for record in list(self._log.records.values()):
                if CONTROLLER in record.places:
                    self._log.put(replace(record, effective_after_ns=now_ns))
        self._channel.send({"ends": name})

    def _new_record(self, fault: ScheduledFault, asked_ns: int) -> FaultRecord:
        actuator = self._places.actuators(fault.places)
        return FaultRecord(fault.index, fault.kind, fault.target, fault.places, actuator, asked_ns)

    def _end(self, record: FaultRecord, due_ns: int) -> FaultRecord:
        """Heal a fault, with a last proof that it has held until now."""
        record = replace(self._proven(record, "until_end"), heal_asked_ns=due_ns)
        record = self._stepped(record, HEALTHY, due_ns)
        self._report(record)
        return record

    def _stepped(self, record: FaultRecord, state: Impairment, due_ns: int) -> FaultRecord:
        """Bring a fault's places into their next state; what goes wrong stands in the record."""
        try:
            effect, shown = self._places.put(record.index, record.places, state)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d: a step did not take effect", record.index)
            self._places.forget(record.index, record.places)
            return replace(record, error=record.error or str(error))
        step = StepRecord(due_ns, effect.after_ns, effect.by_ns, state.as_record)
        record = replace(record, steps=(*record.steps, step))
        proof = {key: shown[key] for key in SHOWN_AT_ONCE if key in shown}
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
        if record.heal_asked_ns is None:
            return record
        return replace(
            record,
            heal_after_ns=effect.after_ns,
            healed_ns=effect.by_ns,
            proof={**record.proof, "healed": proof},
        )

    def _proven(self, record: FaultRecord, key: str) -> FaultRecord:
        """Show that a fault has held until now; kept under a key, or only looked at."""
        try:
            shown = self._places.prove(record.places)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d has no proof", record.index)
            return replace(record, error=record.error or str(error))
        return replace(record, proof={**record.proof, key: shown}) if key else record

    def _conclude(self) -> None:
        """Prove the faults that have not healed, and record those that never began."""
        if self._t0_ns is None:
            return
        for fault in self._plan.faults:
            if fault.index not in self._log.records:
                record = self._new_record(fault, self._t0_ns + fault.at)
                self._log.put(replace(record, error="the run ended before it was due"))
        for record in self.records().values():
            if record.effective_ns is not None and record.healed_ns is None and not record.error:
                self._log.put(self._proven(record, "until_end"))

    # --- faults by hand -------------------------------------------------------------------

    def records(self) -> Mapping[int, FaultRecord]:
        """Every fault so far, by its number."""
        return dict(sorted(self._log.records.items()))

    def inject(self, fault: Fault) -> FaultRecord | Problem:
        """Inject a fault now and wait until it has taken effect, or has not.

        A problem where the run has not begun, or is over, and where another fault of the kind is
        in the way. What kills the controller begins when the record has been told.
        """
        t0_ns, now_ns = self._t0_ns, self._clock.now_ns()
        if self._over or t0_ns is None or now_ns < t0_ns:
            return Problem(
                "request",
                "a fault",
                "a run that has begun and is not over",
                "faults are taken while it says running, or held",
            )
        planned, records = self._plan.faults, self._log.records
        index = max([len(planned) - 1, *records]) + 1
        suicide = CONTROLLER in fault.target
        begin = now_ns - t0_ns + (LAST_WORDS_NS if suicide else 0)
        seed = f"{self._plan.run_directory.name}/{index}"
        one = schedule_fault(self._plan.topology, fault, index, begin, seed)
        due = (other for other in planned if other.index not in records)
        problem = in_the_way(one, records.values(), due)
        if problem is not None:
            return problem
        for link in {link_of(place) for place in one.places if ">" in place}:
            self._links.open(link)
        self._log.keep(self._new_record(one, t0_ns + one.at))
        thread = hub.spawn(self._run, one, t0_ns)
        while not (suicide or thread.dead or self._log.records[index].effective_ns):
            self._clock.sleep(ANSWER_POLL_S)
        return self._log.records[index]

    def heal(self, index: int) -> FaultRecord | None:
        """Heal a fault now; None if it is not in force, or is of those that never heal."""
        asked_ns = self._clock.now_ns()
        with self._turns[index]:
            record = self._log.records.get(index)
            if record is None or record.effective_ns is None or record.healed_ns is not None:
                return None
            if any("dead" in step.state for step in record.steps):
                return None
            self._healed_by_hand.add(index)
            return self._end(record, asked_ns)

    def _heal_by_hand(self) -> None:
        """Heal whatever by hand is still in force, and inject no more."""
        self._over = True
        for index in sorted(self._log.records):
            if index >= len(self._plan.faults):
                self.heal(index)

    # --- the switch -----------------------------------------------------------------------

    def _present_session(self) -> Session:
        if not self._connected.wait(RECONNECT_TIMEOUT_S) or self._session is None:
            raise SwitchError(f"the switch is not connected, for {RECONNECT_TIMEOUT_S:g} s")
        return self._session

    @on(events.EventOFPStateChange, MAIN, DEAD)
    def _state_changed(self, event: Any) -> None:
        """A switch has completed its handshake, or has gone."""
        if event.state == MAIN:
            session = Session(event.datapath)
            self._session = session
            hub.spawn(self._adopt, session)
        elif self._session is not None and self._session.datapath is event.datapath:
            log.warning("the switch disconnected")
            self._connected.clear()
            self._session.close()
            self._session = None

    def _adopt(self, session: Session) -> None:
        """Install wires and active faults; not in an event handler, as it waits for events."""
        began_ns = time.monotonic_ns()
        try:
            self._decisions.look()
            self._on_wires.install(session)
        except TestbedError:
            log.exception("the switch did not take the wires; hanging up")
            session.datapath.close()
            return
        log.info("wires installed in %.1f ms", (time.monotonic_ns() - began_ns) / 1e6)
        self._connected.set()
        if not self._ready.is_set():
            self._ready.set()
            self._channel.send({"ready": True, "datapath": f"{session.datapath.id:016x}"})

    @on(events.EventOFPBarrierReply, MAIN)
    def _barrier_replied(self, event: Any) -> None:
        self._to_session(event, Session.barrier_replied)

    @on(events.EventOFPPortDescStatsReply, MAIN)
    def _ports_described(self, event: Any) -> None:
        self._to_session(event, Session.stats_replied)

    @on(events.EventOFPFlowStatsReply, MAIN)
    def _flows_counted(self, event: Any) -> None:
        self._to_session(event, Session.stats_replied)

    @on(events.EventOFPPortStatus, MAIN)
    def _port_changed(self, event: Any) -> None:
        self._to_session(event, Session.port_changed)

    @on(events.EventOFPErrorMsg, MAIN)
    def _refused(self, event: Any) -> None:
        message = event.msg
        log.error("the switch refused: type %d, code %d", message.type, message.code)
        self._to_session(event, Session.refused)

    def _to_session(self, event: Any, take: Callable[[Session, Any], None]) -> None:
        if self._session is not None and self._session.datapath is event.msg.datapath:
            take(self._session, event.msg)
