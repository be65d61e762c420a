"""Calls of functions on the workers of a Dask cluster that can make them, watched to their end."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from testbed.model.errors import ClusterLostError, RunFailedError
from testbed.runs.cluster.attempts import MOST_LOSSES, lost_times
from testbed.runs.cluster.roster import Roster
from testbed.runs.cluster.workers import EMULATION, Worker
from testbed.runs.job import FORMS, Form

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as Task

PATIENCE_S = 50.0
"""How long a campaign waits, at its start and later, while no worker can make its runs. Later that
begins when one was last heard of."""

_LOOK_S = 2.0

_STOP_S = 60.0
"""How long workers may take to end what they are making."""

_NO_SCHEDULER = "the scheduler of the cluster is gone"


class WorkersLostError(RunFailedError):
    """The workers that made a call were lost, one after another."""

    def __init__(self, name: str, losses: int) -> None:
        """Take the name of the call, and how many workers were lost while they made it."""
        super().__init__(f"{name}: {lost_times(losses)}")
        self.losses = losses


@dataclass(slots=True, eq=False)
class _Call:
    """A call of a function on a worker.

    Attributes:
        name: what it makes.
        form: what a worker must be able to make.
        function: what is called.
        arguments: with these.
        avoided: the workers that do not make it, as long as there are others.
        result: what becomes of it.
        task: the task by which it was sent; None until then.
        workers: which may take the task.
        losses: how often it was taken back, since all of these were gone.
    """

    name: str
    form: Form
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    avoided: frozenset[str]
    result: Future[Any] = field(default_factory=Future)
    task: "Task | None" = None
    workers: frozenset[str] = frozenset()
    losses: int = 0


class WorkerCalls:
    """Calls functions on the workers that have this version of the code, and can make them.

    No more calls are sent than workers make at a time: one that is lost loses what it makes and
    nothing else. Dask gives that to another worker, three times at most; where all workers that
    might take it are gone, it is sent again. (Runs have one count of both: their attempts.)
    """

    def __init__(
        self,
        client: "Client",
        roster: Roster,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Use the cluster of a client.

        Args:
            client: connected to a scheduler.
            roster: knows its workers.
            patience_s: how long the first workers may take to say what they can do.
        """
        self._client = client
        self._roster = roster
        self._waiting = deque[_Call]()
        self._sent: dict[str, _Call] = {}
        self._delivering = set[threading.Thread]()
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        roster.look(self._fill)
        roster.wait(patience_s)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def client(self) -> "Client":
        """The client of the cluster."""
        return self._client

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that are known now."""
        return self._roster.workers

    def require(self, unfit: Callable[[Worker], str]) -> None:
        """Require more of workers that come later (`Roster.require`)."""
        self._roster.require(unfit)

    def slots(self, form: Form) -> int:
        """How many calls of a form are made at a time; 1 where no worker can make any."""
        return self._roster.offered(form) or 1

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        name: str,
        form: Form,
        avoided: frozenset[str] = frozenset(),
    ) -> Future[Any]:
        """Call a function on a worker, as soon as one has room.

        Args:
            function: one of the testbed's, which workers find by its name.
            arguments: what it is called with.
            name: what it makes, for errors.
            form: the form of run that the worker must be able to make.
            avoided: the addresses of workers that do not make it as long as there are others.

        Returns:
            Its result, or its error; or the error that those who made it were lost
            (`WorkersLostError`), or that no worker can make it, or the scheduler is gone
            (`ClusterLostError`).
        """
        call = _Call(name, form, function, arguments, avoided)
        with self._lock:
            self._waiting.append(call)
        self._fill()
        return call.result

    def end(self) -> list["Task"]:
        """Send nothing more; returns the tasks that workers are making."""
        self._stopped.set()
        with self._lock:
            self._waiting.clear()
            tasks = [call.task for call in self._sent.values() if call.task is not None]
            self._sent.clear()
        under_way = []
        if tasks and self._client.status == "running":
            processing = {key for keys in self._client.processing().values() for key in keys}
            under_way = [task for task in tasks if task.key in processing]
            self._client.cancel([task for task in tasks if task.key not in processing])
        return under_way

    def stop(self, campaign: str) -> None:
        """End the calls that are under way, and wait until the workers have ended them.

        Args:
            campaign: the name of the event at which what is called looks (`stopping`).
        """
        from distributed import Event, wait

        self._stopped.set()
        with self._lock:
            has_sent = bool(self._sent)
        if has_sent and self._client.status == "running":
            # Before `end`: a call that was sent just now, and is not under way yet, does nothing.
            Event(campaign, client=self._client).set()
        if under_way := self.end():
            with suppress(TimeoutError):  # their workers do not answer
                wait(under_way, timeout=_STOP_S)

    def join(self) -> None:
        """Wait until nothing is watched, all is handed on, and the workers are recorded."""
        self._watcher.join()
        self._roster.join()
        with self._lock:
            delivering = tuple(self._delivering)
        end = time.monotonic() + _STOP_S
        for thread in delivering:
            thread.join(max(end - time.monotonic(), 0))

    def _fill(self) -> None:
        """Send calls that wait, as many as the workers have room for."""
        with self._lock:
            if self._client.status != "running" or self._stopped.is_set():
                return
            for form in FORMS:
                sent = sum(call.form == form for call in self._sent.values())
                room = self._roster.offered(form) - sent
                due = [call for call in self._waiting if call.form == form][: max(room, 0)]
                for call in due:
                    self._waiting.remove(call)
                    self._send(call)

    def _send(self, call: _Call) -> None:
        able = frozenset(worker.address for worker in self._roster.able(call.form))
        call.workers = able - call.avoided or able
        key = f"{call.name}-{uuid4().hex}"
        call.task = self._client.submit(
            call.function,
            *call.arguments,
            key=key,
            resources={EMULATION: 1} if call.form == "emulated" else None,
            workers=[*call.workers],
            allow_other_workers=False,
            pure=False,
        )
        self._sent[key] = call
        call.task.add_done_callback(self._note_done)

    def _note_done(self, task: "Task") -> None:
        """Hand on what became of a call, in a thread of its own.

        Dask has one thread for all of them, and what is done with a result may take long.
        """
        threading.Thread(target=self._deliver, args=(task,), daemon=True).start()

    def _deliver(self, task: "Task") -> None:
        """Wait for the result of a call. If its worker is lost, Dask has another one make it."""
        value, error = _outcome(task)
        with self._lock:
            call = self._sent.pop(task.key, None)
            if call is None:
                return  # given up, or sent again
            self._delivering.add(threading.current_thread())
        try:
            _settle(call, value, error)
            self._fill()
        finally:
            with self._lock:
                self._delivering.discard(threading.current_thread())

    def _watch(self) -> None:
        """Watch the calls until the end; if that fails, so do all calls: none waits for ever."""
        try:
            self._keep_watching()
        except Exception as error:  # noqa: BLE001 - whoever waits for a call raises it
            what = f"the cluster cannot be watched any more: {type(error).__name__}: {error}"
            self._stopped.set()
            with self._lock:
                calls = [*self._waiting, *self._sent.values()]
                self._waiting.clear()
                self._sent.clear()
            for call in calls:
                call.result.set_exception(ClusterLostError(what))

    def _keep_watching(self) -> None:
        """Look for workers that came or went; give up calls that none can make any more."""
        while not self._stopped.wait(_LOOK_S):
            if self._client.status != "running":
                self._lose_scheduler()
                continue  # Dask ends the tasks
            self._roster.look(self._fill)
            self._take_back()
            self._fill()
            for form in FORMS:
                is_stuck = not self._roster.able(form)
                if is_stuck and self._roster.silence_s(form) > PATIENCE_S:
                    self._give_up(form)

    def _take_back(self) -> None:
        """Take back the calls whose workers are all gone: others make them, or none does."""
        with self._lock:
            lost = {
                key: call
                for key, call in self._sent.items()
                if call.workers.isdisjoint(self._roster.addresses)
            }
            for key, call in lost.items():
                del self._sent[key]
                call.losses += 1
                if call.losses < MOST_LOSSES:
                    self._waiting.appendleft(call)
        self._client.cancel([call.task for call in lost.values()])
        for call in lost.values():
            if call.losses >= MOST_LOSSES:
                call.result.set_exception(WorkersLostError(call.name, call.losses))

    def _give_up(self, form: Form) -> None:
        """Fail the calls of a form, as no worker can make them."""
        with self._lock:
            sent = {key: call for key, call in self._sent.items() if call.form == form}
            waiting = [call for call in self._waiting if call.form == form]
            for key in sent:
                del self._sent[key]
            for call in waiting:
                self._waiting.remove(call)
        self._client.cancel([call.task for call in sent.values()])
        reason = self._roster.no_worker(form)
        for call in (*sent.values(), *waiting):
            what = f"{call.name}: {reason} (waited {PATIENCE_S:.0f} s for one)"
            call.result.set_exception(ClusterLostError(what))

    def _lose_scheduler(self) -> None:
        """Fail the calls that wait, as nothing takes them any more."""
        with self._lock:
            waiting = [*self._waiting]
            self._waiting.clear()
        for call in waiting:
            call.result.set_exception(ClusterLostError(_NO_SCHEDULER))


def _outcome(task: "Task") -> tuple[Any, BaseException | None]:
    """The result of a task, or why there is none."""
    try:
        return task.result(), None
    except BaseException as error:  # noqa: BLE001 - whoever waits for the call raises it
        if task.status == "error":
            return None, error
        return None, ClusterLostError(_NO_SCHEDULER)  # the connection, and no error of the call


def _settle(call: _Call, value: Any, error: BaseException | None) -> None:
    """Give a call its result, or its error."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        error = WorkersLostError(call.name, call.losses + error.allowed_failures + 1)
    if error is None:
        call.result.set_result(value)
    else:
        call.result.set_exception(error)
