"""A fabric with a prompt that is watched: records its counters, and carries out commands by hand.

A process beside the prompt does that, so that the prompt is free for the user. It has the
controller, which takes faults by hand, and passes commands for EVs and ports on to the programs.
"""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device_records import SOCKET_SUFFIX
from testbed.emulation.experiment.inside import LINK_SAMPLE_S, QueueSampler, step_ns
from testbed.emulation.fabric.fabric import Fabric
from testbed.model.errors import Problem, as_answer
from testbed.model.fabric.names import link_of
from testbed.model.run_files.content import RunStart
from testbed.model.run_files.layout import LOGS, RAW, START
from testbed.model.units import NS_PER_S
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import RECORDS_FILE
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import socket_name

STARTS_S = 30.0
ENDS_S = 5.0

ANSWER_NS = NS_PER_S // 2
"""How long the answer of a program may take that has begun in time. The sender waits for longer."""


@contextmanager
def watched_fabric(fabric: Fabric, directory: Path) -> Iterator[None]:
    """Record a fabric, and take commands by hand for it, while the block runs.

    Args:
        fabric: the fabric, built in this sandbox.
        directory: the run directory; programs in the hosts record in it, too.

    Raises:
        RunFailedError: the process did not start.
    """
    raw = directory / RAW
    raw.mkdir()
    recorder = spawn(
        lambda channel: _record(fabric, directory, channel),
        title="the process that records the fabric",
        isolated=False,
        name="recorder",
        log=directory / LOGS / "recorder.log",
    )
    try:
        while not any("ready" in message for message in recorder.receive(STARTS_S)):
            recorder.check()
        RECORDS_FILE.write_text(str(raw.resolve()), encoding="utf-8")
        yield
        recorder.send({"finish": True})
        recorder.ends_within(ENDS_S)
    finally:
        recorder.kill()
        recorder.close()


def _record(fabric: Fabric, directory: Path, channel: Channel) -> int:
    """Record until the prompt's process sends something, or ends."""
    topology, raw, model = fabric.topology, directory / RAW, fabric.link_model
    with (
        ControllerProcess.idle(topology, directory) as controller,
        Recorder(raw_path(raw, "fabric", records.LINKS), records.LINKS) as links,
        Recorder(raw_path(raw, "fabric", records.QUEUES), records.QUEUES) as waiting,
    ):
        t0_ns = now_ns()
        controller.begin(t0_ns, {})
        start = RunStart(t0_ns=t0_ns, base_rtt_ns=topology.propagation_rtt_ns)
        (raw / START).write_text(start.model_dump_json(), encoding="utf-8")
        channel.send({"ready": True})
        counters = fabric.counters()
        queues = QueueSampler(topology, model, waiting) if model is not None else None
        step_s = step_ns(topology) / NS_PER_S if queues else LINK_SAMPLE_S
        relay = Relay(controller, raw)
        due_ns = 0
        while channel not in relay.wait([channel], step_s):
            now = now_ns()
            if queues is not None:
                queues.sample(now)
            if now >= due_ns:
                due_ns = now + round(LINK_SAMPLE_S * NS_PER_S)
                for direction, count in counters.directions().items():
                    links.append(now, link_of(direction), direction, *count)
                links.flush()
    return os.EX_OK


@dataclass(frozen=True, slots=True)
class _Command:
    """A command that has not been answered.

    Attributes:
        until_ns: a program that has not begun with it by then drops it.
        answers: those of programs so far; the first is the error that no program can.
    """

    until_ns: int
    answers: list[dict[str, Any]]


class Relay:
    """Passes the operator's commands on to the programs of a host, and their answers back.

    Where several programs run in a host each gets the command. The first that does not refuse it
    answers, but the events of all are listed together: of all that answer in time, as one may be
    stopped.
    """

    def __init__(self, controller: ControllerProcess, raw: Path) -> None:
        """Relay between a controller and the programs that record in the directory `raw`."""
        self._controller = controller
        self._raw = raw
        self._programs: dict[Channel, int] = {}
        self._commands: dict[int, _Command] = {}

    def wait(self, watched: list[Any], timeout_s: float) -> list[Any]:
        """Relay messages for a time; returns those of `watched` that have something to read."""
        ready = select.select([*watched, self._controller, *self._programs], [], [], timeout_s)[0]
        if self._controller in ready:
            for message in self._controller.receive():
                if "operate" in message:
                    self._ask(message)
        for program in [each for each in self._programs if each in ready]:
            self._answered(program)
        for number in [*self._commands]:
            self._conclude(number)
        return [each for each in watched if each in ready]

    def _ask(self, message: dict[str, Any]) -> None:
        number, host = message["operate"], message.pop("host")
        for file in sorted(self._raw.glob(f"{host}-*{SOCKET_SUFFIX}")):
            connection = socket.socket(socket.AF_UNIX)
            try:
                with socket_name(file) as name:
                    connection.connect(name)
                program = Channel(connection.detach())
                program.send(message)
            except OSError:  # the program was killed
                connection.close()
                file.unlink(missing_ok=True)
            else:
                self._programs[program] = number
        problem = Problem(
            "command",
            host,
            "a host in which a program with a device runs",
            f"at the prompt: {host} write_bw, and in another host: write_bw {host}",
        )
        self._commands[number] = _Command(message["until_ns"], [as_answer(problem)])

    def _answered(self, program: Channel) -> None:
        messages = program.receive()
        if messages == []:  # a part of one
            return
        number = self._programs.pop(program)
        program.close()
        if messages and number in self._commands:
            self._commands[number].answers.append(messages[0]["content"])

    def _conclude(self, number: int) -> None:
        """Answer a command if nothing that is still to come can change the answer."""
        command = self._commands[number]
        results = [content for content in command.answers if "errors" not in content]
        lists_events = bool(results) and "events" in results[0]
        more_events = lists_events and now_ns() < command.until_ns + ANSWER_NS
        if number in self._programs.values() and (more_events or not results):
            return
        del self._commands[number]
        content = results[0] if results else command.answers[-1]
        if lists_events:
            events = [event for result in results for event in result["events"]]
            events.sort(key=itemgetter("t"))
            content = {"events": events, "dropped": sum(result["dropped"] for result in results)}
        self._controller.process.send({"operated": number, "content": content})
