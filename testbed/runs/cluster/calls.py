"""Calls of functions on the workers of a Dask cluster that can make them, watched to their end."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from testbed.model.errors import ClusterLostError, RunFailedError
from testbed.results.code_version import package_version
from testbed.runs.job import FORMS, Form

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as Task

EMULATION = "emulation"
"""The Dask resource that an emulation takes: a worker stands for a machine and has one of it. A
simulation takes one of the worker's threads, which are as many as the machine's cores."""

PATIENCE_S = 50.0
"""How long a campaign waits, at its start and later, while no worker can make its runs. Later that
begins when one was last heard of."""

MOST_LOSSES = 4
"""After so many workers that were lost while they made a call, it is given up; also by Dask."""

_STEP_S = 0.1
_LOOK_S = 1.0
_STOP_S, _LEAVE_S = 60.0, 5.0
"""How long workers may take to end what they are making; and where that is nothing."""

_SILENT = "it has not answered yet"
_NO_SCHEDULER = "the scheduler of the cluster is gone"
_PLUGIN = "testbed-"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of the cluster.

    Attributes:
        host: its machine's name; its address if it does not say.
        offers: how many jobs of each form it makes at a time.
        unfit: why it makes no runs of a form; empty for those that it makes.
        calibration: what its machine carries (`Capacity`); None if that is not known.
        unmeasured: why it is not, if it could not be measured.
    """

    host: str
    offers: Mapping[Form, int]
    unfit: Mapping[Form, str] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    unmeasured: str = ""

    @property
    def answered(self) -> bool:
        """Whether it has said what it can do, or that it cannot say it."""
        return _SILENT not in self.unfit.values()

    def reason(self, form: Form) -> str:
        """Why it makes no runs of a form; empty if it does."""
        if not self.offers[form]:
            return f"it does not offer the resource {EMULATION!r}"
        return self.unfit.get(form, "")

    @classmethod
    def of(cls, address: str, info: Mapping[str, Any], said: Mapping[str, Any] | None) -> "Worker":
        """A worker as its scheduler knows it, and with what it said of itself."""
        emulations = int(info["resources"].get(EMULATION, 0))
        offers: dict[Form, int] = {"emulated": emulations, "simulated": info["nthreads"]}
        said = said or {"host": address, "error": _SILENT}
        unfit = said.get("unfit") or dict.fromkeys(FORMS, said.get("error", ""))
        return cls(said["host"], offers, unfit, said.get("calibration"), said.get("unmeasured", ""))


@dataclass(slots=True, eq=False)
class _Call:
    """A call (`WorkerCalls.call`); which workers may take it; how often all of these were lost."""

    name: str
    form: Form
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    avoided: Collection[str]
    result: Future[Any] = field(default_factory=Future)
    workers: frozenset[str] = frozenset()
    losses: int = 0


