"""Workers that Slurm starts: one job for each, by dask-jobqueue."""

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field

from testbed import interpreter
from testbed.model.errors import MachineError
from testbed.model.files.reading import read_document
from testbed.model.files.validation import validated
from testbed.model.part import Part
from testbed.model.units import NS_PER_S, Duration, Size, parse_duration, parse_size
from testbed.runs.cluster.files import KEYS, SLURM

_COMMANDS = ("sbatch", "scancel", "squeue")
_ANSWER_S = 10.0
"""How long Slurm may take to say which jobs there are."""
_SUBMIT_S = 40.0
"""How long Slurm may take to take the jobs."""
_LATE_S = 10.0
"""How long it is waited then for those that it may be taking just now, to cancel them as well."""
_GRACE_S = "60"
"""How long a worker goes on that has lost its scheduler, in seconds."""

INFO = "127.0.0.1:0"
"""Where Dask's schedulers and workers serve their health, without TLS: not to other machines."""


class SlurmOptions(Part):
    """What is asked of Slurm: the file of `--on slurm:FILE`."""

    workers: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=2, description="jobs of Slurm, each with one worker"
    )
    cores: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=1, description="CPUs of each job: so many simulations at a time"
    )
    memory: Size = Field(default=parse_size("2 GiB"), description="memory of each job")
    walltime: Duration = Field(
        default=parse_duration("3600 s"), description="longest time of each job"
    )
    queue: str | None = Field(default=None, description="partition; null: the default one")
    account: str | None = Field(default=None, description="who is charged; null: the default")
    directives: tuple[str, ...] = Field(
        default=(), description="further lines for sbatch, such as --exclusive"
    )
    prologue: tuple[str, ...] = Field(
        default=(), description="shell lines before the worker, such as module load python"
    )
    interface: str | None = Field(
        default=None, description="network interface by which all reach each other"
    )
    emulates: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="whether each job has a machine for itself and may emulate"
    )
    wait: Duration = Field(
        default=parse_duration("600 s"), description="longest wait for the first worker"
    )

    @property
    def wait_s(self) -> float:
        """`wait` in seconds."""
        return self.wait / NS_PER_S


def slurm_options(file: Path | None) -> SlurmOptions:
    """Read the file of `--on slurm:FILE`; without one all keys have their defaults.

    Raises:
        InputError: it cannot be read, or a key or value is wrong.
    """
    if file is None:
        return SlurmOptions()
    document = read_document(file, remedy="docs/campaigns.md lists the keys")
    return validated(SlurmOptions, document.data, document)


def logs_of(directory: Path) -> Path:
    """Where the jobs of a campaign write what they print."""
    return directory.resolve() / SLURM


def why_ended(cluster: Any, directory: Path) -> str:
    """Why no worker comes any more: all jobs have ended. Empty if some have not, or may not have.

    Args:
        cluster: that of `slurm_cluster`.
        directory: the campaign's.
    """
    jobs = {str(job.job_id) for job in cluster.workers.values() if job.job_id}
    if not jobs or len(jobs) < len(cluster.worker_spec):
        return ""  # not all are submitted
    command = ("squeue", "--noheader", "--format=%A", f"--user={os.getuid()}")
    try:
        queue = subprocess.run(  # noqa: S603 - Slurm's own
            command,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""  # Slurm may answer the next time
    if jobs & {*queue.stdout.split()}:
        return ""
    printed = [
        text.splitlines()[-1]
        for job in sorted(jobs)
        for file in sorted(logs_of(directory).glob(f"*-{job}.*"))
        if (text := file.read_text(errors="replace", encoding="utf-8").strip())
    ]
    last = f"; the last line of one: {printed[0]}" if printed else ""
    return f"all jobs of Slurm ({', '.join(sorted(jobs))}) ended before a worker came{last}"


@contextmanager
def slurm_cluster(
    options: SlurmOptions, directory: Path, resources: dict[str, int]
) -> Iterator[Any]:
    """Start a scheduler here and have Slurm start its workers; both end with the block.

    They speak TLS with a certificate that is made for this campaign. It lies in the campaign's
    directory, where only its owner can read it.

    Args:
        options: what is asked of Slurm.
        directory: the campaign's; all nodes have it under one path.
        resources: the Dask resources of a worker that may emulate.

    Raises:
        MachineError: Slurm's commands are missing, or refuse the jobs; or no scheduler can be
            started here.
    """
    from dask_jobqueue import SLURMCluster
    from distributed import Security

    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        remedy = "run this where jobs are submitted, with Slurm's commands on PATH"
        raise MachineError(f"slurm: no {' and no '.join(missing)} here", remedy)
    hours, rest = divmod(round(options.walltime / NS_PER_S), 3600)
    offered = ["--resources", " ".join(f"{name}={n}" for name, n in resources.items())]
    with ExitStack() as stack:
        keys = stack.enter_context(TemporaryDirectory(prefix=KEYS, dir=directory.resolve()))
        try:
            cluster = SLURMCluster(
                cores=options.cores,
                memory=f"{options.memory} B",
                processes=1,
                python=shlex.join(interpreter.python()),
                walltime=f"{hours:02}:{rest // 60:02}:{rest % 60:02}",
                queue=options.queue,
                account=options.account,
                job_name="testbed",
                job_extra_directives=[*options.directives],
                job_script_prologue=[*options.prologue],
                worker_extra_args=[
                    "--no-dashboard",
                    "--dashboard-address",
                    INFO,
                    *(offered if options.emulates else ()),
                ],
                interface=options.interface,
                log_directory=str(logs_of(directory)),
                death_timeout=_GRACE_S,
                security=Security.temporary(),
                shared_temp_directory=keys,
                scheduler_options={"dashboard": False, "dashboard_address": INFO},
            )
        except RuntimeError as error:  # it says itself that the cluster failed to start
            remedy = "check the interface in the file of its options"
            raise MachineError(f"slurm: {error}", remedy) from error
        stack.enter_context(cluster)
        _submit(cluster, options.workers)
        yield cluster


def _submit(cluster: Any, count: int) -> None:
    """Submit the jobs of a cluster.

    `cluster.scale` does so later, and tells nobody that a job was refused.
    """
    from distributed.core import Status

    under_way: list[asyncio.Task[None]] = []

    async def submit() -> None:
        for _ in range(count):
            cluster.worker_spec.update(cluster.new_worker_spec())
        under_way.append(cluster._correct_state())  # noqa: SLF001 - nothing public waits for it
        await asyncio.shield(under_way[0])

    async def take_back() -> None:
        if under_way:
            await asyncio.wait(under_way, timeout=_LATE_S)
            under_way[0].cancel()  # the cluster does not end before
        jobs = [*cluster._created]  # noqa: SLF001 - it knows its jobs only when all are taken
        await asyncio.gather(*(job.close() for job in jobs), return_exceptions=True)
        for job in jobs:
            job.status = Status.failed  # else the cluster's end fails as well

    remedy = "check the file of --on slurm:FILE (docs/campaigns.md), and that sbatch works here"
    try:
        try:
            cluster.sync(submit, callback_timeout=_SUBMIT_S)
        except BaseException:  # a signal as well
            cluster.sync(take_back)
            raise
    except TimeoutError as error:
        what = f"sbatch has not taken the jobs in {_SUBMIT_S:.0f} s"
        raise MachineError(f"slurm: {what}", remedy) from error
    except (RuntimeError, ValueError, OSError) as error:  # dask-jobqueue quotes what it printed
        (*_, said) = [line for line in str(error).splitlines() if line.strip()]
        raise MachineError(f"slurm: the jobs are refused: {said}", remedy) from error
