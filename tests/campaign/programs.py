"""Dask's scheduler and workers as programs, for tests that kill them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def program(
    *arguments: str, environment: dict[str, str] | None = None, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A program of Dask, ended with the block; `before` it stands what starts it."""
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",  # not the checkout, where Python would find the testbed first
        env=os.environ | (environment or {}),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def scheduler(
    port: int = 0, host: str = "127.0.0.1"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler, and its address."""
    options = ("--host", host, "--port", str(port), "--no-dashboard", "--no-show")
    with program("dask_scheduler", *options) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Scheduler at:" in line:
                yield process, line.split()[-1]
                return
        raise AssertionError("the scheduler did not start")


def worker_options(
    address: str, threads: int = 2, host: str | None = "127.0.0.1"
) -> tuple[str, ...]:
    """What starts a worker of a scheduler; it listens at an address, or at all of the machine's."""
    listen = () if host is None else ("--host", host)
    few = ("--nthreads", str(threads), "--no-dashboard", "--no-nanny")
    return ("dask_worker", address, *listen, *few)
