"""What a worker of a cluster does: it says what its machine can do, and makes runs.

This is called on workers, by its names: a worker needs the same version of the testbed.
"""

import asyncio
import json
import os
import platform
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from testbed import interpreter
from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.results.code_version import code_version
from testbed.results.whole_file import scratch
from testbed.runs.cluster.place import EXECUTES, is_protected
from testbed.runs.job import FORMS, How, Job, JobRecord, identity, identity_of
from testbed.runs.process import NOT_BEGUN, LocalExecutor, turn
from testbed.runs.result import Result
from testbed.runs.room import shortage
from testbed.runs.store import manifest_of

OF_START = ".cluster-"
"""How the names of a command's files begin in its directory while it uses a cluster: certificates,
and one by which workers see that the directory is theirs as well."""

MOST_PACKED_BYTES = 64 << 20
"""The largest run that comes back by Dask, from a worker that does not have the directory."""

_KEPT_CHARACTERS = 200
"""Of what a failed command printed, from its end."""

_DOCTOR_S = 25.0
_MEASURING_S = 40.0

_TURN_S = 20.0
"""How long a worker waits for its turn to measure what its machine carries."""


def dask_setup(_worker: object) -> None:
    """Leave the session of the terminal, whose Ctrl-C the command handles (Dask's preload)."""
    os.setsid()
    os.chdir(interpreter.NEUTRAL)


class Campaign:
    """What a campaign has on this worker; its plugin there holds it."""

    def __init__(self, name: str, worker: Any, *, emulates: bool) -> None:
        """Find out what the machine can do, and say so in an event, while the worker goes on."""
        self._ends: set[Callable[[], object]] = set()
        self._describing = asyncio.create_task(self._describe(name, worker, emulates=emulates))

    async def _describe(self, name: str, worker: Any, *, emulates: bool) -> None:
        listens = worker.listener.listen_address
        try:
            answer = await asyncio.to_thread(_description, listens, emulates=emulates)
        except Exception as error:  # noqa: BLE001 - the command reports it
            answer = {"error": f"{type(error).__name__}: {error}"}
        host = {"directory": worker.local_directory, "host": platform.node()}
        worker.log_event(name, host | answer)

    @contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """Have the end of the campaign call a function during a block."""
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)

    async def end(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(end) for end in (*self._ends,)))


def _campaign(name: str) -> Campaign | None:
    """The campaign on this worker; None: it has ended."""
    from distributed import get_worker

    return getattr(get_worker().plugins.get(name), "campaign", None)


# --- what the machine can do ----------------------------------------------------------------------


def _description(listens: str, *, emulates: bool) -> dict[str, Any]:
    """Why it makes no runs, by their form, and what it carries."""
    if not is_protected(listens):
        reason = (
            f"it speaks plain TCP at {listens}, and {EXECUTES} "
            "(start it with TLS, or on the scheduler's machine with --host 127.0.0.1)"
        )
        return {"unfit": dict.fromkeys(FORMS, reason)}
    if not emulates:
        return {}
    as_root = _as_root()
    doctor = _doctor(*as_root)
    if doctor["able"] and "capacity" not in doctor:
        doctor = _measured(doctor, as_root)
    if doctor["able"]:
        return {"calibration": doctor.get("capacity"), "unmeasured": doctor.get("unmeasured", "")}
    findings = doctor.get("findings", ())
    missing = [each["name"] for each in findings if each["required"] and not each["ok"]]
    failed = f"testbed doctor fails there: {doctor.get('error', 'no reason given')}"
    return {"unfit": {"emulated": f"it lacks: {', '.join(missing)}" if missing else failed}}


def _measured(doctor: dict[str, Any], as_root: Sequence[str]) -> dict[str, Any]:
    """What `testbed doctor` finds here, with what the machine carries, when no other emulates."""
    stopped, has_waited = threading.Event(), threading.Event()
    timer = threading.Timer(_TURN_S, stopped.set)
    timer.daemon = True
    timer.start()
    with turn(stopped, has_waited.set) as is_ours:
        if has_waited.is_set() and "capacity" in (found := _doctor(*as_root)):
            return found  # another worker of this machine has measured it
        if not is_ours:
            taken = "another campaign emulates there, so what it carries cannot be measured now"
            return doctor | {"able": False, "error": taken}
        measured = _doctor(*as_root, options=("--measure",), limit_s=_MEASURING_S)
    if not measured["able"]:
        # A worker that is not root cannot end what sudo has started: that measures to its end.
        why = measured.get("error", "testbed doctor --measure fails there")
        measured = _doctor(*as_root) | {"unmeasured": why}
    return measured


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
        why = f"{type(error).__name__}: {error}{remedy}"
        cause = error.__context__ or error  # it cannot be killed where sudo has started it
        if isinstance(cause, subprocess.TimeoutExpired):
            why = f"{' '.join(('testbed doctor', *options))} took longer than {limit_s:g} s there"
        return {"able": False, "error": why}
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


