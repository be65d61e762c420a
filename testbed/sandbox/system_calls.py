"""Calls of the C library that Python does not offer, through ctypes; reads that do not block."""

import ctypes
import os
from collections.abc import Callable, Iterator

libc = ctypes.CDLL(None, use_errno=True)


def last_error(action: str, detail: str = "") -> OSError:
    """The error of this thread's last call through ctypes, named by what the call was to do."""
    code = ctypes.get_errno()
    return OSError(code, f"{action}: {os.strerror(code)}" + (f" ({detail})" if detail else ""))


def system_call(name: str, *arguments: object, number: int | None = None) -> int:
    """Call a function of the C library that returns a negative number if it fails.

    `number` is that of a system call for which the library has no function; see syscall(2).

    Raises:
        OSError: it failed.
    """
    if number is None:
        result: int = getattr(libc, name)(*arguments)
    else:
        result = libc.syscall(number, *arguments)
    if result < 0:
        raise last_error(name)
    return result


def until_blocked(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield what a call that does not block reads, until there is nothing more to read."""
    while True:
        try:
            yield read()
        except BlockingIOError:
            return
