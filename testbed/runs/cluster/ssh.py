"""Workers on the hosts of a file, which ssh starts."""

import asyncio
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from testbed import interpreter
from testbed.model.errors import MachineError
from testbed.runs.cluster.place import SshHost, hosts_in
from testbed.runs.cluster.slurm import INFO

_CONNECT_S = 15.0
_PATIENT = {"connect_timeout": _CONNECT_S, "login_timeout": _CONNECT_S}
"""Options of asyncssh."""

_IDLE = "10 minutes"
"""A scheduler that ssh started ends after this time without a run, and its workers with it."""

_REMEDY = "ssh to each host of the file has to work without a question, and find this Python"


def ssh_cluster(file: Path, resources: dict[str, int], left_s: Callable[[], float]) -> Any:
    """Start a scheduler on the first host and a worker on each, which speak TLS with each other.

    Args:
        file: the host file.
        resources: the Dask resources of a worker.
        left_s: how long it may still take.

    Raises:
        InputError: the file is wrong.
        MachineError: a host cannot be reached, or does not answer in that time.
    """
    import asyncssh  # noqa: F401 - an extra; it has to be loaded by this thread

    hosts = hosts_in(file)
    limit_s = left_s()
    if failed := asyncio.run(_failures(hosts, limit_s)):
        raise MachineError(f"ssh:{file}: {'; '.join(failed)}", _REMEDY)
    started, limit_s = Future[Any](), left_s()
    threading.Thread(target=_start, args=(hosts, resources, started), daemon=True).start()
    try:
        return started.result(limit_s)
    except TimeoutError as error:
        what = f"the hosts answer, but start no scheduler and workers in {limit_s:.0f} s"
        raise MachineError(f"ssh:{file}: {what}", _REMEDY) from error
    except Exception as error:  # asyncssh and Dask raise many kinds
        raise MachineError(f"ssh:{file}: {type(error).__name__}: {error}", _REMEDY) from error


async def _failures(hosts: Sequence[SshHost], limit_s: float) -> list[str]:
    """Why hosts cannot be used, of those that cannot."""
    reasons = await asyncio.gather(*(_failure(host, limit_s) for host in hosts))
    return [
        f"{host.address}: {reason}" for host, reason in zip(hosts, reasons, strict=True) if reason
    ]


async def _failure(host: SshHost, limit_s: float) -> str:
    """Why a host cannot be used; empty if Python answers there."""
    import asyncssh

    command = shlex.join(interpreter.python("-c", "import distributed"))
    has_logged_in = False
    try:
        async with asyncio.timeout(limit_s):
            async with asyncssh.connect(host.address, **host.options, **_PATIENT) as connection:
                has_logged_in = True
                done = await connection.run(command)
    except TimeoutError:
        taken = "it takes the login, but did not answer" if has_logged_in else "no login"
        return f"{taken} in {limit_s:.0f} s"
    except (OSError, ValueError, asyncssh.Error) as error:  # of its configuration or keys, too
        return f"{type(error).__name__}: {error}"
    said = str(done.stderr or "").strip().splitlines()
    return "" if done.exit_status == 0 else (said or [f"exit status {done.exit_status}"])[-1]


def _start(hosts: Sequence[SshHost], resources: dict[str, int], started: "Future[Any]") -> None:
    """Start the cluster; nothing else ends the wait for a host that hangs."""
    from distributed import SSHCluster

    try:
        cluster = SSHCluster(
            [host.address for host in (hosts[0], *hosts)],
            connect_options=[host.options | _PATIENT for host in (hosts[0], *hosts)],
            remote_python=shlex.join(interpreter.python()),  # what it runs there has its options
            scheduler_options={
                "host": hosts[0].address,
                "protocol": "tls",
                "idle_timeout": _IDLE,
                "dashboard": False,
                "dashboard_address": INFO,
            },
            worker_options={
                "resources": resources,
                "protocol": "tls",
                "dashboard_address": INFO,
            },
        )
    except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
        started.set_exception(error)
    else:
        started.set_result(cluster)
