"""System calls that Python does not offer, through ctypes."""

import ctypes
import os


def last_error(action: str, detail: str = "") -> OSError:
    """The error of this thread's last call through ctypes, named by what the call was to do."""
    code = ctypes.get_errno()
    return OSError(code, f"{action}: {os.strerror(code)}" + (f" ({detail})" if detail else ""))


def system_call(name: str, number: int, *arguments: object) -> int:
    """Make a system call that returns a descriptor or a count; see syscall(2).

    Raises:
        OSError: it failed.
    """
    result: int = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        raise last_error(name)
    return result
