"""Emulations of campaigns take turns on a machine: two at a time would disturb each other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.results.run_directory import lock_if_free

MACHINE = Path("/proc/sys/kernel")
"""The directory that an emulation locks: one at a time on a machine.

Every user can open it, and all network namespaces see the same; a container has one of its own.
"""

_TRY_S = 0.2
"""How long a try comes after the one before it, or after the turn before it: so whoever waits has
the machine before whoever had it last."""


@contextmanager
def turn(stopped: threading.Event, on_wait: Callable[[], object]) -> Iterator[bool]:
    """Wait until no other campaign emulates on this machine, and keep others waiting for the block.

    Args:
        stopped: ends the wait.
        on_wait: called once if there is something to wait for.

    Yields:
        Whether it is this one's turn; False: it was stopped.
    """
    waits = False
    while not stopped.wait(_TRY_S):
        with lock_if_free(MACHINE) as is_ours:
            if is_ours:
                yield True
                return
        if not waits:
            waits = True
            on_wait()
    yield False
