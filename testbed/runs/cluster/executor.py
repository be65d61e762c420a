"""Makes the jobs of a campaign on the workers of a Dask cluster."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from testbed.model.errors import ExitStatus, MachineError, RunFailedError
from testbed.model.run_files.layout import MANIFEST, SUMMARY
from testbed.runs.cluster.calls import WorkerCalls
from testbed.runs.cluster.launch import calls_at
from testbed.runs.cluster.place import Place
from testbed.runs.cluster.worker import (
    OF_START,
    call_until_ended,
    finished_runs,
    make,
)
from testbed.runs.job import Form, Job, JobKey, JobRecord
from testbed.runs.room import shortage
from testbed.runs.store import manifest_of


@contextmanager
def cluster_executor(
    place: Place, directory: Path, wanted: Mapping[Form, str]
) -> "Iterator[ClusterExecutor]":
    """Make runs of a campaign at a place during a block (`calls_at`)."""
    directory.mkdir(parents=True, exist_ok=True)
    with calls_at(place, directory, wanted) as calls:
        shared = directory.resolve() / f"{OF_START}{calls.name}"
        shared.touch()  # a worker that sees it has the directory
        executor = ClusterExecutor(calls, directory)
        try:
            yield executor
        finally:
            executor.stop()
            shared.unlink(missing_ok=True)


@contextmanager
def worker_pool(place: Place, name: str, directory: Path) -> "Iterator[WorkerPool]":
    """Call functions of the testbed, such as grading, at a place during a block (`calls_at`)."""
    with calls_at(place, directory, {"simulated": name}) as calls, WorkerPool(calls) as pool:
        yield pool


class WorkerPool(Executor):
    """The workers that simulate as a pool for calls of the testbed's functions, such as grading."""

    def __init__(self, calls: WorkerCalls) -> None:
        self._calls = calls

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function on a worker, as soon as one has room; it takes no keywords."""
        if kwargs:
            raise TypeError(f"{fn.__name__}: call it without keywords")
        call, name = self._calls.call, fn.__name__.strip("_")
        return call(call_until_ended, self._calls.name, fn, *args, name=name, form="simulated")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as in the standard library
        """Send nothing more, and end the processes of the calls that are under way."""
        self._calls.stop()


class ClusterExecutor:
    """Makes jobs on the workers that have this version of the code, and can make them.

    Workers leave runs in the campaign's directory. From one that does not have it a run comes back
    by Dask. A job that is made again, because its run cannot be trusted, goes to a machine that has
    not made it, also if a later command submits it: manifests say who has. One that a machine
    cannot make goes to the others, and fails if none of them can.
    """

    def __init__(self, calls: WorkerCalls, directory: Path) -> None:
        """Use the workers of a cluster for the campaign in a directory."""
        self._directory = directory.resolve()
        self.calls = calls
        self._known: dict[JobKey, list[str]] = {}

    def slots(self, form: Form) -> int:
        """How many jobs of a form are made at a time; 1 where no worker can, and `submit` fails."""
        return self.calls.slots(form)

    def know_finished(self, jobs: Iterable[Job]) -> None:
        """Take for known what is finished of jobs now: the command looks at it next."""
        for job in jobs:
            self._known_of(job)

    def submit(self, job: Job) -> Future[JobRecord]:
        result: Future[JobRecord] = Future()
        self._send(job, result, time.monotonic(), {})
        return result

    def stop(self) -> None:
        """End all jobs that are under way, and wait until the workers have ended them."""
        self.calls.stop()

    def _send(
        self, job: Job, result: Future[JobRecord], began: float, refusals: dict[str, str]
    ) -> None:
        """Send a job to the workers, but for those that cannot make it (`refusals`, by host)."""
        known = self._known_of(job)
        avoided = self._avoided(job, known, refusals)
        arguments = asdict(job), self.calls.name, str(self._directory), known
        made = self.calls.call(make, *arguments, name=job.name, form=job.form, avoided=avoided)

        def deliver(made: Future[Any]) -> None:
            try:
                if (record := self._record_of(job, began, refusals, made)) is None:
                    self._send(job, result, began, refusals)
                else:
                    result.set_result(record)
            except CancelledError:
                result.cancel()
            except Exception as error:  # noqa: BLE001 - whoever waits for the job raises it
                result.set_exception(error)

        made.add_done_callback(deliver)

    def _known_of(self, job: Job) -> list[str]:
        if job.key not in self._known:
            self._known[job.key] = finished_runs(self._directory, job)
        return [*self._known[job.key]]

    def _hosts(self, form: Form) -> set[str]:
        return {worker.host for worker in self.calls.able(form).values()}

    def _avoided(self, job: Job, known: Collection[str], refusals: Collection[str]) -> set[str]:
        """The hosts that do not make a job, as long as there are others."""
        runs = [self._directory / run for run in known]
        makers = {manifest_of(run).host for run in runs if (run / MANIFEST).is_file()}
        avoided = makers | {*refusals}
        return avoided if self._hosts(job.form) - avoided else {*refusals}

    def _record_of(
        self, job: Job, began: float, refusals: dict[str, str], made: Future[Any]
    ) -> JobRecord | None:
        """What became of a job; None: it is to be sent to another machine."""
        if not made.cancelled() and not isinstance(error := made.exception(), MachineError | None):
            lost = isinstance(error, RunFailedError)  # no other attempt must follow
            status = ExitStatus.MACHINE_CANNOT if lost else ExitStatus.FAILED
            message = str(error) if lost else f"{type(error).__name__}: {error}"
            return JobRecord(status, time.monotonic() - began, message=message)
        reply = made.result()  # or its error, which is that of the campaign
        record = JobRecord(**reply["record"])
        if record.run is None and record.status == ExitStatus.MACHINE_CANNOT:
            refusals[reply["host"]] = record.message
            if self._hosts(job.form) - {*refusals}:
                return None
            message = "\n".join(dict.fromkeys(refusals.values()))
            record = replace(record, message=message, error=None)
        if reply["packed"] is not None:
            record = self._unpacked(job, record, reply["packed"])
        if record.run is not None:
            self._known.setdefault(job.key, []).append(record.run)
        return record

    def _unpacked(self, job: Job, record: JobRecord, packed: bytes) -> JobRecord:
        """The record of a run that came back from a worker."""
        try:
            with TemporaryDirectory(prefix=OF_START, dir=self._directory) as temporary:
                with ZipFile(BytesIO(packed)) as archive:
                    archive.extractall(temporary)
                for path in (job.file, job.log):
                    (self._directory / path).parent.mkdir(parents=True, exist_ok=True)
                    Path(temporary, path).replace(self._directory / path)
                if record.run is None:
                    return record
                run, number = record.run, 1
                while (self._directory / run).exists():
                    number += 1
                    run = f"{record.run}-{number}"
                made, place = Path(temporary, record.run), self._directory / run
                began_s = (made / MANIFEST).stat().st_mtime
                os.utime(made / SUMMARY, (began_s, began_s + record.seconds))  # `Result.seconds`
                place.parent.mkdir(parents=True, exist_ok=True)
                made.replace(place)
                return replace(record, run=run)
        except Exception as error:  # noqa: BLE001 - the record reports it
            short = shortage(error, self._directory)
            message = str(short or f"{self._directory}: {type(error).__name__}: {error}")
            status = ExitStatus.MACHINE_CANNOT
            return replace(record, status=status, run=None, message=message, error=None)
