"""What a worker does: it says what it can do, and makes runs.

These functions are called on the workers, by name: a worker needs the same version of the testbed.
"""

import asyncio
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

from testbed import interpreter
from testbed.limits import usable_cpus
from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import State, Summary
from testbed.results.code_version import code_version, package_version
from testbed.runs.attempt import Attempt
from testbed.runs.cluster.attempts import (
    MOST_LOSSES,
    attempts_at,
    begin,
    campaign_of,
    finish_lost,
    lost_in,
    lost_times,
    made_meanwhile,
    write,
)
from testbed.runs.cluster.files import StoreFiles, shortage_for
from testbed.runs.cluster.stopping import is_stopped, stopped_by
from testbed.runs.job import FORMS, How, Job, JobRecord
from testbed.runs.process import NOT_BEGUN, LocalExecutor
from testbed.runs.turns import turn

_KEPT_CHARACTERS = 200
"""Of what a failed command printed, from its end."""

_DOCTOR_S = 25.0
_MEASURING_S = 40.0

_TURN_S = 20.0
"""How long a worker waits for its turn to measure what its machine carries, while the command waits
for its answer."""

_TAKEN = "another campaign emulates there, so what the machine carries cannot be measured now"


async def describe(*, emulates: bool, dask_worker: Any, at_start: bool = True) -> dict[str, Any]:
    """What this worker's machine is, and what it can do.

    Args:
        emulates: whether runs will be emulated: then it is examined as well (`examine`).
        dask_worker: the worker; Dask gives it.
        at_start: whether the campaign waits for the answer; a command of an earlier version does
            not say.
    """
    description = {
        "id": dask_worker.id,
        "listens": dask_worker.listener.listen_address,
        **await asyncio.to_thread(_description),
    }
    examined = await examine(emulates=True, at_start=at_start) if emulates else {}
    return description | examined


async def examine(*, emulates: bool, at_start: bool = False) -> dict[str, Any]:
    """What `testbed doctor` finds on this worker's machine, its CPU, and what it carries.

    Args:
        emulates: whether runs will be emulated: then that is tried as root, and what the machine
            carries is measured unless it is known. Else both are as they are known without.
        at_start: whether the campaign waits for the answer.
    """
    return await asyncio.to_thread(_examination, emulates, _TURN_S if at_start else None)


def _description() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": usable_cpus(),
        "code": code_version(),
        "package": package_version(),
        "user": os.geteuid(),
    }


def _examination(emulates: bool, turn_s: float | None) -> dict[str, Any]:
    as_root = _as_root() if emulates else ()
    doctor = _doctor(*as_root)
    if emulates and doctor["able"] and "capacity" not in doctor:
        doctor = _measured(doctor, as_root, turn_s)
    machine, calibration = doctor.pop("machine", {}), doctor.pop("capacity", None)
    return {"cpu": machine.get("cpu", ""), "calibration": calibration, "doctor": doctor}


def _measured(
    doctor: dict[str, Any], as_root: Sequence[str], turn_s: float | None
) -> dict[str, Any]:
    """What `testbed doctor` finds here, with what the machine carries, when no other emulates.

    Args:
        doctor: what it finds without.
        as_root: what comes before a command that needs root.
        turn_s: how long to wait for others that emulate, in seconds; None: as long as it takes.
    """
    stopped, has_waited = threading.Event(), threading.Event()
    if turn_s is not None:
        timer = threading.Timer(turn_s, stopped.set)
        timer.daemon = True
        timer.start()
    with turn(stopped, has_waited.set) as is_ours:
        if has_waited.is_set() and "capacity" in (found := _doctor(*as_root)):
            return found  # another worker of this machine has measured it
        if not is_ours:
            return doctor | {"able": False, "error": _TAKEN}
        measured = _doctor(*as_root, options=("--measure",), limit_s=_MEASURING_S)
    if measured["able"]:
        return measured
    # A worker that is not root cannot end what sudo has started, which then measures to its end.
    found = _doctor(*as_root)
    why = measured.get("error", "testbed doctor --measure fails there")
    return found if "capacity" in found else doctor | {"unmeasured": why}


