"""Connects to a cluster for a campaign, or starts one: on this machine, by ssh, or by Slurm."""

import asyncio
import logging
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed import interpreter
from testbed.limits import simulations_at_once
from testbed.model.errors import MachineError
from testbed.runs.cluster import worker
from testbed.runs.cluster.calls import EMULATION, PATIENCE_S, WorkerCalls
from testbed.runs.cluster.place import Place, hosts_in, require_protected
from testbed.runs.cluster.worker import OF_START
from testbed.runs.job import Form

SLURM = "slurm"
"""The directory of what Slurm's jobs print, in that of the campaign."""

_EMULATES = {EMULATION: 1}

_INFO = "127.0.0.1:0"
"""Where Dask's schedulers and workers serve their health, without TLS: not to other machines."""

_DASK_REMEDY = "start one: dask scheduler --host 127.0.0.1 (docs/campaigns.md)"
_TLS_REMEDY = (
    "start one, with a certificate that Dask's configuration names here as well: "
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE and others (docs/campaigns.md)"
)

_CONNECT_S = 15.0

_ANSWER_S = 40.0
"""How long a host, or Slurm, may take to answer."""


def is_of_start(name: str) -> bool:
    """Whether the start of a cluster makes such a file, before any run."""
    return name == SLURM or name.startswith(OF_START)


@contextmanager
def calls_at(place: Place, directory: Path, wanted: Mapping[Form, str]) -> Iterator[WorkerCalls]:
    """Call functions on the workers of a place during a block; it ends what was started for it.

    Args:
        place: where.
        directory: where certificates and the logs of Slurm's jobs are written.
        wanted: the forms of what will be made, each with the name of its first one.

    Raises:
        InputError: the file of the place is wrong.
        MachineError: the extra is missing, no scheduler answers, or no worker can make it.
    """
    for package in ("distributed", "cryptography"):  # the latter makes certificates
        if find_spec(package) is None:
            what = f"--on needs the package {package}, which is not installed"
            raise MachineError(what, "pip install 'mrc-testbed[cluster]'")
    import distributed

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are reported by us
    with ExitStack() as stack:
        scheduler = _started(place, directory, stack)
        try:
            client = stack.enter_context(distributed.Client(scheduler, timeout=_CONNECT_S))
        except (OSError, TypeError, ValueError) as error:  # TypeError: there is no certificate
            remedy = _TLS_REMEDY if place.target.startswith("tls:") else _DASK_REMEDY
            raise MachineError(f"no scheduler answers at {place.target}: {error}", remedy) from None
        reached = client.scheduler_info(n_workers=0)["address"]
        require_protected(reached, f"{place}, whose scheduler is reached at {reached} as well")
        calls = WorkerCalls(client, wanted)
        stack.callback(calls.stop)
        calls.start(PATIENCE_S)
        for form, name in wanted.items():
            if reason := calls.no_worker(form):
                remedy = "docs/campaigns.md says what workers need"
                raise MachineError(f"{name}: {place}: {reason}", remedy)
        yield calls


def _started(place: Place, directory: Path, stack: ExitStack) -> Any:
    """What a client connects to; what is started for it ends with the stack."""
    match place.kind:
        case "dask":
            return place.target
        case "local":
            return _local_cluster(stack)
        case "ssh":
            stack.enter_context(_certificates(directory))
            return stack.enter_context(_ssh_cluster(Path(place.target)))
        case "slurm":
            stack.enter_context(_certificates(directory))
            return _slurm_cluster(place.target, directory, stack)


# --- on this machine ------------------------------------------------------------------------------

_RESTART = "60s"
"""How long a worker of a local cluster may take to start again, on a machine that is busy."""


