"""`--on`: where the runs of a command are made, on this machine or on the workers of a cluster."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import writing
from testbed.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from concurrent.futures import Executor as Pool

    from testbed.runs.job import Executor, Form
    from testbed.runs.plan import PlannedRun

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="PLACE",
        help="Where runs are made: local, dask:ADDRESS, ssh:HOSTFILE or slurm[:FILE] "
        "(docs/campaigns.md); "
        "default: on this machine, without Dask.",
    ),
]


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="With --on: where workers leave runs, a directory or an fsspec address such as "
        "sftp://HOST/PATH; they are copied from there. Default: the directory of the runs, which "
        "all machines have then.",
    ),
]


@contextmanager
def executor_at(
    on: str | None, directory: Path, wanted: "Mapping[Form, str]", store: str | None = None
) -> "Iterator[Executor]":
    """Make runs at a place during a block.

    Args:
        on: the value of `--on`; None: on this machine.
        directory: the directory of the runs; all machines have it under one path.
        wanted: the forms of the runs that will be made, each with the name of its first one.
        store: the value of `--store`.

    Raises:
        InputError: there is no such place or store.
        MachineError: it cannot make the runs.
    """
    if on is None:
        if store is not None:
            expected = "--on as well, as the workers of a cluster leave runs there"
            raise InputError.of("--store", store, expected)
        from testbed.runs.local import LocalExecutor

        yield LocalExecutor(directory)
        return
    from testbed.runs.cluster.place import place_of
    from testbed.runs.cluster.start import cluster_executor

    with cluster_executor(place_of(on), directory, wanted, store=store) as executor:
        yield executor


def fetch_finished(executor: "Executor", runs: "Iterable[PlannedRun]") -> bool:
    """Copy the runs that are finished in the store of a cluster; whether there may be any."""
    from testbed.runs.cluster.executor import ClusterExecutor

    if not isinstance(executor, ClusterExecutor):
        return False
    executor.fetch_finished(run.job for run in runs)
    return True


def keep_in_store(executor: "Executor", file: "Path") -> None:
    """Keep a file of a campaign's directory in the store of a cluster as well, if it has another.

    Raises:
        MachineError: the store cannot be used.
    """
    from testbed.runs.cluster.executor import ClusterExecutor

    if isinstance(executor, ClusterExecutor):
        executor.keep(file.name, file.read_text(encoding="utf-8"))


def kept_in_store(executor: "Executor", name: str) -> str | None:
    """What was kept of such a file; None if there is none."""
    from testbed.runs.cluster.executor import ClusterExecutor

    return executor.kept(name) if isinstance(executor, ClusterExecutor) else None


@contextmanager
def pool_at(on: str | None, name: str, directory: Path) -> "Iterator[Pool | None]":
    """Workers for calls of functions of the testbed during a block; None: this machine's threads.

    Args:
        on: the value of `--on`.
        name: what is done there, for errors.
        directory: all machines have it under one path; certificates and logs are written there.

    Raises:
        InputError: there is no such place.
        MachineError: it has no worker with this version of the code.
    """
    if on is None:
        yield None
        return
    from testbed.runs.cluster.place import place_of
    from testbed.runs.cluster.start import worker_pool

    place = place_of(on)
    with writing("--on", directory, "a directory to write to, for its certificates and logs"):
        directory.mkdir(parents=True, exist_ok=True)
    with worker_pool(place, name, directory) as pool:
        yield pool
