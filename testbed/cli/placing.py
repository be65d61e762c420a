"""`--on`: where the runs of a command are made, on this machine or on the workers of a cluster."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor as Pool

    from testbed.campaign.job import Executor, Form

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


@contextmanager
def executor_at(on: str | None, directory: Path, forms: "tuple[Form, ...]") -> "Iterator[Executor]":
    """Make runs at a place during a block.

    Args:
        on: the value of `--on`; None: on this machine.
        directory: the directory of the runs; all machines have it under one path.
        forms: the forms of the runs that will be made.

    Raises:
        InputError: there is no such place.
        MachineError: it cannot make the runs.
    """
    if on is None:
        from testbed.campaign.local import LocalExecutor

        yield LocalExecutor(directory)
        return
    from testbed.campaign.cluster.place import place_of
    from testbed.campaign.cluster.start import cluster_executor

    with cluster_executor(place_of(on), directory, forms) as executor:
        yield executor


@contextmanager
def pool_at(on: str | None) -> "Iterator[Pool | None]":
    """Workers for calls of functions of the testbed during a block; None: this machine's threads.

    Args:
        on: the value of `--on`.

    Raises:
        InputError: there is no such place.
        MachineError: it has no worker with this version of the code.
    """
    if on is None:
        yield None
        return
    from testbed.campaign.cluster.place import place_of
    from testbed.campaign.cluster.start import worker_pool

    with worker_pool(place_of(on)) as pool:
        yield pool