def _local_cluster(stack: ExitStack) -> Any:
    """Start a scheduler and a worker here; if it dies, it is started again.

    They speak TLS: else other users of this machine could have the worker execute what they like.
    """
    import dask
    from distributed import LocalCluster, Security

    stack.enter_context(interpreter.safe_children())
    stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART}))
    cluster = LocalCluster(
        n_workers=1,
        threads_per_worker=simulations_at_once(),
        processes=True,
        host="127.0.0.1",
        protocol="tls://",
        security=Security.temporary(),
        scheduler_kwargs={"dashboard": False, "dashboard_address": _INFO},
        resources=_EMULATES,
        preload=[worker.__name__],
        silence_logs=logging.CRITICAL,
    )
    return stack.enter_context(cluster)


# --- by ssh ---------------------------------------------------------------------------------------

_PATIENT = {"connect_timeout": _CONNECT_S, "login_timeout": _CONNECT_S}
"""Options of asyncssh; ~/.ssh/config has others."""

_IDLE = "10 minutes"
"""A scheduler that ssh started ends after this time without a run, and its workers with it."""

_SSH_REMEDY = "ssh to each host of the file has to work without a question, and find this Python"


def _ssh_cluster(file: Path) -> Any:
    """Start a scheduler on the first host and a worker on each, which speak TLS with each other."""
    import asyncssh  # noqa: F401 - an extra; it has to be loaded by this thread
    from distributed import SSHCluster

    hosts = hosts_in(file)
    if failed := asyncio.run(_failures(hosts)):
        raise MachineError(f"ssh:{file}: {failed}", _SSH_REMEDY)
    info = {"protocol": "tls", "dashboard_address": _INFO}
    try:
        return SSHCluster(
            [hosts[0], *hosts],
            connect_options=_PATIENT,
            remote_python=shlex.join(interpreter.python()),  # what it runs there has its options
            scheduler_options=info | {"host": hosts[0], "idle_timeout": _IDLE, "dashboard": False},
            worker_options=info | {"resources": _EMULATES},
        )
    except Exception as error:  # asyncssh and Dask raise many kinds
        raise MachineError(f"ssh:{file}: {type(error).__name__}: {error}", _SSH_REMEDY) from error


async def _failures(hosts: Sequence[str]) -> str:
    """Why hosts cannot be used; empty if Python answers on each."""
    return "; ".join(filter(None, await asyncio.gather(*map(_failure, hosts))))


async def _failure(host: str) -> str:
    import asyncssh

    command = shlex.join(interpreter.python("-c", "import distributed"))
    has_logged_in = False
    try:
        async with asyncio.timeout(_ANSWER_S), asyncssh.connect(host, **_PATIENT) as connection:
            has_logged_in = True
            done = await connection.run(command)
    except TimeoutError:
        taken = "it takes the login, but did not answer" if has_logged_in else "no login"
        return f"{host}: {taken} in {_ANSWER_S:.0f} s"
    except (OSError, ValueError, asyncssh.Error) as error:  # of its configuration or keys, too
        return f"{host}: {type(error).__name__}: {error}"
    said = str(done.stderr or "").strip().splitlines() or [f"exit status {done.exit_status}"]
    return "" if done.exit_status == 0 else f"{host}: {said[-1]}"


@contextmanager
def _certificates(directory: Path) -> Iterator[None]:
    """Have all speak TLS during a block, by a certificate that is made for it, and nothing else.

    Workers are told the names of its files. They are in the campaign's directory, which all
    machines have under one path then, and where only its owner can read them.
    """
    import dask
    from distributed import Security

    security = Security.temporary()
    with TemporaryDirectory(prefix=OF_START, dir=directory.resolve()) as place:
        files = {"ca.pem": security.tls_ca_file, "key.pem": security.tls_client_key}
        files["cert.pem"] = security.tls_client_cert
        for name, content in files.items():
            file = Path(place) / name
            file.touch(mode=0o600)
            file.write_text(content, encoding="utf-8")
        pair = {"key": f"{place}/key.pem", "cert": f"{place}/cert.pem"}
        tls = {"ca-file": f"{place}/ca.pem", "client": pair, "scheduler": pair, "worker": pair}
        comm = {"default-scheme": "tls", "require-encryption": True}
        comm |= {f"tls.{key}": value for key, value in tls.items()}
        with dask.config.set({f"distributed.comm.{key}": value for key, value in comm.items()}):
            yield


