"""Which workers a cluster has, and what each says that it can do."""

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.results.code_version import package_version
from testbed.runs.cluster.worker import describe, examine
from testbed.runs.cluster.workers import (
    EMULATION,
    Worker,
    described,
    unanswered,
    unprotected,
)
from testbed.runs.job import FORMS, Form

if TYPE_CHECKING:
    from distributed import Client

_LOOK_S = 0.1

_EXAMINED_S = 15.0
"""How long the end of a campaign waits for what its workers find out about their machines."""


class Roster:
    """Knows the workers of a cluster. Each is asked what it can do, those that come later as well.

    Each worker is asked by a thread of its own: one that never answers delays no other.
    """

    def __init__(
        self,
        client: "Client",
        forms: Iterable[Form],
        on_worker: Callable[[Worker], None] | None = None,
    ) -> None:
        """Know no worker yet.

        Args:
            client: connected to a scheduler.
            forms: the forms of the runs that will be made.
            on_worker: called with each worker that has said what its machine is, to keep that.
        """
        self._client = client
        self._forms = tuple(forms)
        self._on_worker = on_worker
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._unfit: Callable[[Worker], str] = lambda _: ""
        self._threads: list[threading.Thread] = []
        self._has_waited = False
        self._signs: dict[str, float] = {}
        self._heard: dict[Form, float] = dict.fromkeys(FORMS, time.monotonic())

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that are known now."""
        return tuple(self._workers.values())

    @property
    def addresses(self) -> frozenset[str]:
        """Where the workers are reached that are known now."""
        return frozenset(self._workers)

    def able(self, form: Form) -> list[Worker]:
        """The workers that can make runs of a form."""
        return [worker for worker in self.workers if not worker.reason(form)]

    def offered(self, form: Form) -> int:
        """How many runs of a form they make at a time."""
        return sum(worker.offers[form] for worker in self.able(form))

    def no_worker(self, form: Form) -> str:
        """Why no worker makes runs of a form; empty if one does."""
        if self.able(form):
            return ""
        if not self._workers:
            return "the cluster has no worker"
        reasons = {f"{worker.name}: {worker.reason(form)}": None for worker in self.workers}
        return f"no worker can make {form} runs: {'; '.join(reasons)}"

    def silence_s(self, form: Form) -> float:
        """How long nothing has been heard of the workers that make runs of a form, in seconds.

        Of a machine that has lost power that is longer ago than its worker has been gone: its
        scheduler waits for it.
        """
        return time.monotonic() - self._heard[form]

    def require(self, unfit: Callable[[Worker], str]) -> None:
        """Require more of the workers that come from now on.

        Args:
            unfit: why one makes no emulated runs; empty if it does.
        """
        self._unfit = unfit

    def look(self, on_answer: Callable[[], object]) -> None:
        """Forget the workers that are gone, and ask those that are new.

        Args:
            on_answer: called when one has answered.
        """
        try:
            infos = self._infos()
        except OSError:  # the scheduler is gone, or will answer the next time
            return
        with self._lock:
            known = {
                address: worker
                for address, worker in self._workers.items()
                if worker.directory == infos.get(address, {}).get("local_directory")
            }
            new = [
                unprotected(unanswered(address, _offers(info), info["local_directory"]), address)
                for address, info in infos.items()
                if address not in known
            ]
            self._workers = known | {worker.address: worker for worker in new}
            signs = {address: info["last_seen"] for address, info in infos.items()}
            self._note_heard({each for each in signs if signs[each] != self._signs.get(each)})
            self._signs = signs
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for worker in new:
            if worker.answered:
                continue  # it is not asked
            thread = threading.Thread(target=self._ask, args=(worker, on_answer), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _infos(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of its workers, by their addresses.

        `Client.scheduler_info` is not used: it returns a field of the client, from which the client
        removes all workers every 2 s.
        """
        identity = self._client.sync(self._client.scheduler.identity, n_workers=-1)
        return dict(identity["workers"])

    def wait(self, seconds: float) -> None:
        """Wait until all workers have answered, but no longer than that."""
        end = time.monotonic() + seconds
        while not all(worker.answered for worker in self.workers) and time.monotonic() < end:
            time.sleep(_LOOK_S)
        self._has_waited = True

    def join(self) -> None:
        """Wait until workers have said what they find out about their machines."""
        end = time.monotonic() + _EXAMINED_S
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))

    def _ask(self, worker: Worker, on_answer: Callable[[], object]) -> None:
        """Ask a worker what it can do; it may never answer."""
        emulates = "emulated" in self._forms
        try:
            at_start = not self._has_waited
            answer = self._call(worker, describe, emulates=emulates, at_start=at_start)
            if isinstance(answer, Exception):  # another version may be called otherwise
                version = self._call(worker, package_version)
                if isinstance(version, str) and version != package_version():
                    answer = {"package": version}
        except OSError:
            return  # the scheduler is gone
        answered = described(worker, answer)
        if emulates and not answered.reason("emulated") and (reason := self._unfit(answered)):
            answered = replace(answered, unfit={**answered.unfit, "emulated": reason})
        answered = self._kept(answered)
        with self._lock:
            if self._workers.get(worker.address) is not worker:
                return  # it is gone
            self._workers[worker.address] = answered
            self._note_heard({worker.address})
        on_answer()
        if not emulates and self._on_worker is not None and not answered.reason("simulated"):
            with suppress(OSError):  # the scheduler is gone
                findings = self._call(worker, examine, emulates=False)
                if isinstance(findings, Mapping):
                    described_now = {**answered.description, **findings}
                    self._kept(replace(answered, description=described_now))

    def _note_heard(self, addresses: Container[str]) -> None:
        """Take note of workers that have been heard of just now."""
        for form in FORMS:
            if any(worker.address in addresses for worker in self.able(form)):
                self._heard[form] = time.monotonic()

    def _call(self, worker: Worker, function: Callable[..., Any], **arguments: Any) -> Any:
        """What a function returns on a worker, or its error."""
        answers = self._client.run(
            function, **arguments, workers=[worker.address], on_error="return"
        )
        return answers.get(worker.address)

    def _kept(self, worker: Worker) -> Worker:
        """Keep what a worker says of itself. If that fails, the worker makes no runs."""
        if self._on_worker is None:
            return worker
        try:
            self._on_worker(worker)
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            reason = f"its record cannot be kept: {type(error).__name__}: {error}"
            return replace(worker, unfit=dict.fromkeys(FORMS, reason))
        return worker


def _offers(info: Mapping[str, Any]) -> dict[Form, int]:
    """How many runs of each form a worker makes at a time, as the scheduler knows it."""
    resources = info["resources"]
    return {"emulated": int(resources.get(EMULATION, 0)), "simulated": info["nthreads"]}
