"""Makes runs on this machine, each by `testbed run` or `testbed simulate` in a process of its own.

So a run that fails ends nothing but itself, and each is what a user gets who runs its scenario.
"""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed import interpreter
from testbed.limits import simulations_at_once
from testbed.model.errors import SIGNALLED, ExitStatus
from testbed.model.units import show_wait
from testbed.runs import PARENT_VARIABLE
from testbed.runs.job import Form, Job, JobRecord
from testbed.runs.options import RECORDED
from testbed.runs.turns import turn

END_WITH_STDIN = "--end-with-stdin"
"""Of a run behind `sudo`: a worker that is not root may be unable to signal it, and `sudo` lives on
when the worker is killed. But the kernel closes the worker's end of a pipe."""

_COMMANDS: dict[Form, str] = {"emulated": "run", "simulated": "simulate"}

NOT_BEGUN = JobRecord(SIGNALLED + signal.SIGTERM, 0.0, message="stopped before it began")
"""The record of a run that was stopped before it began."""

_STOP_S = 30.0
"""How long a run may take to end when it is asked to."""

_KEPT_CHARACTERS = 400
"""Of what a failed run printed, from its end."""


class LocalExecutor:
    """Makes runs on this machine: one emulation at a time, or simulations for all CPUs.

    Emulations of several executors take turns, those of other processes as well. What is stopped
    while it waits for its turn is not begun.
    """

    def __init__(self, directory: Path, as_root: tuple[str, ...] = ()) -> None:
        """Make runs below the directory of a campaign.

        Args:
            directory: the campaign's.
            as_root: the command that runs another one as root, before that of an emulation.
        """
        self._directory = directory.absolute()
        self._as_root = as_root
        self._running: set[_Command] = set()
        self._stopped = threading.Event()
        self._simulations = simulations_at_once()
        self._threads = ThreadPoolExecutor(self._simulations)

    def slots(self, form: Form) -> int:
        """How many jobs of a form it makes at a time."""
        return self._simulations if form == "simulated" else 1

    def submit(self, job: Job) -> Future[JobRecord]:
        """Start a job."""
        return self._threads.submit(self.run, job)

    def stop(self) -> None:
        """End all jobs that are under way, and wait until they have ended."""
        self._stopped.set()
        for command in tuple(self._running):
            command.ask_to_end()
        for command in tuple(self._running):
            command.stop()
        self._threads.shutdown()

    def run(self, job: Job, is_wanted: Callable[[], bool] = lambda: True) -> JobRecord:
        """Make a run, and wait for its end.

        Args:
            job: the run.
            is_wanted: asked when it is its turn; False: it is not begun.
        """
        file = self._directory / job.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(dict(job.scenario), indent=1), encoding="utf-8")
        with (self._directory / job.log).open("w+", encoding="utf-8") as log:
            with self._turn(job, log) as may_begin:
                began = time.monotonic()
                if not (may_begin and is_wanted()):
                    return NOT_BEGUN
                status, output = self._call(job, file, log)
                seconds = time.monotonic() - began
            log.seek(0)
            printed = log.read() + output
        if (run := _run_directory(output)) is None:
            return JobRecord(status, seconds, message=printed.strip()[-_KEPT_CHARACTERS:])
        return JobRecord(status, seconds, os.path.relpath(run, self._directory))

    @contextmanager
    def _turn(self, job: Job, log: Any) -> Iterator[bool]:
        """Keep other emulations waiting while a run is made; yields whether it may begin."""
        if job.form == "simulated":
            yield not self._stopped.is_set()
            return

        def note_wait() -> None:
            log.write("waits: another campaign emulates on this machine\n")
            log.flush()

        with turn(self._stopped, note_wait) as may_begin:
            log.seek(0)
            log.truncate()
            yield may_begin

    def _call(self, job: Job, file: Path, log: Any) -> tuple[int, str]:
        """Call the command; returns its exit status and output."""
        folder = self._directory / job.folder
        options = ("--results", str(folder.parent), "--folder", folder.name, "--json", RECORDED)
        # In a session of its own: the terminal's Ctrl-C reaches it by us, once.
        as_root = self._as_root if job.form == "emulated" else ()
        testbed = (*as_root, *interpreter.TESTBED)
        further = (*job.options, END_WITH_STDIN) if as_root else job.options
        command = _Command(
            [*testbed, _COMMANDS[job.form], str(file), *options, *further],
            log,
            behind_sudo=bool(as_root),
        )
        self._running.add(command)
        try:
            if self._stopped.is_set():
                command.ask_to_end()
            output, _ = command.process.communicate(timeout=job.timeout_s)
        except subprocess.TimeoutExpired:
            command.stop()
            log.write(f"not done after {show_wait(job.timeout_s)}")
            return ExitStatus.FAILED, ""
        finally:
            self._running.discard(command)
            command.close()
        return command.process.returncode, output


class _Command:
    """A run's command, in a process of its own.

    Attributes:
        process: that process.
    """

    def __init__(self, command: Sequence[str], log: Any, *, behind_sudo: bool) -> None:
        """Start it. One behind `sudo` ends when the other end of its standard input is closed."""
        self._behind_sudo = behind_sudo
        self._held: int | None = None
        taken = subprocess.DEVNULL
        if behind_sudo:
            taken, self._held = os.pipe()
        try:
            self.process = interpreter.start(
                command,
                stdin=taken,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={} if behind_sudo else {PARENT_VARIABLE: str(os.getpid())},
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError:
            self.close()
            raise
        finally:
            if behind_sudo:
                os.close(taken)

    def ask_to_end(self) -> None:
        """Have the run end in order."""
        if self._behind_sudo:
            self.close()
        else:
            self.process.terminate()

    def stop(self) -> None:
        """Have the run end in order, or end it."""
        self.ask_to_end()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(PermissionError):  # of root, which no other user kills
                self.process.kill()

    def close(self) -> None:
        """Close the pipe to it."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)


def _run_directory(output: str) -> str | None:
    """The run directory that a command reports as JSON; None if there is none."""
    try:
        return str(json.loads(output)["run"])
    except (ValueError, KeyError, TypeError):
        return None
