"""The Ryu application: connects the switch, and follows the experiment's commands."""

import logging
import os
import time
from typing import Any

from testbed.control_api import RunRequests
from testbed.emulation.controller import _ryu
from testbed.emulation.controller.actuators import (
    EndpointActuator,
    LinkActuator,
    OpenFlowActuator,
    Places,
)
from testbed.emulation.controller.live import SOCKET, LiveControl, OperatorCommands
from testbed.emulation.controller.plan import ControllerPlan
from testbed.emulation.controller.player import FaultPlayer
from testbed.emulation.controller.session import Session, SwitchError
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.openvswitch import FlowCache
from testbed.model.errors import ExitStatus, TestbedError
from testbed.model.faults.kinds import OperationStart
from testbed.model.faults.record import FaultRecord
from testbed.model.faults.schedule import CONTROLLER
from testbed.sandbox.channel import Channel

RECONNECT_TIMEOUT_S = 3.0
"""How long a fault waits for a switch that has gone; Open vSwitch tries again every second."""

REPLIES = [
    _ryu.events.EventOFPBarrierReply,
    _ryu.events.EventOFPPortDescStatsReply,
    _ryu.events.EventOFPFlowStatsReply,
    _ryu.events.EventOFPPortStatus,
    _ryu.events.EventOFPErrorMsg,
]

log = logging.getLogger("testbed.emulation.controller")


class Controller(_ryu.RyuApp):
    """Owns the faults of one run.

    With wires it waits for the switch and installs their flows at every connection; without wires
    it has no switch and acts on the links themselves. It follows the commands of the experiment at
    the other end of the channel, and ends with it.
    """

    OFP_VERSIONS = (_ryu.ofproto.OFP_VERSION,)

    def __init__(
        self, *args: Any, plan: ControllerPlan, channel: Channel, links: LinkControl, **kwargs: Any
    ) -> None:
        """Send nothing yet."""
        super().__init__(*args, **kwargs)
        self.status: int = ExitStatus.CRASHED
        self._plan = plan
        self._channel = channel
        self._socket = plan.run_directory / SOCKET
        self._session: Session | None = None
        self._connected = _ryu.hub.Event()
        self._is_ready = False
        clock = _ryu.HubClock()
        self._flow_cache = FlowCache(plan.switch_directory)
        self._operator = OperatorCommands(plan.topology, channel.send, _ryu.hub.Event)
        self._endpoints = EndpointActuator(clock, self._before_kill, self._operator.set_busy)
        self._wires = OpenFlowActuator(
            plan.openflow_wires, self._present_session, self._flow_cache.purge, links, clock
        )
        on_links = LinkActuator(links, clock, plan.wires)
        places = Places(self._wires, on_links, self._endpoints, plan.wires, _ryu.hub.Semaphore)
        self._player = FaultPlayer(plan, places, links, clock, self._report)

    def start(self) -> Any:
        """Start to handle events and commands; return the green thread of the commands."""
        super().start()
        return _ryu.hub.spawn(self._follow)

    # --- the experiment -------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow the experiment's commands until it stops the controller, or ends."""
        for message in self._channel.messages(_ryu.wait_readable):
            log.info("received %s", message)
            if not self._handle_command(message):
                break
        self._socket.unlink(missing_ok=True)
        self._player.conclude()
        self.status = 1 if self._player.has_errors else 0

    def _handle_command(self, message: dict[str, Any]) -> bool:
        """Handle one command; return whether to go on."""
        match message:
            case {"built": True}:
                self._get_ready()
            case {"start": int(t0_ns), "endpoints": dict(pids)}:
                self._endpoints.pids = {**pids, CONTROLLER: os.getpid()}
                self._operator.begin(t0_ns)
                _ryu.hub.spawn(self._play, t0_ns)
            case {"begun": dict(start), "at_ns": int(at_ns)}:
                self._player.begun(OperationStart.model_validate(start), at_ns)
            case {"operated": int(number), "content": dict(content)}:
                self._operator.receive(number, content)
            case {"heal": int(end_ns)}:
                _ryu.hub.spawn(self._heal, end_ns)  # endpoints answer, which is received here
            case {"stop": True}:
                return False
            case _:
                raise ValueError(f"not a command: {message}")
        return True

    def _get_ready(self) -> None:
        """Prepare for the faults of a fabric that is built; listen to the user and the switch."""
        control = LiveControl(
            RunRequests(self._plan.topology, self._player, self._operator.answer).answer
        )
        _ryu.hub.spawn(_ryu.serve, self._socket, control)
        self._player.open_links()
        if self._plan.wires:
            self._channel.send({"listening": self._plan.port})
        else:
            self._channel.send({"ready": True, "datapath": None})

    def _heal(self, end_ns: int) -> None:
        commands = _ryu.hub.spawn(self._operator.end)
        self._player.heal_by_hand()
        self._player.await_healing(end_ns)
        _ryu.hub.joinall([commands])
        self._channel.send({"healed": True})

    def _play(self, t0_ns: int) -> None:
        self._player.play(t0_ns)
        self._channel.send({"done": True, "failed": self._player.has_errors})

    def _report(self, record: FaultRecord) -> None:
        self._channel.send({"fault": record.as_json()})

    def _before_kill(self, name: str) -> None:
        self._player.before_kill(name)
        self._channel.send({"ends": name})

    # --- the switch -----------------------------------------------------------------------

    def _present_session(self) -> Session:
        if not self._connected.wait(RECONNECT_TIMEOUT_S) or self._session is None:
            raise SwitchError(f"the switch is not connected, for {RECONNECT_TIMEOUT_S:g} s")
        return self._session

    @_ryu.on(_ryu.events.EventOFPStateChange, _ryu.MAIN, _ryu.DEAD)
    def _state_changed(self, event: Any) -> None:
        """A switch has completed its handshake, or has gone."""
        if event.state == _ryu.MAIN:
            session = Session(event.datapath)
            self._session = session
            _ryu.hub.spawn(self._adopt, session)
        elif self._session is not None and self._session.datapath is event.datapath:
            log.warning("the switch disconnected")
            self._connected.clear()
            self._session.close()
            self._session = None

    def _adopt(self, session: Session) -> None:
        """Install wires and active faults; not in an event handler, as it waits for events."""
        began_ns = time.monotonic_ns()
        try:
            self._flow_cache.query()
            self._wires.install(session)
        except TestbedError:
            log.exception("the switch did not accept the wires; closing the connection")
            session.datapath.close()
            return
        log.info("wires installed in %.1f ms", (time.monotonic_ns() - began_ns) / 1e6)
        self._connected.set()
        if not self._is_ready:
            self._is_ready = True
            self._channel.send({"ready": True, "datapath": f"{session.datapath.id:016x}"})

    @_ryu.on(REPLIES, _ryu.MAIN)
    def _replied(self, event: Any) -> None:
        if self._session is not None and self._session.datapath is event.msg.datapath:
            self._session.receive(event.msg)
