"""Faults of processes, by signals: endpoints in the hosts, and the controller itself."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.controller.actuators.state import Clock, Effect, FaultError
from testbed.model.faults.impairment import Impairment

PROCESS_TIMEOUT_NS = 1_000_000_000
"""How long a process may take to follow a signal."""

PROCESS_POLL_S = 0.0005

STOPPED = "T"
ENDED = ("Z", "X")
"""States of a process, as proc(5) names them."""


class EndpointActuator:
    """Stops, continues and kills processes.

    Attributes:
        pids: the processes by host; known once the timeline begins.
    """

    name = "endpoint"

    def __init__(self, clock: Clock, before_kill: Callable[[str], None]) -> None:
        """Know no process yet.

        Args:
            clock: the clock.
            before_kill: called with a process's host just before it is killed.
        """
        self.pids: Mapping[str, int] = {}
        self._clock = clock
        self._before_kill = before_kill

    def apply(self, states: Mapping[str, Impairment]) -> Effect:
        """Kill processes, stop them or continue them, by host.

        Raises:
            FaultError: a host has no process, or the process does not follow the signal.
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
        return Effect(after_ns, self._clock.now_ns())

    def prove(self, host: str, state: Impairment) -> Mapping[str, bool]:
        """Show that a process has ended, is stopped, or runs, as its state says.

        Raises:
            FaultError: it is not so.
        """
        process_state = self._process_state(host)
        actual = {"ended": process_state in ENDED, "stopped": process_state == STOPPED}
        expected = {"ended": state.dead, "stopped": state.frozen and not state.dead}
        if actual != expected:
            raise FaultError(f"the endpoint of {host} is in state {process_state}, not {expected}")
        return {"ended": True} if state.dead else {"stopped": state.frozen}

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
            text = Path(f"/proc/{self.pids[host]}/stat").read_text()
        except FileNotFoundError:  # it has ended, and its parent has waited for it
            return "X"
        return text.rpartition(")")[2].split()[0]
