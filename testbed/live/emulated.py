"""Watches an emulated run from a process beside it: writes its stream, passes faults by hand on.

Nothing in the run knows of it. The run leaves the time of its start in `raw/start.json`; all else
is read from the records that its processes append to.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from select import select

from testbed.live.forks import Forks, RunHistory, history_of_live_run
from testbed.live.metrics import CostLog
from testbed.live.serving import Answering, Asked, Listening, PageServer, Reply, serving
from testbed.live.stream.stream import Beginning
from testbed.live.stream.writer import STREAM, StreamWriter
from testbed.model.fabric.topology import Topology
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.run_files.content import RunRecord, RunStart
from testbed.model.run_files.layout import HEALTH, RAW, RUN, START
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn

POLL_S, MOST_POLL_S = 0.05, 0.1
"""Shortest and longest time between two looks at the records, on a machine that is quick enough."""

CPU_SHARE, SLOW_POLL_S = 0.02, 0.5
"""The share of a CPU that looks take. On a slow machine they come less often, at least this often,
and each writes several steps."""

LAG_NS = 200_000_000
"""The stream is so far behind: by then every process has written what it recorded."""


@dataclass(slots=True)
class EmulationWatcher:
    """Watches one run, in a process that was started before it.

    Attributes:
        scenario: what is run; the fabric alone, if it has a prompt.
        directory: the run directory, which exists.
        where: where the page is served.
        answer: answers requests for faults.
        end: ends the run.
        now_ns: the clock of the run's records.
        slow_flow: the flow whose single packets are in the stream, if any.
    """

    scenario: Scenario | Topology
    directory: Path
    where: Listening
    answer: Answering
    end: Callable[[], None]
    now_ns: Callable[[], int] = time.monotonic_ns
    slow_flow: int | None = None
    _writer: StreamWriter | None = None
    _t0_ns: int = 0
    _has_ended: bool = False
    _cost_s: float = 0.0
    _faults: bytes = b""
    _of_faults: Sequence[FaultRecord] = ()
    _forks: Forks = field(init=False)

    def __post_init__(self) -> None:
        watched = self.scenario  # code of a scenario that is under way was allowed
        allow_code = isinstance(watched, Scenario) and bool(watched.executes)
        stream = self.directory / STREAM
        self._forks = Forks(self.directory, stream, self._history, allow_code=allow_code)

    def start(self, logs: Path) -> Child:
        """Start the process that watches; its output goes to the directory of logs."""
        return spawn(
            self.watch,
            title="the process that watches the run",
            isolated=False,
            name="watch",
            log=logs / "watch.log",
        )

    def watch(self, channel: Channel) -> None:
        """Watch until the channel says that the run has been analysed, or closes.

        Sends the page's address first.
        """
        stream = self.directory / STREAM
        stream.touch()
        with serving(stream, self.where) as site, closing(self._forks):
            channel.send({"address": site.address, "port": site.port})
            cost = CostLog(self.directory / HEALTH)
            while not select([channel], [], [], 0)[0]:
                self.look(site)
                cost.write(site.pid)
            self.finish()

    def look(self, site: PageServer) -> None:
        """Answer what is asked within a moment, and write what has happened."""
        site.handle_requests(self._answer, self._poll_s())
        if site.wants_end and not self._has_ended:
            self._has_ended = True
            self.end()
        if self._writer is None:
            self._begin()
        if self._writer is not None:
            began_s = time.process_time()
            ripe_ns = self.now_ns() - LAG_NS - self._t0_ns
            self._writer.advance(ripe_ns / NS_PER_S, self._records())
            self._cost_s = time.process_time() - began_s

    def _poll_s(self) -> float:
        """How long to wait: for the next step, and longer where a look takes much CPU time."""
        if self._writer is None:
            return POLL_S
        ripe_ns = self._t0_ns + LAG_NS + round(self._writer.next_s * NS_PER_S)
        until_ripe_s = min(max((ripe_ns - self.now_ns()) / NS_PER_S, POLL_S), MOST_POLL_S)
        return max(until_ripe_s, min(self._cost_s / CPU_SHARE, SLOW_POLL_S))

    def _answer(self, method: str, path: str, body: str, reply: Reply) -> Asked | None:
        if isinstance(self.scenario, Scenario):  # otherwise there is none to fork
            answer = self._forks.answer(method, path, body)
            if answer is not None:
                reply(answer)
                return None
        return self.answer(method, path, body, reply)

    def _history(self) -> RunHistory | None:
        if self._writer is None or not isinstance(self.scenario, Scenario):
            return None
        lasted_ns = round(self._writer.end_s * NS_PER_S)
        faults = self._records()
        return history_of_live_run(self.directory, self.scenario, faults, self._t0_ns, lasted_ns)

    def finish(self) -> None:
        """Write the rest of the stream, up to the end of the run."""
        if self._writer is None:
            return
        if not isinstance(self.scenario, Scenario):
            self._writer.advance((self.now_ns() - self._t0_ns) / NS_PER_S, self._records())
        run = self.directory / RUN
        if run.is_file():
            duration_s = RunRecord.model_validate_json(run.read_text(encoding="utf-8")).duration_s
            self._writer.advance(duration_s, self._records())
        ended = None if isinstance(self.scenario, Scenario) else "the prompt has ended"
        self._writer.finish(ended)
        self._writer.close()

    def _begin(self) -> None:
        file = self.directory / RAW / START
        if not file.is_file():
            return
        start = RunStart.model_validate_json(file.read_text(encoding="utf-8"))
        if self.now_ns() < start.t0_ns:
            return
        self._t0_ns = start.t0_ns
        watched = self.scenario
        scenario = watched if isinstance(watched, Scenario) else None
        beginning = Beginning(
            topology=watched.topology if isinstance(watched, Scenario) else watched,
            scenario=scenario,
            run=self.directory.name,
            simulated=False,
            live=True,
            base_rtt_s=start.base_rtt_ns / NS_PER_S,
            duration_s=0.0 if scenario is None else scenario.duration / NS_PER_S,
            slow_flow=self.slow_flow,
        )
        self._writer = StreamWriter(self.directory, beginning, start.t0_ns)

    def _records(self) -> Sequence[FaultRecord]:
        """The newest record of every fault; the file is always whole."""
        file = self.directory / FAULTS
        content = file.read_bytes() if file.is_file() else b""
        if content != self._faults:
            lines = content.decode().splitlines()
            self._faults, self._of_faults = content, [FaultRecord.from_line(line) for line in lines]
        return self._of_faults
