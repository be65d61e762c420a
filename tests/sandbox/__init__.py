"""Run a function in a sandbox of its own, from a test: its result comes back, and its failure."""

from collections.abc import Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import pytest

from testbed.model.errors import TestbedError
from testbed.sandbox.processes import call
from tests.waiting import WATCHDOG_S

T = TypeVar("T")
P = ParamSpec("P")


def run_in_sandbox(function: Callable[[], T], timeout_s: float = WATCHDOG_S) -> T:
    """Call a function as the first process of a sandbox and return what it returns.

    What it raises, a failed assertion included, fails the test with the traceback's text.

    Args:
        function: what to call; its result must be one that `testbed.sandbox.channel` takes.
        timeout_s: after so many seconds the sandbox is ended and the test fails.
    """
    try:
        return call(function, timeout_s=timeout_s)
    except (TestbedError, TimeoutError) as error:
        failure = "\n".join([str(error), *getattr(error, "__notes__", ())])
    pytest.fail(failure, pytrace=False)


def in_sandbox(test: Callable[P, None]) -> Callable[P, None]:
    """Have a whole test run in a sandbox of its own."""

    @wraps(test)
    def sandboxed(*arguments: P.args, **options: P.kwargs) -> None:
        why_not = run_in_sandbox(partial(_skipped, partial(test, *arguments, **options)))
        if why_not is not None:
            pytest.skip(why_not)

    return sandboxed


def _skipped(test: Callable[[], None]) -> str | None:
    """Call a test; why it skips itself, if it does."""
    try:
        test()
    except pytest.skip.Exception as skipped:
        return skipped.msg
    return None
