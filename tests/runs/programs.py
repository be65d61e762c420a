"""Dask's scheduler and workers as programs, for tests that kill them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from tests.waiting import wait_until


@contextmanager
def program(
    *arguments: str,
    environment: dict[str, str] | None = None,
    before: Sequence[str] = (),
    log: IO[str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A program of Dask, ended with the block.

    Args:
        arguments: which, and its arguments.
        environment: more variables of it.
        before: the command that starts it, if any.
        log: what it says goes to this file. A pipe that nobody reads would fill and stop it.
    """
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
        stdout=subprocess.DEVNULL,
        stderr=log or subprocess.DEVNULL,
        text=True,
        cwd="/",  # not the checkout, where Python would find the testbed first
        env=os.environ | (environment or {}),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def scheduler(
    port: int = 0, host: str = "127.0.0.1"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler, and its address."""
    options = ("--host", host, "--port", str(port), "--no-dashboard", "--no-show")
    with NamedTemporaryFile("w+") as log, program("dask_scheduler", *options, log=log) as process:
        written = Path(log.name)
        wait_until(lambda: "Scheduler at:" in written.read_text() or process.poll() is not None)
        lines = written.read_text().splitlines()
        address = next((line.split()[-1] for line in lines if "Scheduler at:" in line), None)
        assert address is not None, "\n".join(lines)
        yield process, address


def worker_options(
    address: str, threads: int = 2, host: str | None = "127.0.0.1"
) -> tuple[str, ...]:
    """What starts a worker of a scheduler; it listens at an address, or at all of the machine's."""
    listen = () if host is None else ("--host", host)
    few = ("--nthreads", str(threads), "--no-dashboard", "--no-nanny")
    return ("dask_worker", address, *listen, *few)
