"""Starts the workers of a campaign, or connects to those that run already."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import interpreter
from testbed.limits import simulations_at_once
from testbed.model.errors import MachineError
from testbed.runs.cluster import worker_session
from testbed.runs.cluster.calls import PATIENCE_S, WorkerCalls
from testbed.runs.cluster.certificates import certificates, require_certificate
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.cluster.files import WORKERS, StoreFiles, require_store
from testbed.runs.cluster.place import Place, require_protected
from testbed.runs.cluster.pool import WorkerPool
from testbed.runs.cluster.roster import Roster
from testbed.runs.cluster.slurm import logs_of, slurm_cluster, slurm_options, why_ended
from testbed.runs.cluster.ssh import ssh_cluster
from testbed.runs.cluster.workers import EMULATION, Worker

if TYPE_CHECKING:
    from testbed.runs.job import Form

_CONNECT_S = 15.0

_LEAST_S = 5.0
"""How long a step of the start may take, however long those before it took."""

_ASK_S = 5.0
"""How often it is asked whether a worker may still come."""

_RESTART = "60s"
"""How long a worker of a local cluster may take to start again, on a machine that is busy."""

_EMULATES = {EMULATION: 1}

EXTRA = "pip install 'mrc-testbed[cluster]'"


@dataclass(frozen=True, slots=True)
class _Scheduler:
    """A scheduler to connect to.

    Attributes:
        address: what a client connects to.
        wait_s: how long its first worker may take to come; None: it is part of the start.
        remedy: what to do if none comes.
        ended: why none comes any more; empty as long as one may.
    """

    address: Any
    wait_s: float | None = None
    remedy: str = "docs/campaigns.md says how workers are started"
    ended: Callable[[], str] = str


@contextmanager
def cluster_executor(
    place: Place,
    directory: Path,
    wanted: "Mapping[Form, str]",
    *,
    store: str | None = None,
    workers: int = 1,
) -> Iterator[ClusterExecutor]:
    """Make runs at a place during a block; what was started for it ends with the block.

    Args:
        place: where.
        directory: the campaign's; all machines have it under one path if there is no other store.
        wanted: the forms of the runs that will be made, each with the name of its first one.
        store: where workers leave runs: another directory, or an fsspec address.
        workers: how many workers a local cluster has.

    Raises:
        InputError: a file of the place is wrong, or the store is no address.
        MachineError: the extra is missing, the store cannot be reached, no scheduler answers, or no
            worker can make the runs.
    """
    _require_extra()
    if store is not None:
        require_store(store)
    files = StoreFiles(store or str(directory))

    def record(worker: Worker) -> None:
        if "id" in worker.description:
            content = json.dumps(worker.as_record(), indent=1) + "\n"
            files.write(f"{WORKERS}/{worker.description['id']}.json", content)

    with _calls(place, directory, wanted, workers, record) as calls:
        executor = ClusterExecutor(calls, directory, store)
        try:
            yield executor
        finally:
            executor.stop()


@contextmanager
def worker_pool(place: Place, name: str, directory: Path) -> Iterator[WorkerPool]:
    """Use the workers of a place for calls of the testbed's functions during a block.

    Args:
        place: where.
        name: what they are used for, for errors.
        directory: where certificates and the logs of Slurm's jobs are written; all machines have it
            under one path.

    Raises:
        InputError: a file of the place is wrong.
        MachineError: the extra is missing, no scheduler answers, or no worker has this version.
    """
    with _calls(place, directory, {"simulated": name}) as calls, WorkerPool(calls) as pool:
        yield pool


@contextmanager
def _calls(
    place: Place,
    directory: Path,
    wanted: "Mapping[Form, str]",
    workers: int = 1,
    on_worker: Callable[[Worker], None] | None = None,
) -> Iterator[WorkerCalls]:
    """Call functions on the workers of a place during a block.

    To start takes no longer than `PATIENCE_S`; what Slurm's queue takes comes on top.
    """
    _require_extra()
    import distributed

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are reported by us
    until = time.monotonic() + PATIENCE_S

    def left_s() -> float:
        return max(until - time.monotonic(), _LEAST_S)

    with ExitStack() as stack:
        scheduler = _start(place, stack, directory, workers, left_s)
        try:
            client = stack.enter_context(distributed.Client(scheduler.address, timeout=_CONNECT_S))
        except (OSError, TimeoutError, ValueError) as error:
            remedy = "start one: dask scheduler --host 127.0.0.1 (docs/campaigns.md)"
            raise MachineError(f"no scheduler answers at {place.target}: {error}", remedy) from None
        reached = client.scheduler_info(n_workers=0)["address"]
        require_protected(reached, f"{place}, whose scheduler is reached at {reached} as well")
        wait_s = scheduler.wait_s or left_s()
        if reason := _no_worker(client, scheduler, wait_s):
            (name, *_) = wanted.values()
            raise MachineError(f"{name}: {place}: {reason}", scheduler.remedy)
        if scheduler.wait_s is not None:
            until = time.monotonic() + PATIENCE_S
        roster = Roster(client, wanted, on_worker)
        calls = WorkerCalls(client, roster, left_s())
        stack.callback(calls.end)
        for form, name in wanted.items():
            if reason := roster.no_worker(form):
                what = f"{name}: {place}: {reason}"
                raise MachineError(what, "docs/campaigns.md says what each needs")
        yield calls


def _no_worker(client: Any, scheduler: _Scheduler, wait_s: float) -> str:
    """Wait for the first worker, so many seconds at most; why none came, empty if one did."""
    end = time.monotonic() + wait_s
    while (left_s := end - time.monotonic()) > 0:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=min(left_s, _ASK_S))
            return ""
        if reason := scheduler.ended():
            return reason
    return f"no worker came in {wait_s:.0f} s"


def _require_extra() -> None:
    """Require Dask.distributed, fsspec, which comes with it, and what makes certificates."""
    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:
            raise MachineError(f"--on needs the package {package}, which is not installed", EXTRA)


def _start(
    place: Place, stack: ExitStack, directory: Path, workers: int, left_s: Callable[[], float]
) -> _Scheduler:
    """Start what a place needs, until the end of the stack; `left_s`: how long it may take."""
    match place.kind:
        case "dask":
            if place.target.startswith("tls:"):
                require_certificate(str(place))
            return _Scheduler(place.target)
        case "local":
            return _Scheduler(stack.enter_context(_local_cluster(workers, stack)))
        case "ssh":
            stack.enter_context(certificates(directory))
            cluster = ssh_cluster(Path(place.target), _EMULATES, left_s)
            return _Scheduler(stack.enter_context(cluster))
        case "slurm":
            options = slurm_options(Path(place.target) if place.target else None)
            cluster = stack.enter_context(slurm_cluster(options, directory, _EMULATES))
            remedy = f"squeue says what jobs wait for; {logs_of(directory)} has what they print"
            return _Scheduler(
                cluster, options.wait_s, remedy, partial(why_ended, cluster, directory)
            )


def _local_cluster(workers: int, stack: ExitStack) -> Any:
    """A scheduler and workers here; a worker that dies is started again.

    They speak TLS with a certificate that is made for them: else other users of this machine could
    have workers execute what they like.
    """
    import dask
    from distributed import LocalCluster, Security

    stack.enter_context(interpreter.safe_children())
    stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART}))
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=max(1, simulations_at_once() // workers),
        processes=True,
        host="127.0.0.1",
        protocol="tls://",
        security=Security.temporary(),
        dashboard_address=None,
        resources=_EMULATES,
        preload=[worker_session.__name__],
        silence_logs=logging.CRITICAL,
    )
