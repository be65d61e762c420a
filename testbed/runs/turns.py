"""Emulations of campaigns take turns on a machine: two at a time would disturb each other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from testbed.results.run_directory import lock_if_free

EMULATION_LOCK = Path("/proc/sys/kernel")
"""The directory that an emulation locks: one at a time on a machine.

Every user can open it, and all network namespaces see the same; a container has one of its own.
"""

QUEUE_LOCK = Path("/proc/sys/vm")
"""The directory that a campaign locks while it waits for the other: so campaigns get the machine in
turn, also if the one that has just ended its run asks again at once."""

_TRY_S = 0.2
"""How long a try comes after the one before it."""


@contextmanager
def turn(stopped: threading.Event, on_wait: Callable[[], object]) -> Iterator[bool]:
    """Wait until no other campaign emulates on this machine, and keep others waiting for the block.

    Args:
        stopped: ends the wait.
        on_wait: called once if there is something to wait for.

    Yields:
        Whether it is this one's turn; False: it was stopped.
    """
    note_wait = cache(on_wait)  # so it is called once
    with ExitStack() as machine:
        with _lock(QUEUE_LOCK, stopped, note_wait):
            is_ours = machine.enter_context(_lock(EMULATION_LOCK, stopped, note_wait))
        yield is_ours


@contextmanager
def _lock(
    directory: Path, stopped: threading.Event, on_wait: Callable[[], object]
) -> Iterator[bool]:
    """Lock a directory for a block, as soon as it is free; yields False if that is stopped."""
    while not stopped.is_set():
        with lock_if_free(directory) as is_ours:
            if is_ours:
                yield True
                return
        on_wait()
        stopped.wait(_TRY_S)
    yield False
