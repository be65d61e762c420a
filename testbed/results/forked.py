"""Processes that were forked from one in which Polars had started its threads, which they lack."""

import sys

from testbed.model.errors import MachineError


def require_threads() -> None:
    """Check that Polars can work here; otherwise it waits for its threads without end.

    Raises:
        MachineError: this process was forked after Polars had been loaded.
    """
    # Not imported, as the package imports what needs this.
    if vars(sys.modules[__name__.partition(".")[0]])["forked_after"]:
        raise MachineError(
            "this process was forked from one that had loaded Polars, whose threads it lacks",
            'start it anew: multiprocessing.get_context("spawn")',
        )
