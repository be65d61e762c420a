"""A run in a process of its own: `testbed run --job` or `testbed simulate --job`.

A JSON object on its standard input says what is made (`Request`), one on its standard output what
became of it (a `JobRecord`). Its standard input stays open as long as the run is wanted: when the
process that asked for it ends, or closes it, the kernel stops the run, whoever's it is. So a worker
that is not root can stop a run that it has started by `sudo`.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from testbed import fast, installation, interpreter
from testbed.limits import simulations_at_once
from testbed.model.errors import SIGNALLED, CrashError, ExitStatus, InputError, TestbedError
from testbed.model.files.scenarios import recorded_scenario
from testbed.model.units import show_wait
from testbed.results.run_directory import lock_if_free
from testbed.runs.fitting import Machines
from testbed.runs.job import Form, How, Job, JobRecord
from testbed.runs.making import Stopped, make, require_makeable, signals_stop
from testbed.sandbox.channel import encode_error

JOB = "--job"
"""The only option of such a process."""

COMMANDS: dict[str, Form] = {"run": "emulated", "simulate": "simulated"}
"""The subcommands that make runs."""

NOT_BEGUN = JobRecord(SIGNALLED + signal.SIGTERM, 0.0, message="stopped before it began")
"""The record of a run that was stopped before it began."""

EMULATION_LOCK = Path("/proc/sys/kernel")
"""The directory that an emulation locks: one at a time on a machine.

