"""Processes that were forked from one in which Polars had started its threads, which they lack."""

import os
import sys

from testbed.model.errors import MachineError

_POLARS = "polars"
_lacking: list[str] = []
"""What this process was forked without."""


def note_forks() -> None:
    """Have each process that is forked from now on know whether Polars can work in it."""
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(after_in_child=_note)


def _note() -> None:
    if _POLARS in sys.modules:
        _lacking.append(_POLARS)


def require_threads() -> None:
    """Check that Polars can work here; otherwise it waits for its threads without end.

    Raises:
        MachineError: this process was forked after Polars had been loaded.
    """
    if _lacking:
        raise MachineError(
            "this process was forked from one that had loaded Polars, whose threads it lacks",
            'start it anew: multiprocessing.get_context("spawn")',
        )
