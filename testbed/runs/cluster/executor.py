"""Makes the jobs of a campaign on the workers of a Dask cluster."""

import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from testbed.model.errors import ExitStatus, MachineError
from testbed.model.run_files.layout import MANIFEST, SUMMARY
from testbed.results.shortage import shortage
from testbed.runs.cluster.attempts import MOST_LOSSES, attempts_at
from testbed.runs.cluster.calls import WorkerCalls, WorkersLostError
from testbed.runs.cluster.files import StoreFiles, is_address, shortage_for
from testbed.runs.cluster.worker import make
from testbed.runs.cluster.workers import Worker
from testbed.runs.job import Form, Job, JobRecord


@dataclass(frozen=True, slots=True)
class _Submitted:
    """A job that has no result yet.

    Attributes:
        job: it.
        result: what becomes of it.
        began: when it was submitted (`time.monotonic()`).
        refusals: why workers cannot make it, by their ids.
    """

    job: Job
    result: Future[JobRecord]
    began: float
    refusals: dict[str, str] = field(default_factory=dict)


class ClusterExecutor:
    """Makes jobs on the workers that have this version of the code, and can make them.

    The store is the campaign's directory, which all machines have under one path then, or an fsspec
    address: what workers leave there is copied into the directory. A worker that is lost loses the
    run that it was making; that is given to another one (`WorkerCalls`). A job that is made again,
    because its run cannot be trusted, goes to a machine that has not made it, also if a later
    command submits it: the attempts in the store say who has. One that a machine cannot make goes
    to the others, and fails if none of them can.
    """

    def __init__(self, calls: WorkerCalls, directory: Path, store: str | None = None) -> None:
        """Use the workers of a cluster.

        Args:
            calls: makes the calls.
            directory: the campaign's.
            store: another directory, or an fsspec address; None: the campaign's directory.
        """
        self._directory = directory
        self._copies = store is not None
        self._calls = calls
        is_elsewhere = store is not None and is_address(store)
        self._store = str(store) if is_elsewhere else str(Path(store or directory).resolve())
        self._files = StoreFiles(self._store)
        self._known: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()
        self._campaign = f"{datetime.now().astimezone():%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that are known now."""
        return self._calls.workers

    @property
    def scheduler(self) -> str:
        """Where the scheduler of its cluster is reached."""
        return str(self._calls.client.scheduler_info(n_workers=1)["address"])

    def require(self, unfit: Callable[[Worker], str]) -> None:
        """Require more of workers that come from now on (`Roster.require`)."""
        self._calls.require(unfit)

    def slots(self, form: Form) -> int:
        """How many jobs of a form are made at a time; 1 where no worker can, and `submit` fails."""
        return self._calls.slots(form)

    def submit(self, job: Job) -> Future[JobRecord]:
        """Send a job to the workers."""
        result: Future[JobRecord] = Future()
        self._send(_Submitted(job, result, time.monotonic()))
        return result

    def _send(self, submitted: _Submitted) -> None:
        """Send a job to the workers."""
        job = submitted.job
        try:
            avoided = self._avoided(job, submitted.refusals)
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            submitted.result.set_result(self._without_store(JobRecord(0, 0.0), error))
            return
        known = [run for run in self._known_in(job.folder) if _seed_of(run) == str(job.seed)]
        arguments = asdict(job), self._store, f"{self._campaign}/{uuid4().hex}", known
        made = self._calls.call(make, *arguments, name=job.name, form=job.form, avoided=avoided)
        made.add_done_callback(lambda made: self._deliver(submitted, made))

    def _able(self, form: Form) -> list[Worker]:
        return [worker for worker in self.workers if not worker.reason(form)]

    def _avoided(self, job: Job, refusals: Container[str]) -> frozenset[str]:
        """The addresses of the workers that do not make a job, as long as there are others."""
        able = self._able(job.form)
        makers = self._makers(job, able)
        refused = {worker.address for worker in able if worker.description["id"] in refusals}
        all_avoided = refused.union(makers)
        return frozenset(all_avoided if len(all_avoided) < len(able) else refused)

    def _makers(self, job: Job, able: Sequence[Worker]) -> frozenset[str]:
        """The addresses of the workers that do not make a job again, as long as there are others.

        All workers of the machines that have made it; if there is no other machine, only those that
        have made it themselves.
        """
        made = [attempt for attempt in attempts_at(job, self._files) if attempt.verdict is not None]
        hosts, ids = ({getattr(attempt, each) for attempt in made} for each in ("host", "worker"))
        there = [worker for worker in able if worker.description["host"] in hosts]
        if len(there) == len(able):
            there = [worker for worker in able if worker.description["id"] in ids]
        return frozenset(worker.address for worker in there)

    def _known_in(self, folder: str, further: Iterable[str] = ()) -> frozenset[str]:
        """The finished runs of a folder that the command knows, relative to its directory.

        What workers finish that an earlier command has left is not among them. Any thread may ask.

        Args:
            folder: it.
            further: runs that it knows from now on.
        """
        with self._lock:
            if folder not in self._known:
                finished = (self._directory / folder).glob(f"[0-9]*/{SUMMARY}")
                names = (summary.parent.name for summary in finished)
                self._known[folder] = frozenset(f"{folder}/{name}" for name in names)
            self._known[folder] = self._known[folder].union(further)
            return self._known[folder]

    def _deliver(self, submitted: _Submitted, made: Future[Any]) -> None:
        """Hand on the result of a job, or the error in doing so: otherwise nobody would see it."""
        try:
            self._hand_on(submitted, made)
        except Exception as error:  # noqa: BLE001 - whoever waits for the job raises it
            submitted.result.set_exception(error)

    def _hand_on(self, submitted: _Submitted, made: Future[Any]) -> None:
        """Hand on what became of a job."""
        job, result, refusals = submitted.job, submitted.result, submitted.refusals
        error = made.exception()
        if error is None:
            record = JobRecord(**made.result())
            if record.run is None and record.status == ExitStatus.MACHINE_CANNOT:
                refusals[record.worker] = record.message
                others = {each.description["id"] for each in self._able(job.form)} - {*refusals}
                if others and record.lost < MOST_LOSSES:
                    self._send(submitted)
                    return
                record = replace(record, message=_joined(refusals.values()), error=None)
            record = self._fetched(job, record)
            if record.run is not None:
                self._known_in(job.folder, [record.run])
            result.set_result(record)
        elif isinstance(error, MachineError):
            result.set_exception(error)
        elif isinstance(error, WorkersLostError):
            seconds, message = time.monotonic() - submitted.began, str(error)
            record = JobRecord(ExitStatus.MACHINE_CANNOT, seconds, message=message)
            result.set_result(replace(record, lost=error.losses, lost_s=seconds))
        else:
            message = f"{type(error).__name__}: {error}"
            result.set_result(JobRecord(ExitStatus.FAILED, 0.0, message=message))

    def fetch_finished(self, jobs: Iterable[Job]) -> None:
        """Copy the finished runs of jobs that are in the store only: a command may have died.

        The command knows those that are finished now, and looks at them next.
        """
        jobs = [*jobs]
        folders = {job.folder for job in jobs}
        if self._copies:
            self._fetch_missing(jobs, folders)
        for folder in folders:
            self._known_in(folder)

    def _fetch_missing(self, jobs: Iterable[Job], folders: Iterable[str]) -> None:
        """Copy the finished runs in folders of the store that are not here."""
        runs = [f"{folder}/{name}" for folder in folders for name in self._files.names(folder)]
        missing = [
            run
            for run in runs
            if Path(run).name[0].isdigit()
            and not (self._directory / run).is_dir()
            and SUMMARY in self._files.names(run)
        ]
        if not missing:
            return
        attempts = [attempt for job in jobs for attempt in attempts_at(job, self._files)]
        lasted_s = {a.run: a.ended - a.began for a in attempts if a.ended is not None}
        for run in missing:
            self._fetch_run(run, lasted_s.get(run))

    def keep(self, name: str, content: str) -> None:
        """Keep a file of the campaign in its store as well, if that is not its directory.

        Raises:
            MachineError: the store cannot be used.
        """
        if not self._copies:
            return
        try:
            self._files.write(name, content)
        except Exception as error:  # each file system has errors of its own
            what = f"{self._store}: {type(error).__name__}: {error}"
            remedy = "this machine and all workers write there"
            raise shortage_for(error, self._store) or MachineError(what, remedy) from error

    def kept(self, name: str) -> str | None:
        """What was kept of a file in the store; None if it is not there."""
        if not self._copies or name not in self._files.names(""):
            return None
        return self._files.read(name)

    def _fetched(self, job: Job, record: JobRecord) -> JobRecord:
        """The record of a run whose files are copied from the store."""
        if not self._copies:
            return record
        try:
            for path in (job.file, job.log):
                if path.name in self._files.names(str(path.parent)):
                    self._files.fetch(str(path), self._directory)
            if record.run is not None:
                self._fetch_run(record.run, record.seconds)
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            return self._without_store(record, error)
        return record

    def _fetch_run(self, run: str, lasted_s: float | None) -> None:
        """Copy a run from the store; if that is known, with the time it took (`Run.seconds`)."""
        self._files.fetch(run, self._directory)
        manifest, summary = (self._directory / run / name for name in (MANIFEST, SUMMARY))
        if lasted_s is not None:
            began_s = manifest.stat().st_mtime
            os.utime(summary, (began_s, began_s + lasted_s))

    def _without_store(self, record: JobRecord, error: Exception) -> JobRecord:
        """The record of a run for which the store, or this directory, could not be used."""
        short = shortage(error, self._directory)
        message = str(short or f"{self._store}: {type(error).__name__}: {error}")
        status = ExitStatus.MACHINE_CANNOT
        return replace(record, status=status, run=None, message=message, error=None)

    def stop(self) -> None:
        """End all jobs that are under way, and wait until the workers have ended them."""
        self._calls.stop(self._campaign)
        self._calls.join()


def _joined(reasons: Iterable[str]) -> str:
    """Why machines cannot make a run, each reason once."""
    return "\n".join(dict.fromkeys(reasons))


def _seed_of(run: str) -> str:
    """The seed of a run, from the name of its directory: TIME-SEED, or TIME-SEED-NUMBER.

    Empty if a user has given it another name.
    """
    return run.rpartition("/")[2].partition("-")[2].partition("-")[0]