def _doctor(
    *as_root: str, options: Sequence[str] = (), limit_s: float = _DOCTOR_S
) -> dict[str, Any]:
    """What `testbed doctor` finds here."""
    command = [*as_root, *interpreter.TESTBED, "doctor", "--json", *options]
    remedy = f"; {_sudo_rule()}" if as_root else ""
    try:
        done = interpreter.run(
            command, capture_output=True, timeout=limit_s, encoding="utf-8", errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        cause = error.__context__ or error  # it cannot be killed where sudo has started it
        if isinstance(cause, subprocess.TimeoutExpired):
            did = " ".join(("testbed doctor", *options))
            return {"able": False, "error": f"{did} took longer than {limit_s:g} s there"}
        return {"able": False, "error": f"{type(error).__name__}: {error}{remedy}"}
    try:
        return dict(json.loads(done.stdout))
    except ValueError:  # it has printed no JSON
        said = done.stderr.strip()[-_KEPT_CHARACTERS:] or "it printed nothing"
        return {"able": False, "error": f"exit status {done.returncode}: {said}{remedy}"}


def _sudo_rule() -> str:
    """What a worker that is not root needs to emulate."""
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # it has no name
        user = f"#{os.geteuid()}"
    program = " ".join(interpreter.TESTBED)
    return (
        "start this worker as root, or add this rule with visudo -f /etc/sudoers.d/testbed: "
        f"{user} ALL=(root) NOPASSWD: {program} run *, {program} doctor *"
    )


def _as_root() -> tuple[str, ...]:
    """What comes before a command that needs root; workers need not be root themselves."""
    return () if os.geteuid() == 0 else ("sudo", "-n")


def make(
    fields: dict[str, Any], store: str, call: str, known: Collection[str] = ()
) -> dict[str, Any]:
    """Make a run and leave it in the store.

    Args:
        fields: those of the `Job`.
        store: the campaign's: a directory, the same for all machines, or an fsspec address.
        call: what tells this call from all others; before its last `/` stands the name of the event
            that stops the campaign.
        known: its finished runs that the command knows: one that is not among them is not made
            again, whatever command had asked for it.

    Returns:
        The fields of the `JobRecord`.
    """
    from distributed import get_worker

    worker = get_worker().id
    if is_stopped(campaign_of(call)):  # this was sent when the command was about to end
        return asdict(replace(NOT_BEGUN, worker=worker))
    record = _record(_job(fields), store, call, worker, known)
    return asdict(replace(record, worker=record.worker or worker))


def _job(fields: Mapping[str, Any]) -> Job:
    return Job(**{**fields, "how": How(**fields["how"])})


def require_sound(job: Job) -> None:
    """Check what a job asks for, which root may make.

    Raises:
        ValueError: it is no form, or a folder outside of the campaign's.
    """
    if job.form not in FORMS:
        raise ValueError(f"a job's form is {job.form!r}, expected one of {', '.join(FORMS)}")
    folder = PurePosixPath(job.folder)
    if folder.is_absolute() or ".." in folder.parts or job.folder.startswith("-"):
        raise ValueError(f"a job's folder is {job.folder!r}, expected one of the campaign's")


def _record(job: Job, store: str, call: str, worker: str, known: Collection[str] = ()) -> JobRecord:
    """What became of a job that was made here."""
    try:
        require_sound(job)
        files = StoreFiles(store)
        earlier = attempts_at(job, files)
        lost = lost_in(earlier, call)
        made = next((a for a in earlier if a.call == call and a.ended is not None), None)
        made = made or finish_lost(job, files, earlier, call)  # before it handed that on
        made = made or made_meanwhile(job, files, earlier, known)
        if made is not None:
            return _record_of(made, lost)
        if len(lost) >= MOST_LOSSES:
            seconds, message = time.time() - lost[0].began, f"{job.name}: {lost_times(len(lost))}"
            record = JobRecord(ExitStatus.MACHINE_CANNOT, seconds, message=message)
            return replace(record, lost=len(lost), lost_s=seconds)
        attempt = begin(job, files, earlier, call, worker)

        def is_wanted() -> bool:
            nonlocal made
            if job.form == "emulated":  # it may have waited for its turn
                made = made_meanwhile(job, files, attempts_at(job, files), known)
            return made is None

        try:
            record, verdict = _made(job, files, call, is_wanted)
        except Exception as error:  # noqa: BLE001 - as below
            record, verdict = _cannot(error, store), None
        ended = {"ended": time.time(), "verdict": verdict}
        ended |= {name: getattr(record, name) for name in ("status", "run", "message")}
        write(job, files, attempt.model_copy(update=ended))
        return _counting_losses(record, attempt, lost) if made is None else _record_of(made, lost)
    except Exception as error:  # noqa: BLE001 - each file system of a store has errors of its own
        return _cannot(error, store)


def _record_of(made: Attempt, lost: Sequence[Attempt]) -> JobRecord:
    """The record of a job that another call of this function has made, by its attempt."""
    seconds = (made.ended or made.began) - made.began
    record = JobRecord(made.status or 0, seconds, made.run, made.message)
    return _counting_losses(record, made, [a for a in lost if a.began != made.began])


def _made(
    job: Job, files: StoreFiles, call: str, is_wanted: Callable[[], bool]
) -> tuple[JobRecord, State | None]:
    """Make a run and keep it in the store; its record, and whether it can be trusted."""
    with files.workplace() as directory:
        executor = LocalExecutor(directory, as_root=_as_root())
        with stopped_by(campaign_of(call), executor.stop):
            record = executor.run(job, is_wanted)
        for path in (job.file, job.log):
            files.keep(directory / path, str(path))
        if record.run is None:
            return record, None
        summary = (directory / record.run / SUMMARY).read_text(encoding="utf-8")
        run = files.keep_run(directory / record.run, record.run)
        return replace(record, run=run), Summary.model_validate_json(summary).verdict


def _cannot(error: Exception, store: str) -> JobRecord:
    """The record of a run that this machine cannot make, or not keep."""
    reason = shortage_for(error, store)
    message = f"{platform.node()}: {reason or f'{type(error).__name__}: {error}'}"
    return JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message=message)


def _counting_losses(record: JobRecord, attempt: Attempt, lost: Sequence[Attempt]) -> JobRecord:
    """A record with how many workers were lost before this attempt, and how much time with them."""
    lost_s = attempt.began - min((each.began for each in lost), default=attempt.began)
    lost_s = max(lost_s, 0.0)  # an earlier command's may have begun before
    return replace(record, lost=len(lost), lost_s=lost_s, worker=attempt.worker)
