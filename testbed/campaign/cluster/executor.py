"""Makes the jobs of a campaign on the workers of a Dask cluster."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from testbed.campaign.cluster.worker import describe, make
from testbed.campaign.job import FORMS, Form, Job, JobRecord
from testbed.model.errors import ExitStatus, MachineError
from testbed.results.code_version import code_version

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as Task

EMULATION = "emulation"
"""The Dask resource that an emulation takes: a worker stands for a machine and has one of it. A
simulation takes one of the worker's threads, which are as many as the machine's cores."""

PATIENCE_S = 50.0
"""How long a job may wait while no worker can make it."""

_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of the cluster.

    Attributes:
        address: where the scheduler reaches it.
        offers: how many jobs of each form it makes at a time.
        description: what it says of its machine (`worker.describe`).
        unfit: why it makes no runs of a form; empty for those that it makes.
    """

    address: str
    offers: Mapping[Form, int]
    description: Mapping[str, Any] = field(default_factory=dict)
    unfit: Mapping[Form, str] = field(default_factory=dict)

    def reason(self, form: Form) -> str:
        """Why it makes no runs of a form; empty if it does."""
        if not self.offers[form]:
            return f"it does not offer the resource {EMULATION!r}"
        return self.unfit.get(form, "")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A job that was sent to the cluster, as a task that some workers may take."""

    job: Job
    task: "Task"
    workers: frozenset[str]


class ClusterExecutor:
    """Makes jobs on the workers that have this version of the code, and can make them.

    The store is a directory that all machines have under one path. A worker that is lost loses the
    run that it was making; Dask gives that to another one, three times at most. A job that is
    submitted again, because its run cannot be trusted, goes to a worker that has not made it.
    """

    def __init__(self, client: "Client", directory: Path, forms: tuple[Form, ...]) -> None:
        """Use the cluster of a client.

        Args:
            client: connected to a scheduler.
            directory: the campaign's, the store of its runs.
            forms: the forms of the runs that will be made.
        """
        self._forms = forms
        self._client = client
        self._store = str(directory.resolve())
        self._campaign = f"stop-{uuid4().hex}"
        self._pending: dict[Future[JobRecord], _Sent] = {}
        self._makers: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._workers: dict[str, Worker] = {}
        self._look()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that are known now."""
        return tuple(self._workers.values())

    def slots(self, form: Form) -> int:
        """How many jobs of a form are made at a time; 1 where no worker can, and `submit` fails."""
        return sum(worker.offers[form] for worker in self._able(form)) or 1

    def pool(self) -> Executor:
        """The workers that simulate, for calls of functions of the testbed."""
        able = [worker.address for worker in self._able("simulated")]
        return cast("Executor", self._client.get_executor(workers=able, pure=False))

    def submit(self, job: Job) -> Future[JobRecord]:
        """Send a job to the workers."""
        result: Future[JobRecord] = Future()
        self._send(job, result)
        return result

    def _send(self, job: Job, result: Future[JobRecord]) -> None:
        able = frozenset(worker.address for worker in self._able(job.form))
        able = able - self._makers.get(job.key, set()) or able
        task = self._client.submit(
            make,
            asdict(job),
            self._store,
            self._campaign,
            key=f"{job.key}-{uuid4().hex}",
            resources={EMULATION: 1} if job.form == "emulated" else None,
            workers=[*able] or None,
            allow_other_workers=False,
            pure=False,
        )
        with self._lock:
            self._pending[result] = _Sent(job, task, able)
        task.add_done_callback(lambda task: self._deliver(task, result))

    def stop(self) -> None:
        """End all jobs that are under way, and wait until the workers have ended them."""
        from distributed import Event, wait  # noqa: PLC0415 - an extra, and slow to load

        self._stopped.set()
        with self._lock:
            tasks = [sent.task for sent in self._pending.values()]
        if tasks and self._client.status == "running":
            Event(self._campaign, client=self._client).set()
            processing = {key for keys in self._client.processing().values() for key in keys}
            self._client.cancel([task for task in tasks if task.key not in processing])
            wait([task for task in tasks if task.key in processing])
        self._watcher.join()

    def _able(self, form: Form) -> list[Worker]:
        return [worker for worker in self._workers.values() if not worker.reason(form)]

    def _deliver(self, task: "Task", result: Future[JobRecord]) -> None:
        """Hand on what became of a job."""
        with self._lock:
            sent = self._pending.get(result)
            if sent is None or sent.task.key != task.key:
                return  # given up, or sent again
            del self._pending[result]
        if task.status == "finished":
            worker, fields = task.result()
            self._makers.setdefault(sent.job.key, set()).add(worker)
            result.set_result(JobRecord(**fields))
        elif task.status == "error":
            error = task.exception()
            message = f"{type(error).__name__}: {error}"
            result.set_result(JobRecord(ExitStatus.FAILED, 0.0, message=message))
        else:
            result.set_exception(
                MachineError("the scheduler of the cluster is gone", "the same command resumes")
            )

    def _watch(self) -> None:
        """Look for workers that came or went; give up jobs that none can make any more."""
        stuck_since: dict[Form, float] = {}
        while not self._stopped.wait(_LOOK_S):
            if self._client.status != "running":
                continue  # Dask ends the tasks
            self._look()
            self._send_again()
            for form in FORMS:
                if self._able(form):
                    stuck_since.pop(form, None)
                elif time.monotonic() - stuck_since.setdefault(form, time.monotonic()) > PATIENCE_S:
                    self._give_up(form)

    def _look(self) -> None:
        """Ask the workers that are new what they can do; forget those that are gone."""
        infos = self._client.scheduler_info(n_workers=-1)["workers"]
        new = {address: info for address, info in infos.items() if address not in self._workers}
        workers = {a: worker for a, worker in self._workers.items() if a in infos}
        answers: dict[str, Any] = {}
        if new:
            answers = self._client.run(
                describe, emulates="emulated" in self._forms, workers=[*new], on_error="return"
            )
        for address, info in new.items():
            offers: dict[Form, int] = {
                "emulated": int(info["resources"].get(EMULATION, 0)),
                "simulated": info["nthreads"],
            }
            workers[address] = described(address, offers, answers.get(address))
        self._workers = workers

    def _send_again(self) -> None:
        """Send the jobs again whose workers are all gone, where others can make them."""
        with self._lock:
            lost = {
                result: sent
                for result, sent in self._pending.items()
                if sent.workers.isdisjoint(self._workers) and self._able(sent.job.form)
            }
        for result, sent in lost.items():
            self._send(sent.job, result)
            self._client.cancel([sent.task])

    def _give_up(self, form: Form) -> None:
        """Fail the jobs of a form, as no worker can make them."""
        reason = self.no_worker(form)
        with self._lock:
            stuck = [result for result, sent in self._pending.items() if sent.job.form == form]
            tasks = [self._pending.pop(result).task for result in stuck]
        self._client.cancel(tasks)
        for result in stuck:
            result.set_result(JobRecord(ExitStatus.MACHINE_CANNOT, PATIENCE_S, message=reason))

    def no_worker(self, form: Form) -> str:
        """Why no worker makes runs of a form; empty if one does."""
        if self._able(form):
            return ""
        if not self._workers:
            return "the cluster has no worker"
        reasons = {
            f"{worker.description.get('host') or worker.address}: {worker.reason(form)}": None
            for worker in self._workers.values()
        }
        return f"no worker can make {form} runs: {'; '.join(reasons)}"


def described(address: str, offers: Mapping[Form, int], reply: Any) -> Worker:
    """A worker with what it said of itself, or with the error that it answered."""
    if not isinstance(reply, Mapping):
        answer = "nothing" if reply is None else f"{type(reply).__name__}: {reply}"
        reason = f"asked for its version of the testbed, it answers {answer}"
        return Worker(address, offers, {}, dict.fromkeys(FORMS, reason))
    unfit: dict[Form, str] = {}
    if reply["code"] != code_version():
        reason = f"it has another version of the testbed ({reply['code']}, not {code_version()})"
        unfit = dict.fromkeys(FORMS, reason)
    elif not reply.get("doctor", {"able": True})["able"]:
        missing = [
            finding["name"]
            for finding in reply["doctor"].get("findings", ())
            if finding["required"] and not finding["ok"]
        ]
        lacks = ", ".join(missing) or reply["doctor"].get("error", "testbed doctor fails")
        unfit["emulated"] = f"it lacks: {lacks}"
    return Worker(address, offers, reply, unfit)
