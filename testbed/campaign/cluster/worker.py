"""What a worker does: it says what it can do, and makes runs.

These functions are called on the workers, by name: a worker needs the same version of the testbed.
"""

import json
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.campaign.job import Job, JobRecord
from testbed.campaign.local import LocalExecutor
from testbed.model.errors import ExitStatus
from testbed.results.code_version import code_version
from testbed.results.run_directory import give_to_user
from testbed.results.shortage import shortage

ATTEMPTS = ".attempts.jsonl"
"""The file beside a job's scenario that has a line for each time that a worker began it."""

_DOCTOR_S = 60.0
_LOOK_S = 2.0
"""How often a worker looks whether the campaign was stopped."""

_TURN = "\0mrc-testbed-emulation"
"""The abstract UNIX socket that an emulation holds: one at a time in a network namespace."""


def describe(*, emulates: bool) -> dict[str, Any]:
    """What this worker's machine is, and what it can do.

    Args:
        emulates: whether runs will be emulated: then it is tried what its kernel can do.
    """
    description: dict[str, Any] = {
        "host": platform.node(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": os.cpu_count() or 1,
        "code": code_version(),
        "user": os.geteuid(),
    }
    if emulates:
        description["doctor"] = _doctor()
    return description


def _doctor() -> dict[str, Any]:
    """What `testbed doctor` finds here."""
    command = [*_as_root(), sys.executable, "-m", "testbed", "doctor", "--json"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=_DOCTOR_S, check=False
        )
        return dict(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"able": False, "error": f"{type(error).__name__}: {error}"}


def _as_root() -> tuple[str, ...]:
    """What comes before a command that needs root; workers need not be root themselves."""
    return () if os.geteuid() == 0 else ("sudo", "-n")


def make(fields: dict[str, Any], store: str, campaign: str) -> tuple[str, dict[str, Any]]:
    """Make a run and leave it in the store.

    Args:
        fields: those of the `Job`.
        store: the campaign's directory, the same for all machines.
        campaign: the name of the event that stops the campaign.

    Returns:
        The address of this worker, and the fields of the `JobRecord`.
    """
    from distributed import get_worker  # noqa: PLC0415 - an extra, and slow to load

    return get_worker().address, asdict(_record(Job(**fields), Path(store), campaign))


def _record(job: Job, directory: Path, campaign: str) -> JobRecord:
    """What became of a job that was made here."""
    executor = LocalExecutor(directory, as_root=_as_root())
    try:
        _note_attempt(job, directory)
        with _turn(job), _stopped_by(campaign, executor):
            return executor.run(job)
    except OSError as error:
        message = f"{platform.node()}: {shortage(error, directory) or error}"
        return JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message=message)


def _note_attempt(job: Job, directory: Path) -> None:
    """Note that a run begins: of a worker that is lost, nothing else remains."""
    file = directory / job.file.with_suffix(ATTEMPTS)
    file.parent.mkdir(parents=True, exist_ok=True)
    line = {"host": platform.node(), "pid": os.getpid(), "time": time.time()}
    with file.open("a", encoding="utf-8") as attempts:
        attempts.write(json.dumps(line) + "\n")
    give_to_user(file)


@contextmanager
def _turn(job: Job) -> Iterator[None]:
    """Wait until no other emulation runs on this machine."""
    if job.form != "emulated":
        yield
        return
    with socket.socket(socket.AF_UNIX) as held:
        while True:
            try:
                held.bind(_TURN)
                break
            except OSError:
                time.sleep(_LOOK_S)
        yield


@contextmanager
def _stopped_by(campaign: str, executor: LocalExecutor) -> Iterator[None]:
    """End the runs of an executor when the campaign is stopped."""
    from distributed import Event, get_client  # noqa: PLC0415 - an extra, and slow to load

    ended, stop = threading.Event(), Event(campaign, client=get_client())

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            if stop.is_set():
                executor.stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
