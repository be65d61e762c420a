"""Which tests run beside others, on the whole machine: locks that are abstract UNIX sockets.

An emulated run whose times are looked at needs the CPUs for itself; other tests run beside each
other. Abstract sockets leave no file, end with the process that holds them, and are seen by every
test session in this network namespace, so that sessions side by side take turns as well.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

PREFIX = "mrc-testbed-tests"
"""Of the names of the sockets."""

PLACES = 16
"""So many tests may run beside each other; one that runs alone takes all places."""

_POLL_S = 0.01


@contextmanager
def beside_others() -> Iterator[None]:
    """Hold one of the places: wait while a test runs alone, or waits to run alone."""
    with ExitStack() as place:
        with _held("gate"):
            while not any(_take(place, f"place-{number}") for number in range(PLACES)):
                time.sleep(_POLL_S)
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Hold all places: wait until no other test runs, and keep them waiting."""
    with _held("gate"), ExitStack() as places:
        for number in range(PLACES):
            places.enter_context(_held(f"place-{number}"))
        yield


@contextmanager
def _held(name: str) -> Iterator[None]:
    with ExitStack() as lock:
        while not _take(lock, name):
            time.sleep(_POLL_S)
        yield


def is_free(name: str) -> bool:
    """Whether nobody holds the lock of that name: `gate`, or `place-0` and so on."""
    with ExitStack() as lock:
        return _take(lock, name)


def _take(stack: ExitStack, name: str) -> bool:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        lock.bind(f"\0{PREFIX}-{name}")
    except OSError:
        lock.close()
        return False
    stack.callback(lock.close)
    return True
