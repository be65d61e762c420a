"""Run a function in a sandbox of its own, from a test: its result comes back, and its failure."""

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import pytest

from testbed.sandbox.namespaces import start_sandbox

T = TypeVar("T")


def run_in_sandbox(function: Callable[[], T], timeout_s: float = 60) -> T:
    """Call a function as the first process of a sandbox and return what it returns.

    What it raises, a failed assertion included, fails the test with the traceback's text.

    Args:
        function: what to call; its result must be picklable.
        timeout_s: after so many seconds the sandbox is killed and the test fails.
    """
    reader, writer = os.pipe()
    waiter = start_sandbox(lambda: _answer(function, writer))
    os.close(writer)
    try:
        answer = _read_all(reader, time.monotonic() + timeout_s)
    except TimeoutError:
        os.kill(waiter, signal.SIGKILL)
        os.waitpid(waiter, 0)
        pytest.fail(f"the sandbox did not end within {timeout_s} s")
    finally:
        os.close(reader)
    _, status = os.waitpid(waiter, 0)
    if not answer:
        code = os.waitstatus_to_exitcode(status)
        pytest.fail(f"the sandbox ended with status {code} and no answer")
    failure, result = pickle.loads(answer)  # noqa: S301 - our own child wrote it
    if failure:
        pytest.fail(f"in the sandbox:\n{failure}", pytrace=False)
    done: T = result
    return done


def _answer(function: Callable[[], object], writer: int) -> int:
    failure, result = "", None
    try:
        result = function()
    except BaseException:  # noqa: BLE001 - the test reports it
        failure = traceback.format_exc()
    with os.fdopen(writer, "wb") as pipe:
        pickle.dump((failure, result), pipe)
    return 0


def _read_all(reader: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