class WorkerCalls:
    """Calls functions on the workers that have this version of the code, and can make them.

    A plugin of Dask is on each worker, now and later: it says what the worker can do, and ends what
    the worker makes when it is taken away. No more calls are sent than workers make at a time: one
    that is lost loses what it makes and nothing else. Dask gives that to another worker, three
    times at most; where all that might take it are gone, it is sent again. One thread does this.
    """

    def __init__(self, client: "Client", forms: Collection[Form]) -> None:
        from distributed import as_completed

        self.name = _PLUGIN + client.id
        self.workers: Mapping[str, Worker] = {}
        self._client = client
        self._said: dict[str, Worker] = {}
        self._unfit: Callable[[Worker], str] = lambda _: ""
        self._waiting: list[_Call] = []
        self._sent: dict[Task, _Call] = {}
        self._ended = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self._signs: dict[Form, Any] = {}
        self._heard: dict[Form, float] = dict.fromkeys(FORMS, time.monotonic())
        self._looked = 0.0
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        _in_background(client.run_on_scheduler, _forgetting())
        plugin = _plugin(self.name, package_version(), emulates="emulated" in forms)
        _in_background(client.register_plugin, plugin, self.name)

    def start(self, patience_s: float) -> None:
        """Wait until workers have said what they can do, but no longer than that, and begin."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            self.look()
            if self.workers and all(worker.answered for worker in self.workers.values()):
                break
            time.sleep(_STEP_S)
        self._watcher.start()

    def require(self, unfit: Callable[[Worker], str]) -> None:
        """Have workers that come from now on emulate only if this returns no reason against it."""
        self._unfit = unfit

    def able(self, form: Form) -> dict[str, Worker]:
        """The workers that can make runs of a form, by their addresses."""
        return {at: worker for at, worker in self.workers.items() if not worker.reason(form)}

    def slots(self, form: Form) -> int:
        """How many calls of a form are made at a time; 1 where no worker can make any."""
        return self._offered(form) or 1

    def _offered(self, form: Form) -> int:
        return sum(worker.offers[form] for worker in self.able(form).values())

    def no_worker(self, form: Form) -> str:
        """Why no worker makes runs of a form; empty if one does."""
        if self.able(form):
            return ""
        if not self.workers:
            return "the cluster has no worker"
        workers = self.workers.values()
        reasons = dict.fromkeys(f"{worker.host}: {worker.reason(form)}" for worker in workers)
        return f"no worker can make {form} runs: {'; '.join(reasons)}"

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        name: str,
        form: Form,
        avoided: Collection[str] = (),
    ) -> Future[Any]:
        """Call a function of the testbed on a worker, as soon as one has room.

        Args:
            function: it.
            arguments: what it is called with.
            name: what it makes, for errors.
            form: the form of run that the worker must be able to make.
            avoided: the hosts that do not make it as long as there are others.

        Returns:
            Its result, or its error; a `RunFailedError`: those who made it were lost; or a
            `ClusterLostError`: no worker can make it, or the scheduler is gone.
        """
        call = _Call(name, form, function, arguments, avoided)
        if self._stopped.is_set():
            call.result.set_exception(ClusterLostError(f"{name}: the cluster is not used any more"))
        else:
            self._waiting.append(call)
        return call.result

    def stop(self) -> None:
        """End the calls that are under way, and wait until the workers have ended them."""
        self._stopped.set()
        if self._watcher.is_alive():
            self._watcher.join(_STOP_S)
        if self._client.status == "running":
            ending = _in_background(self._client.unregister_worker_plugin, self.name)
            ending.join(_STOP_S if self._sent else _LEAVE_S)
            self._client.cancel([*self._sent])
        for call in (*self._waiting, *self._sent.values()):
            call.result.cancel()
        self._sent.clear()

    def look(self) -> None:
        """See which workers there are, and what they have said of themselves."""
        try:
            # The client removes all workers at times from what `scheduler_info` returns.
            identity = self._client.sync(self._client.scheduler.identity, n_workers=-1)
            events = self._client.get_events(self.name)
        except OSError:  # the scheduler is gone, or will answer the next time
            return
        answers = {said["directory"]: said for _, said in events}
        workers = {}
        for address, info in identity["workers"].items():
            directory = info["local_directory"]  # no later worker has it, at whatever address
            if (worker := self._said.get(directory)) is None:
                worker = Worker.of(address, info, answers.get(directory))
                if worker.answered:
                    if not worker.reason("emulated") and (reason := self._unfit(worker)):
                        worker = replace(worker, unfit={**worker.unfit, "emulated": reason})
                    self._said[directory] = worker
            workers[address] = worker
        self.workers = workers
        for form in FORMS:
            signs = {at: identity["workers"][at]["last_seen"] for at in self.able(form)}
            if signs and signs != self._signs.get(form):
                self._signs[form], self._heard[form] = signs, time.monotonic()

    def _watch(self) -> None:
        """Watch the calls until the end; if that fails, so do all calls: none waits for ever."""
        try:
            while not self._stopped.wait(_STEP_S):
                self._step()
        except Exception as error:  # noqa: BLE001 - whoever waits for a call raises it
            self._stopped.set()
            what = f"the cluster cannot be watched any more: {type(error).__name__}: {error}"
            self._give_up(what)

    def _step(self) -> None:
        """Hand on what has ended; look for workers that came or went; send calls that wait."""
        if self._client.status != "running":
            self._give_up(_NO_SCHEDULER)
            return
        for task, value in self._ended.next_batch(block=False):
            if (call := self._sent.pop(task, None)) is not None:  # else it was taken back
                _settle(call, task, value)
        if time.monotonic() - self._looked > _LOOK_S:
            self.look()
            self._looked = time.monotonic()
            self._take_back()
            for form in FORMS:
                if not self.able(form) and time.monotonic() - self._heard[form] > PATIENCE_S:
                    reason = f"{self.no_worker(form)} (waited {PATIENCE_S:.0f} s for one)"
                    self._give_up(reason, [form])
        for form in FORMS:
            room = self._offered(form) - sum(call.form == form for call in self._sent.values())
            due = [call for call in [*self._waiting] if call.form == form]
            for call in due[: max(room, 0)]:
                self._waiting.remove(call)
                self._send(call)

    def _send(self, call: _Call) -> None:
        able = self.able(call.form)
        others = {at for at, worker in able.items() if worker.host not in call.avoided}
        call.workers = frozenset(others or able)
        task = self._client.submit(
            call.function,
            *call.arguments,
            resources={EMULATION: 1} if call.form == "emulated" else None,
            workers=[*call.workers],
            pure=False,
        )
        self._sent[task] = call
        self._ended.add(task)

    def _take_back(self) -> None:
        """Take back the calls whose workers are all gone: others make them, or none does."""
        for task, call in [*self._sent.items()]:
            if call.workers.isdisjoint(self.workers):
                del self._sent[task]
                self._client.cancel([task])
                call.losses += 1
                if call.losses < MOST_LOSSES:
                    self._waiting.insert(0, call)
                else:
                    call.result.set_exception(_lost(call.name, call.losses))

    def _give_up(self, reason: str, forms: Collection[Form] = FORMS) -> None:
        """Fail the calls of these forms, as no worker makes them."""
        sent = {task: call for task, call in self._sent.items() if call.form in forms}
        waiting = [call for call in [*self._waiting] if call.form in forms]
        if self._client.status == "running":
            self._client.cancel([*sent])
        for task in sent:
            del self._sent[task]
        for call in waiting:
            self._waiting.remove(call)
        for call in (*sent.values(), *waiting):
            call.result.set_exception(ClusterLostError(f"{call.name}: {reason}"))


def _settle(call: _Call, task: "Task", value: Any) -> None:
    from distributed import KilledWorker

    if task.status == "error":
        _, error, _ = value
        if isinstance(error, KilledWorker):
            error = _lost(call.name, call.losses + error.allowed_failures + 1)
        call.result.set_exception(error)
    elif isinstance(value, BaseException):  # it was cancelled, not by us
        call.result.set_exception(ClusterLostError(_NO_SCHEDULER))
    else:
        call.result.set_result(value)


def _lost(name: str, losses: int) -> RunFailedError:
    return RunFailedError(f"{name}: the worker that made it was lost, {losses} times")


def _in_background(function: Callable[..., object], *arguments: object) -> threading.Thread:
    """Call a function that waits for all workers, of which one may hang, or go."""

    def call() -> None:
        with suppress(Exception):  # what a worker could not do it says itself
            function(*arguments)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def _plugin(topic: str, version: str, *, emulates: bool) -> Any:
    """What each worker has of a campaign: it checks its version, and says what it can do.

    Dask sends the class itself, as it is none of a module: a worker may have no testbed.
    """
    from distributed import WorkerPlugin

    class Plugin(WorkerPlugin):  # type: ignore[misc] # Dask has no types
        campaign: Any = None

        async def setup(self, worker: Any) -> None:
            said = {"directory": worker.local_directory, "host": worker.address}
            try:
                from testbed.results.code_version import package_version

                if (found := package_version()) != version:
                    other = f"it has another version of the testbed ({found}, not {version})"
                    worker.log_event(topic, said | {"error": other})
                    return
                from testbed.runs.cluster.worker import Campaign

                self.campaign = Campaign(topic, worker, emulates=emulates)
            except Exception as error:  # noqa: BLE001 - the command reports it
                why = f"it cannot use the testbed: {type(error).__name__}: {error}"
                worker.log_event(topic, said | {"error": why})

        async def teardown(self, worker: Any) -> None:  # noqa: ARG002 - Dask's
            if self.campaign is not None:
                await self.campaign.end()

    return Plugin()


def _forgetting() -> Callable[..., None]:
    """What removes the plugins of commands that were killed from a scheduler; sent as `_plugin`."""
    prefix = _PLUGIN

    def forget(dask_scheduler: Any) -> None:
        for name in [*dask_scheduler.worker_plugins]:
            if name.startswith(prefix) and name.removeprefix(prefix) not in dask_scheduler.clients:
                del dask_scheduler.worker_plugins[name]

    return forget
