"""The workers of a cluster as a pool for calls of the testbed's functions, such as grading."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any
from uuid import uuid4

from testbed.runs.cluster.calls import WorkerCalls
from testbed.runs.cluster.stopping import call_until_stopped


class WorkerPool(Executor):
    """Calls functions on workers that simulate.

    A call whose workers are lost, or that none can make, ends with a `TestbedError`.
    """

    def __init__(self, calls: WorkerCalls) -> None:
        """Use the workers of a cluster.

        Args:
            calls: makes the calls.
        """
        self._calls = calls
        self._campaign = uuid4().hex

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function on a worker, as soon as one has room; it takes no keywords."""
        if kwargs:
            raise TypeError(f"{fn.__name__}: call it without keywords")
        name = fn.__name__.strip("_")
        arguments = self._campaign, fn, *args
        return self._calls.call(call_until_stopped, *arguments, name=name, form="simulated")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as in the standard library
        """Send nothing more, and end the processes of the calls that are under way."""
        self._calls.stop(self._campaign)
