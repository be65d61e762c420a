"""Whether a run failed because the machine ran out of something, and what to do about it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.model.errors import MachineError
from testbed.model.run_files.layout import LOGS

_LEAST_FREE_BYTES = 1 << 16
"""A file system with less than this free is full: the largest single write of a run is larger."""

_LOG_CHARACTERS = 2000

_NO_SPACE = errno.ENOSPC, errno.EDQUOT


def shortage(
    error: BaseException, directory: Path, elsewhere: str = "--results DIR"
) -> MachineError | None:
    """The shortage that made a run in this directory fail with this error; None if there is none.

    Errors of processes arrive as text, or are in their logs; both have the system's text for the
    error number.

    Args:
        error: the error.
        directory: where the run is written.
        elsewhere: how it is written elsewhere.
    """
    text = "\n".join((f"{type(error).__name__}: {error}", *_ends_of_logs(directory)))
    if is_full(directory) or _names(text, *_NO_SPACE):
        return MachineError(
            f"no space is left on the file system of {directory}",
            f"free some, or write elsewhere: {elsewhere}",
        )
    if _names(text, errno.EROFS):
        return MachineError(
            f"the file system of {directory} has become read-only", f"write elsewhere: {elsewhere}"
        )
    if _names(text, errno.EFBIG):
        return MachineError(
            f"a file of {directory} would be larger than files may be here",
            "raise that limit: ulimit -f unlimited",
        )
    if _names(text, errno.EMFILE, errno.ENFILE):
        return MachineError(
            "the limit of open files is too low for this fabric",
            "raise it: ulimit -n 65536; for a container --ulimit nofile=65536:65536",
        )
    if isinstance(error, MemoryError) or "MemoryError" in text or _names(text, errno.ENOMEM):
        return MachineError(
            "memory ran out", "a scenario with fewer flows or smaller messages, or a higher limit"
        )
    return None


def _ends_of_logs(directory: Path) -> Iterator[str]:
    """The last lines that each process of the run has logged."""
    for log in (directory / LOGS).glob("*.log"):
        yield log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]


def _names(text: str, *numbers: int) -> bool:
    return any(os.strerror(number) in text for number in numbers)


def is_full(directory: Path) -> bool:
    try:
        system = os.statvfs(directory)
    except OSError:
        return False
    out_of_files = system.f_files > 0 and system.f_favail == 0
    return out_of_files or system.f_bavail * system.f_frsize < _LEAST_FREE_BYTES
