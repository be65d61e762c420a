"""Watches a simulated run: paces it, writes its stream, injects faults by hand."""

import time
from pathlib import Path

from testbed.control_api import Simulated, SimulatedRequests
from testbed.live.forks import Forks, RunHistory, history_of_live_run
from testbed.live.serving import PageServer, Reply
from testbed.live.stream.stream import Beginning
from testbed.live.stream.writer import STREAM, StreamWriter
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S

_PARTS = 4
"""The run is interrupted so many times in a step of its stream, for requests."""


class SimulationWatcher:
    """Lets a simulation go on as fast as the wall clock, until the page or its user ends it.

    Attributes:
        step_ns: virtual time between two looks.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        site: PageServer,
        slow_flow: int | None = None,
        longest_ns: int | None = None,
    ) -> None:
        """Watch a run.

        Args:
            scenario: what is simulated.
            directory: the run directory.
            site: the page.
            slow_flow: the flow whose single packets are in the stream, if any.
            longest_ns: how long the run lasts at most, if given.
        """
        self._scenario = scenario
        self._directory = directory
        self._site = site
        self._slow_flow = slow_flow
        self._longest_ns = longest_ns
        self._writer: StreamWriter | None = None
        self._has_ended = False
        self._t_ns = 0
        allow_code = bool(scenario.executes)  # it is under way, so it was allowed
        stream = directory / STREAM
        self._forks = Forks(directory, stream, self._history, allow_code=allow_code)
        self.step_ns = round(self._beginning(0.0).step_s * NS_PER_S / _PARTS)

    def _beginning(self, base_rtt_s: float) -> Beginning:
        return Beginning(
            topology=self._scenario.topology,
            scenario=self._scenario,
            run=self._directory.name,
            simulated=True,
            live=True,
            base_rtt_s=base_rtt_s,
            duration_s=self._scenario.duration / NS_PER_S,
            slow_flow=self._slow_flow,
        )

    def begins(self, simulation: Simulated, t0_ns: int, base_rtt_ns: int) -> None:
        """Write the beginning of the stream."""
        self._t0_ns = t0_ns
        self._faults = simulation.faults
        self._requests = SimulatedRequests(self._scenario.topology, simulation)
        beginning = self._beginning(base_rtt_ns / NS_PER_S)
        self._writer = StreamWriter(self._directory, beginning, t0_ns)
        self._began_s = time.monotonic()

    def goes_on(self, now_ns: int) -> bool:
        """Write what has happened, and handle requests until the wall clock has caught up."""
        assert self._writer is not None  # noqa: S101 - the run has begun
        t_ns = self._t_ns = now_ns - self._t0_ns
        self._writer.advance(t_ns / NS_PER_S, [*self._faults.records().values()])
        due_s = self._began_s + t_ns / NS_PER_S
        while not self._is_over(t_ns):
            waiting_s = due_s - time.monotonic()
            self._site.handle_requests(self._answer, max(waiting_s, 0.0))
            if waiting_s <= 0:
                break
        return not self._is_over(t_ns)

    def _history(self) -> RunHistory | None:
        if self._writer is None:
            return None
        faults = [*self._faults.records().values()]
        return history_of_live_run(self._directory, self._scenario, faults, self._t0_ns, self._t_ns)

    def _answer(self, method: str, path: str, body: str, reply: Reply) -> None:
        answer = self._forks.answer(method, path, body)
        if answer is None:
            self._requests.begin(method, path, body, reply)
        else:
            reply(answer)

    def _is_over(self, t_ns: int) -> bool:
        is_late = self._longest_ns is not None and t_ns >= self._longest_ns
        return self._has_ended or self._site.wants_end or is_late

    def end(self) -> None:
        """End the run soon; a signal handler may call this."""
        self._has_ended = True

    def finish(self) -> None:
        """Write the end of the stream, after the analysis or without one."""
        self._forks.close()
        if self._writer is not None:
            self._writer.finish()
            self._writer.close()
