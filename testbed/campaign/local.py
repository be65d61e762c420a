"""Makes runs on this machine, each by `testbed run` or `testbed simulate` in a process of its own.

So a run that fails ends nothing but itself, and each is what a user gets who runs its scenario.
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from testbed.campaign.job import Form, Job, JobRecord
from testbed.model.errors import ExitStatus
from testbed.model.units import show_wait
from testbed.results.run_directory import give_to_user

PARENT = "TESTBED_CAMPAIGN_PID"
"""The variable that tells a run the process that it must not outlive."""

_PROGRAM = f"""
import os
from testbed.sandbox.attributes import die_with_parent
die_with_parent(int(os.environ.pop("{PARENT}")))
from testbed.cli import main
main()
"""

TESTBED = (sys.executable, "-c", _PROGRAM)
WITHIN_ROOT = (sys.executable, "-m", "testbed")
"""Behind `sudo`, which passes signals on and is itself the parent that a run does not outlive."""

_COMMANDS: dict[Form, str] = {"emulated": "run", "simulated": "simulate"}

_STOP_S = 30.0
"""How long a run may take to end when it is asked to."""

_KEPT_CHARACTERS = 400
"""Of what a failed run printed, from its end."""


class LocalExecutor:
    """Makes runs on this machine: one emulation at a time, one simulation per CPU."""

    def __init__(self, directory: Path, as_root: tuple[str, ...] = ()) -> None:
        """Make runs below the directory of a campaign.

        Args:
            directory: the campaign's.
            as_root: the command that runs another one as root, before that of an emulation.
        """
        self._directory = directory
        self._as_root = as_root
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._threads = ThreadPoolExecutor()

    def slots(self, form: Form) -> int:
        """How many jobs of a form it makes at a time."""
        return (os.cpu_count() or 1) if form == "simulated" else 1

    def submit(self, job: Job) -> Future[JobRecord]:
        """Start a job."""
        return self._threads.submit(self.run, job)

    def stop(self) -> None:
        """End all jobs that are under way, and wait until they have ended."""
        self._stopped = True
        for process in tuple(self._running):
            process.send_signal(signal.SIGTERM)
        for process in tuple(self._running):
            _stop(process)
        self._threads.shutdown()

    def run(self, job: Job) -> JobRecord:
        """Make a run, and wait for its end."""
        file = self._directory / job.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(dict(job.scenario), sort_keys=False, allow_unicode=True))
        began = time.monotonic()
        with file.with_suffix(".log").open("w+") as log:
            status, output = self._call(job, file, log)
            log.seek(0)
            printed = log.read() + output
        for path in (file.parent, file, Path(log.name)):
            give_to_user(path)
        seconds = time.monotonic() - began
        if (run := _run_directory(output)) is None:
            return JobRecord(status, seconds, message=printed.strip()[-_KEPT_CHARACTERS:])
        return JobRecord(status, seconds, os.path.relpath(run, self._directory))

    def _call(self, job: Job, file: Path, log: Any) -> tuple[int, str]:
        """Call the command; returns its exit status and output."""
        folder = self._directory / job.folder
        options = ("--results", str(folder.parent), "--folder", folder.name, "--json")
        # In a session of its own: the terminal's Ctrl-C reaches it by us, once.
        as_root = self._as_root if job.form == "emulated" else ()
        testbed = (*as_root, *WITHIN_ROOT) if as_root else TESTBED
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*testbed, _COMMANDS[job.form], str(file), *options, *job.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | {PARENT: str(os.getpid())},
            start_new_session=True,
        )
        self._running.add(process)
        try:
            if self._stopped:
                process.terminate()
            output, _ = process.communicate(timeout=job.timeout_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            log.write(f"not done after {show_wait(job.timeout_s)}")
            return ExitStatus.FAILED, ""
        finally:
            self._running.discard(process)
        return process.returncode, output


def _run_directory(output: str) -> str | None:
    """The run directory that a command reports as JSON; None if there is none."""
    try:
        return str(json.loads(output)["run"])
    except (ValueError, KeyError, TypeError):
        return None


def _stop(process: subprocess.Popen[str]) -> None:
    """Have a run end in order, or end it."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