# --- what it makes --------------------------------------------------------------------------------


def make(
    fields: dict[str, Any], campaign: str, directory: str, known: Collection[str] = ()
) -> dict[str, Any]:
    """Make a run in the campaign's directory; where that is not there, pack it.

    Args:
        fields: those of the `Job`.
        campaign: its name.
        directory: its directory.
        known: its finished runs that the command knows, by their paths there. Another one is not
            made again: a worker has made it that was lost then, or whose command was killed.

    Returns:
        `record`: the fields of the `JobRecord`; `host`: who has made it; `packed`: its files.
    """
    packed = None
    try:
        job = _job(fields)
        require_sound(job)
        if (Path(directory) / f"{OF_START}{campaign}").is_file() and os.access(directory, os.W_OK):
            record = _made(job, campaign, Path(directory), known)
        else:
            with scratch("testbed-runs-") as place:
                record = _made(job, campaign, place)
                record, packed = _packed(record, job, place)
    except Exception as error:  # noqa: BLE001 - the command reports it
        reason = shortage(error, Path(directory)) or f"{type(error).__name__}: {error}"
        message = f"{platform.node()}: {reason}"
        record = JobRecord(ExitStatus.MACHINE_CANNOT, 0.0, message=message)
    return {"record": asdict(record), "host": platform.node(), "packed": packed}


def _job(fields: Mapping[str, Any]) -> Job:
    return Job(**{**fields, "how": How(**fields["how"])})


def require_sound(job: Job) -> None:
    """Check what a job asks for, which root may make: a form, and a folder of the campaign's."""
    if job.form not in FORMS:
        raise ValueError(f"a job's form is {job.form!r}, expected one of {', '.join(FORMS)}")
    folder = PurePosixPath(job.folder)
    if folder.is_absolute() or ".." in folder.parts or job.folder.startswith("-"):
        raise ValueError(f"a job's folder is {job.folder!r}, expected one of the campaign's")


def _made(job: Job, campaign: str, directory: Path, known: Collection[str] = ()) -> JobRecord:
    """What became of a job that is made below a directory, or is there already."""
    if (ours := _campaign(campaign)) is None:
        return NOT_BEGUN
    if (there := _made_before(job, directory, known)) is not None:
        return there
    executor = LocalExecutor(directory, as_root=_as_root())

    def is_wanted() -> bool:
        nonlocal there
        if job.form == "emulated":  # it may have waited for its turn
            there = _made_before(job, directory, known)
        return there is None

    with ours.ended_by(executor.stop):
        if _campaign(campaign) is None:  # it has ended just now
            return NOT_BEGUN
        record = executor.run(job, is_wanted)
    return there or record


def finished_runs(directory: Path, job: Job) -> list[str]:
    """The finished runs with a job's folder and seed, oldest first, relative to the directory."""
    return sorted(
        f"{job.folder}/{file.parent.name}"
        for file in (directory / job.folder).glob(f"[0-9]*-{job.seed}*/{SUMMARY}")
        if file.parent.name.split("-")[1] == str(job.seed)  # TIME-SEED, or TIME-SEED-NUMBER
    )


def _made_before(job: Job, directory: Path, known: Collection[str]) -> JobRecord | None:
    """The newest finished run that is just this job's, and not known."""
    wanted = identity(job.form, job.scenario, code_version())
    for run in reversed(finished_runs(directory, job)):
        if run not in known and identity_of(manifest_of(directory / run)) == wanted:
            made = Result(directory / run)
            status = made.summary.exit_status(require_trusted=job.how.require_trusted)
            return JobRecord(status, made.seconds, run)
    return None


def _packed(record: JobRecord, job: Job, directory: Path) -> tuple[JobRecord, bytes | None]:
    """A record, and its files in an archive; without a run if that is too large to come back."""
    places = [directory / path for path in (job.file, job.log, record.run) if path is not None]
    files = [
        file for place in places for file in (place, *sorted(place.rglob("*"))) if file.exists()
    ]
    with TemporaryFile(dir=directory) as packed:
        with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.relative_to(directory))
        if (size := packed.tell()) > MOST_PACKED_BYTES:
            message = (
                f"{platform.node()}: the run takes {size >> 20} MiB, and no more than "
                f"{MOST_PACKED_BYTES >> 20} come back by Dask; give all machines the directory"
            )
            return replace(
                record, status=ExitStatus.MACHINE_CANNOT, run=None, message=message
            ), None
        packed.seek(0)
        return record, packed.read()


def call_until_ended(campaign: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function whose work is done by processes; they are ended with the campaign."""
    thread, ours = threading.get_native_id(), _campaign(campaign)
    if ours is None:
        return None
    with ours.ended_by(lambda: _end_children(thread)):
        return function(*arguments)


def _end_children(thread: int) -> None:
    children = Path(f"/proc/self/task/{thread}/children")
    for pid in children.read_text(encoding="ascii").split() if children.exists() else ():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
