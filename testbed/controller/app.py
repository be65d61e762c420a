"""The Ryu application: connects the switch, plays the timeline, reports what happened."""

import logging
import time
from collections.abc import Callable
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
    wait_readable,
)
from testbed.controller.actuators import Actuator, LinkActuator, LinkControl, OpenFlowActuator
from testbed.controller.channel import Channel
from testbed.controller.openflow import Session, SwitchError
from testbed.controller.plan import ControllerPlan
from testbed.controller.records import FaultLog, FaultRecord
from testbed.controller.timeline import Action, Step, play, schedule
from testbed.fabric.openvswitch import purge_datapath
from testbed.model.errors import TestbedError
from testbed.model.faults import FaultKind

RECONNECT_TIMEOUT_S = 3.0
"""How long a fault waits for a switch that has gone; Open vSwitch tries again every second."""

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
        self._log = FaultLog(plan.run_directory / "faults.jsonl")
        self._t0_ns: int | None = None
        self._session: Session | None = None
        self._connected = hub.Event()
        self._ready = hub.Event()
        self._links = links
        self._on_links = LinkActuator(links, self._clock)
        self._on_wires = OpenFlowActuator(
            plan.openflow_wires,
            self._present_session,
            lambda: purge_datapath(plan.switch_directory),
            links,
            self._clock,
        )

    def start(self) -> Any:
        """Start to handle events and to obey; returns the green thread that obeys."""
        super().start()
        return hub.spawn(self._obey)

    # --- the experiment -------------------------------------------------------------------

    def _obey(self) -> None:
        """Report what there is, play the timeline when told, end when told or left alone."""
        if self._plan.wires:
            self._channel.send({"listening": self._plan.port})
        else:
            self._channel.send({"ready": True, "datapath": None})
        for message in self._channel.messages(wait_readable):
            log.info("told %s", message)
            match message:
                case {"start": int(t0_ns)}:
                    hub.spawn(self._play, t0_ns)
                case {"stop": True}:
                    break
                case _:
                    raise ValueError(f"not a command: {message}")
        self._conclude()
        self.status = 1 if self._log.has_errors else 0

    def _play(self, t0_ns: int) -> None:
        """Play the timeline, the targets beside each other."""
        self._t0_ns = t0_ns
        for fault in self._plan.faults:
            self._links.open(fault.target)
        threads = [
            hub.spawn(play, actions, t0_ns, self._clock, self._perform)
            for actions in schedule(self._plan.faults).values()
        ]
        hub.joinall(threads)
        self._channel.send({"done": True, "failed": self._log.has_errors})

    def _report(self, record: FaultRecord) -> None:
        self._log.put(record)
        self._channel.send({"fault": record.as_json()})
        log.info("%s", record)

    # --- faults ---------------------------------------------------------------------------

    def _actuator(self, target: str) -> Actuator:
        return self._on_wires if target in self._plan.wires else self._on_links

    def _perform(self, action: Action, due_ns: int) -> None:
        if action.step is Step.INJECT:
            self._inject(action.index, due_ns)
        elif self._is_active(action.index):
            self._heal(action.index, due_ns)

    def _is_active(self, index: int) -> bool:
        record = self._log.records.get(index)
        return record is not None and record.effective_ns is not None and record.healed_ns is None

    def _inject(self, index: int, due_ns: int) -> None:
        fault = self._plan.faults[index]
        actuator = self._actuator(fault.target)
        record = FaultRecord(index, fault.kind, fault.target, actuator.name, due_ns)
        inject = actuator.cut if fault.kind is FaultKind.CUT else actuator.blackhole
        try:
            effect = inject(fault.target)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d did not take effect", index)
            self._report(replace(record, error=str(error)))
            return
        self._report(
            replace(
                record,
                effective_after_ns=effect.after_ns,
                effective_ns=effect.by_ns,
                proof={"injected": effect.proof},
            )
        )

    def _heal(self, index: int, due_ns: int) -> None:
        record = replace(self._log.records[index], heal_asked_ns=due_ns)
        actuator = self._actuator(record.target)
        record = self._prove(record, actuator)
        try:
            effect = actuator.heal(record.target)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d did not heal", index)
            self._report(replace(record, error=record.error or str(error)))
            return
        self._report(
            replace(
                record,
                heal_after_ns=effect.after_ns,
                healed_ns=effect.by_ns,
                proof={**record.proof, "healed": effect.proof},
            )
        )

    def _prove(self, record: FaultRecord, actuator: Actuator) -> FaultRecord:
        try:
            proof = actuator.prove(record.target)
        except Exception as error:  # whatever it is, the record says so and the run fails
            log.exception("fault %d has no proof", record.index)
            return replace(record, error=str(error))
        return replace(record, proof={**record.proof, "until_end": proof})

    def _conclude(self) -> None:
        """Prove what is not healed by the end of the run, and own up to what was never begun."""
        for index, fault in enumerate(self._plan.faults):
            actuator = self._actuator(fault.target)
            record = self._log.records.get(index)
            if record is None:
                asked_ns = None if self._t0_ns is None else self._t0_ns + fault.at
                never = FaultRecord(index, fault.kind, fault.target, actuator.name, asked_ns)
                self._log.put(replace(never, error="the run ended before it was due"))
            elif self._is_active(index) and record.error is None:
                self._log.put(self._prove(record, actuator))

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
