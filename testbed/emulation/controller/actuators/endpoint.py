"""Faults of hosts: signals to endpoints and the controller itself, messages that make one busy."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.emulation.controller.actuators.state import Clock, Effect, FaultError
from testbed.model.faults.impairment import Impairment
from testbed.model.units import NS_PER_S

PROCESS_TIMEOUT_NS = NS_PER_S
"""How long a process may take to follow a signal."""

PROCESS_POLL_S = 0.0005

STOPPED = "T"
ENDED = ("Z", "X")
"""States of a process, as proc(5) names them."""


class EndpointActuator:
    """Stops, continues and kills processes, and makes endpoints busy.

    Attributes:
        pids: the processes by host; known once the timeline begins.
    """

    name = "endpoint"

    def __init__(
        self,
        clock: Clock,
        before_kill: Callable[[str], None],
        set_busy: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """Know no process yet.

        Args:
            clock: the clock.
            before_kill: called with a process's host just before it is killed.
            set_busy: makes the endpoint of a host so busy, and returns what it answers.
        """
        self.pids: Mapping[str, int] = {}
        self._clock = clock
        self._before_kill = before_kill
        self._set_busy = set_busy
        self._answers: dict[str, Mapping[str, Any]] = {}

    def apply(self, states: Mapping[str, Impairment]) -> Effect:
        """Kill processes, stop them or continue them, by host.

        Raises:
            FaultError: a host has no process, or the process does not follow the signal, or does
                not answer.
        """
        absent = [host for host in states if host not in self.pids]
        if absent:
            raise FaultError(f"no endpoint runs in {', '.join(absent)}")
        after_ns = self._clock.now_ns()
        for host, state in states.items():
            if not state.dead:
                os.kill(self.pids[host], signal.SIGSTOP if state.frozen else signal.SIGCONT)
            elif self._process_state(host) not in ENDED:
                self._before_kill(host)
                os.kill(self.pids[host], signal.SIGKILL)
        for host, state in states.items():
            self._await(host, state)
            answers = not (state.dead or state.frozen)  # one that stands still is told later
            if answers and state.busy != self._busy(host):
                self._make_busy(host, state.busy)
        return Effect(after_ns, self._clock.now_ns())

    def _busy(self, host: str) -> Mapping[str, Any]:
        """How busy the endpoint of a host has said to be, at the last time."""
        busy: Mapping[str, Any] = self._answers.get(host, {}).get("busy", {})
        return busy

    def _make_busy(self, host: str, busy: Mapping[str, Any]) -> None:
        try:
            answer = self._set_busy(host, busy)
        except TimeoutError as error:
            raise FaultError(str(error)) from error
        if "errors" in answer:
            raise FaultError(f"the endpoint of {host} refuses: {answer['errors']}")
        self._answers[host] = answer

    def prove(self, host: str, state: Impairment) -> Mapping[str, Any]:
        """Show that a process has ended, is stopped, runs or is busy, as its state says.

        Of one that is or was busy, the proof has what it said to be when that changed, and how
        many packets it had refused then.

        Raises:
            FaultError: it is not so.
        """
        process_state = self._process_state(host)
        actual = {"ended": process_state in ENDED, "stopped": process_state == STOPPED}
        expected = {"ended": state.dead, "stopped": state.frozen and not state.dead}
        if actual != expected:
            raise FaultError(f"the endpoint of {host} is in state {process_state}, not {expected}")
        if state.dead:
            return {"ended": True}
        return {"stopped": state.frozen, **self._answers.get(host, {})}

    def _await(self, host: str, state: Impairment) -> None:
        deadline = self._clock.now_ns() + PROCESS_TIMEOUT_NS
        while True:
            try:
                self.prove(host, state)
            except FaultError:
                if self._clock.now_ns() > deadline:
                    raise
                self._clock.sleep(PROCESS_POLL_S)
            else:
                return

    def _process_state(self, host: str) -> str:
        """The state in /proc/PID/stat: the field after the name in brackets (proc(5))."""
        try:
            text = Path(f"/proc/{self.pids[host]}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:  # it has ended, and its parent has waited for it
            return "X"
        return text.rpartition(")")[2].split()[0]
