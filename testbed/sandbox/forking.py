"""Forking, where a signal may end the caller at any moment."""

import os
import signal
from collections.abc import Callable

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command."""


def fork() -> tuple[int, Callable[[], None]]:
    """Fork while the signals that end a command wait.

    What such a signal's handler raises in a function that Python calls around a fork (logging has
    some) is only printed: it would be lost, and logging's lock kept.

    Returns the child's PID, 0 in the child, and what lets those signals through again. Both sides
    call it: the parent where it can end the child.

    Raises:
        OSError: there can be no more processes; no signal waits any longer.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        return os.fork(), let_through
    except OSError:
        let_through()
        raise