# --- by Slurm -------------------------------------------------------------------------------------

_QUEUE = "600 s"
"""How long Slurm may take to start a worker, if Dask's configuration does not say it."""

_ASK_S = 2.0

_USUAL = {"cores": 1, "memory": "2 GiB"}
"""What a job is given that Dask's configuration does not say."""

_SLURM_REMEDY = "check jobqueue.slurm in Dask's configuration (docs/campaigns.md)"


def _setting(key: str, default: Any) -> Any:
    """A value of Dask's configuration; the default where it is null."""
    import dask

    value = dask.config.get(key, None)
    return default if value is None else value


def _slurm_cluster(jobs: str, directory: Path, stack: ExitStack) -> Any:
    """Start a scheduler here and have Slurm start its workers, with TLS; wait for the first."""
    import dask_jobqueue  # it brings its configuration
    from dask.utils import parse_timedelta
    from distributed import Security

    commands = "sbatch", "scancel", "squeue"
    if missing := [name for name in commands if shutil.which(name) is None]:
        remedy = "run this where jobs are submitted, with Slurm's commands on PATH"
        raise MachineError(f"slurm: no {' and no '.join(missing)} here", remedy)
    logs, further = directory.resolve() / SLURM, _setting("jobqueue.slurm.worker-extra-args", [])
    try:
        cluster = dask_jobqueue.SLURMCluster(
            **{key: _setting(f"jobqueue.slurm.{key}", usual) for key, usual in _USUAL.items()},
            processes=1,
            python=shlex.join(interpreter.python()),
            job_name="testbed",
            worker_extra_args=["--no-dashboard", "--dashboard-address", _INFO, *further],
            log_directory=str(logs),
            security=Security(),
            scheduler_options={"dashboard": False, "dashboard_address": _INFO},
        )
    except (RuntimeError, ValueError) as error:  # it says itself that the cluster failed to start
        raise MachineError(f"slurm: {error}", _SLURM_REMEDY) from error
    stack.enter_context(cluster)
    _slurm("sbatch", "--test-only", script=cluster.job_script())  # `scale` tells nobody of refusals
    cluster.scale(jobs=int(jobs or 2))
    wait_s = parse_timedelta(_setting("distributed.scheduler.no-workers-timeout", _QUEUE))
    until, reason = time.monotonic() + wait_s, ""
    while not (cluster.scheduler_info["workers"] or reason) and time.monotonic() < until:
        time.sleep(_ASK_S)
        reason = why_ended(cluster)
    if reason or not cluster.scheduler_info["workers"]:
        what = f"slurm: {reason or f'no worker came in {wait_s:.0f} s'}"
        remedy = f"squeue says what jobs wait for; {logs} has what they print"
        raise MachineError(what, remedy)
    return cluster


def _slurm(*command: str, script: str = "") -> str:
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own
            command,
            input=script,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        what = f"slurm: {command[0]} has not answered in {_ANSWER_S:.0f} s"
        raise MachineError(what, "check that Slurm works here") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise MachineError(f"slurm: the jobs are refused: {said}", _SLURM_REMEDY)
    return done.stdout


def why_ended(cluster: Any) -> str:
    """Why no worker comes any more: all jobs have ended. Empty if one may be left."""
    jobs = {str(job.job_id) for job in cluster.workers.values() if job.job_id}
    if not jobs or len(jobs) < len(cluster.worker_spec):
        return ""  # not all are submitted
    try:
        queue = _slurm("squeue", "--noheader", "--format=%A", f"--user={os.getuid()}").split()
    except MachineError:
        return ""  # Slurm may answer the next time
    ended = f"all jobs of Slurm ({', '.join(sorted(jobs))}) ended before a worker came"
    return "" if jobs & {*queue} else ended