Every user can open it, and all network namespaces see the same; a container has one of its own.
"""

QUEUE_LOCK = Path("/proc/sys/vm")
"""The directory that a campaign locks while it waits for the other: so campaigns get the machine in
turn, also if the one that has just ended its run asks again at once."""

_TRY_S = 0.2
"""How long a try to lock comes after the one before it."""

_STOP_S = 30.0
"""How long a run may take to end when it is asked to."""

_KEPT_CHARACTERS = 400
"""Of what a process printed that could not say what became of its run, from the end."""


class Request(BaseModel):
    """What is made.

    Attributes:
        scenario: the resolved scenario with its seed, as a run's manifest has it.
        results: the directory of all results.
        folder: the one in it for the run.
        how: how it is made, beside its scenario.
    """

    scenario: dict[str, Any]
    results: Path
    folder: str
    how: How


def serve(command: str) -> int:
    """Make the run that the standard input asks for; returns the exit status of this process."""
    try:
        is_asked = sys.stdin is not None and not sys.stdin.isatty()
        request = Request.model_validate_json(sys.stdin.buffer.readline() if is_asked else b"")
    except ValidationError:
        expected = "a run as JSON on standard input (it is for programs of the testbed)"
        sys.stderr.write(f"error: {InputError.of(JOB, '', expected)}\n")
        return ExitStatus.WRONG_INPUT
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)  # what anything prints goes to the log
        if sys.platform == "linux":
            from testbed.sandbox.system_calls import end_with_input

            end_with_input()
        installation.use_libraries()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not fork
        record = _made(request, COMMANDS[command])
        output.write(json.dumps(asdict(record)) + "\n")
    gc.freeze()  # spares a collection of all objects at exit
    return record.status


def _made(request: Request, form: Form) -> JobRecord:
    """Make the run; what became of it."""
    began = time.monotonic()

    def record(status: int, run: str | None = None, error: TestbedError | None = None) -> JobRecord:
        message, encoded = ("", None) if error is None else (str(error), encode_error(error))
        return JobRecord(status, time.monotonic() - began, run, message, encoded)

    try:
        with signals_stop():
            fast.check()
            scenario = recorded_scenario(request.scenario)
            require_makeable(scenario, form, request.how)
            if form == "emulated":
                Machines.here(force=request.how.force).require(scenario)
            result = make(
                scenario,
                form,
                request.results,
                how=request.how,
                folder=request.folder,
                watch=lambda *_: signals_stop(),
            )
    except Stopped as stopped:
        return replace(record(SIGNALLED + stopped.number), message=f"stopped by {stopped.name}")
    except TestbedError as error:
        return record(error.exit_status, error=error)
    except Exception as error:  # noqa: BLE001 - the process that wants the run reports it
        traceback.print_exc()  # into the log
        crash = CrashError(f"{type(error).__name__}: {error}")
        return record(crash.exit_status, error=crash)
    status = result.summary.exit_status(require_trusted=request.how.require_trusted)
    return record(status, str(result.directory))


class LocalExecutor:
    """Makes runs on this machine: one emulation at a time, or simulations for all CPUs.

    Each has a process of its own, so one that fails ends nothing but itself. Emulations of several
    executors take turns, those of other processes as well. What is stopped while it waits for its
    turn is not begun.
    """

    def __init__(self, directory: Path, as_root: tuple[str, ...] = ()) -> None:
        """Make runs below the directory of a campaign.

        Args:
            directory: the campaign's.
            as_root: the command that runs another one as root, before that of an emulation.
        """
        self._directory = directory.absolute()
        self._as_root = as_root
        self._running: set[_Process] = set()
        self._stopped = threading.Event()
        self._simulations = simulations_at_once()
        self._threads = ThreadPoolExecutor(self._simulations)

    def slots(self, form: Form) -> int:
        """How many jobs of a form it makes at a time."""
        return self._simulations if form == "simulated" else 1

    def submit(self, job: Job) -> Future[JobRecord]:
        return self._threads.submit(self.run, job)

    def stop(self) -> None:
        """End all jobs that are under way, and wait until they have ended."""
        self._stopped.set()
        for process in tuple(self._running):
            process.ask_to_end()
        for process in tuple(self._running):
            process.stop()
        self._threads.shutdown()

    def run(self, job: Job, is_wanted: Callable[[], bool] = lambda: True) -> JobRecord:
        """Make a run, and wait for its end.

        Args:
            job: the run.
            is_wanted: asked when it is its turn; False: it is not begun.
        """
        file, log = self._directory / job.file, self._directory / job.log
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(dict(job.scenario), indent=1), encoding="utf-8")
        with log.open("w+", encoding="utf-8") as printed, self._turn(job, printed) as may_begin:
            if not (may_begin and is_wanted()):
                return NOT_BEGUN
            record = self._made(job, printed)
        run = record.run and os.path.relpath(record.run, self._directory)
        return replace(record, run=run)

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

    def _made(self, job: Job, log: Any) -> JobRecord:
        """Have a process make the run; what became of it."""
        folder = self._directory / job.folder
        request = Request(
            scenario=dict(job.scenario), results=folder.parent, folder=folder.name, how=job.how
        )
        as_root = self._as_root if job.form == "emulated" else ()
        subcommand = next(name for name, form in COMMANDS.items() if form == job.form)
        process = _Process((*as_root, *interpreter.TESTBED, subcommand, JOB), log)
        self._running.add(process)
        try:
            if self._stopped.is_set():
                process.ask_to_end()
            return process.record(request, job.timeout_s)
        finally:
            self._running.discard(process)


class _Process:
    def __init__(self, command: Sequence[str], log: Any) -> None:
        """Start it, in a session of its own: the terminal's Ctrl-C reaches it by us, once."""
        self._log = log
        self._is_late = False
        self._process = interpreter.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        self._input: Any = self._process.stdin
        self._output: Any = self._process.stdout

    def record(self, request: Request, timeout_s: float) -> JobRecord:
        """Have it make the run; what became of it. After so many seconds it is given up."""
        began = time.monotonic()
        timer = threading.Timer(timeout_s, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            with suppress(OSError, ValueError):  # it has ended, or is to end
                self._input.write(request.model_dump_json().encode() + b"\n")
                self._input.flush()
            said = self._output.read()
            status = self._process.wait()
        finally:
            timer.cancel()
            self._close_input()
            self._output.close()
        seconds = time.monotonic() - began
        if self._is_late:
            message = f"not done after {show_wait(timeout_s)}"
            return JobRecord(ExitStatus.FAILED, seconds, message=message)
        try:
            return JobRecord(**{**json.loads(said), "seconds": seconds})
        except (ValueError, TypeError):  # it was killed, or could not begin
            self._log.seek(0)
            printed = self._log.read().strip()[-_KEPT_CHARACTERS:]
            return JobRecord(status, seconds, message=printed)

    def ask_to_end(self) -> None:
        try:
            self._process.terminate()
        except PermissionError:  # it is root's, by sudo
            self._close_input()

    def _close_input(self) -> None:
        with suppress(OSError):
            self._input.close()

    def stop(self) -> None:
        """Have the run end in order, or end it."""
        self.ask_to_end()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(PermissionError):  # of root, which no other user kills
                self._process.kill()

    def _give_up(self) -> None:
        self._is_late = True
        self.stop()


@contextmanager
def turn(stopped: threading.Event, on_wait: Callable[[], object]) -> Iterator[bool]:
    """Wait until no other campaign emulates on this machine, and keep others waiting for the block.

    Args:
        stopped: ends the wait.
        on_wait: called once if there is something to wait for.

    Yields:
        Whether it is this one's turn; False: it was stopped.
    """
    note_wait = cache(on_wait)  # so it is called once
    with ExitStack() as machine:
        with _lock(QUEUE_LOCK, stopped, note_wait):
            is_ours = machine.enter_context(_lock(EMULATION_LOCK, stopped, note_wait))
        yield is_ours


@contextmanager
def _lock(
    directory: Path, stopped: threading.Event, on_wait: Callable[[], object]
) -> Iterator[bool]:
    """Lock a directory for a block, as soon as it is free; yields False if that is stopped."""
    while not stopped.is_set():
        with lock_if_free(directory) as is_ours:
            if is_ours:
                yield True
                return
        on_wait()
        stopped.wait(_TRY_S)
    yield False
