"""The process that carries out the commands of a script at the prompt, as the programs of a run."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.log import lg, output

from testbed.device.library import Library
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.ordinary import DelayProcess, OrdinaryTraffic
from testbed.emulation.fabric.prompt import Commands, FabricShell
from testbed.model.run_files.content import ProgramRecord
from testbed.model.run_files.layout import PROGRAMS
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import children_of

OUTPUT = f"{PROGRAMS}/script.log"
"""The file of what the commands print, in the run directory."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Script:
    """Commands of the prompt, which are carried out one after another.

    Attributes:
        file: the file that has them, a line each.
        further: the commands of the prompt beside those of the fabric, given the run directory.
    """

    file: Path
    further: Callable[[Path], Commands]


def start_script(
    script: Script,
    fabric: Fabric,
    ordinary: OrdinaryTraffic,
    delay: DelayProcess | None,
    device: Library,
    directory: Path,
    log: Path,
    screen: int | None,
) -> Child:
    """Start the process. It says and understands what the process of programs does.

    Args:
        script: the commands.
        fabric: built, in this sandbox.
        ordinary: the routes of ping and TCP.
        delay: what delays them, if anything does.
        device: the library by which programs find the device.
        directory: the run directory.
        log: of this process.
        screen: a descriptor to which what they print goes, too.
    """
    (directory / PROGRAMS).mkdir()

    def work(channel: Channel) -> None:
        for host in fabric.topology.hosts:
            environment = fabric.net[host.name].environment
            environment |= device.environment({**os.environ, **environment})
        run = _Run(channel, screen, directory / OUTPUT)
        channel.send({"ready": True})
        run.wait_for_start()
        os.dup2(os.open(script.file, os.O_RDONLY), 0)
        _Prompt(run, fabric, ordinary, delay, script.further(directory))
        run.end()

    return spawn(work, title="the prompt's script", isolated=False, name="programs", log=log)


class _Run:
    """The script's side of a run: when it begins and ends, and what became of each command."""

    def __init__(self, channel: Channel, screen: int | None, log: Path) -> None:
        self.stopped = False
        self._channel = channel
        self._records: list[ProgramRecord] = []
        self._t0_ns = 0
        self._finish = threading.Event()
        self._started = threading.Event()
        reader, writer = os.pipe()
        for descriptor in (1, 2):
            os.dup2(writer, descriptor)
        os.close(writer)
        lg.handlers[0].setStream(sys.stdout)
        threading.Thread(target=_copy, args=(reader, log, screen), daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Take the run's commands; when it ends, end what the script has started."""
        for message in self._channel.messages():
            if "start_ns" in message:
                self._t0_ns = message["start_ns"]
                self._started.set()
            else:
                break
        self.stopped = True
        self._started.set()
        while not self._finish.is_set():
            for pid in children_of(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._finish.wait(0.1)

    def wait_for_start(self) -> None:
        self._started.wait()
        time.sleep(max(self._t0_ns - now_ns(), 0) / NS_PER_S)

    def note(self, line: str, status: int) -> None:
        number = len(self._records)
        self._records.append(
            ProgramRecord(
                host=f"{number + 1}: {line}",
                rank=number,
                status=None if self.stopped else status,
                stopped=self.stopped,
                failed=self.stopped or bool(status),
                ended_s=(now_ns() - self._t0_ns) / NS_PER_S,
                output=OUTPUT,
            )
        )

    def end(self) -> None:
        """Report, once the run ends."""
        sys.stdout.flush()
        if not self.stopped:
            self._channel.send({"over": True})
            while not self.stopped:
                time.sleep(0.01)
        self._finish.set()
        programs: list[dict[str, Any]] = [record.model_dump() for record in self._records]
        self._channel.send({"finished": {"programs": programs, "open": []}})


def _copy(reader: int, log: Path, screen: int | None) -> None:
    """Copy what is printed into a file, and to the screen."""
    with log.open("wb", buffering=0) as file:
        while data := os.read(reader, _CHUNK):
            with suppress(OSError):  # the disk is full: the run's own records say so, too
                file.write(data)
            if screen is not None:
                with suppress(OSError):  # nobody looks any more
                    os.write(screen, data)


class _Prompt(FabricShell):
    """The prompt, which notes what became of each command."""

    def __init__(
        self,
        run: _Run,
        fabric: Fabric,
        ordinary: OrdinaryTraffic,
        delay: DelayProcess | None,
        further: Commands,
    ) -> None:
        self._run = run
        super().__init__(fabric.net, ordinary, delay, further)

    def _carry_out(self, lines: Iterable[str]) -> bool:
        for line in lines:
            command = self.precmd(line)
            if not command.strip():
                continue
            if self._run.stopped:
                return True
            self.status = 0
            output(f"mininet> {line.strip()}\n")
            sys.stdout.flush()
            ends = self.onecmd(command)
            self._run.note(line.strip(), self.status)
            if ends:
                return True
        return False
