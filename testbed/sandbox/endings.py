"""How a process has ended: in words, and as an error."""

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from testbed.model.errors import SIGNALLED, CrashError, RunFailedError

_COUNTERS = Path("/proc/vmstat")


@dataclass(eq=False)
class ProcessFailedError(RunFailedError):
    """A process ended without a result.

    Attributes:
        title: what the process is.
        reason: how it ended, or the exception that it did not expect.
        traceback: the exception's; empty if there was none.
    """

    title: str
    reason: str
    traceback: str = ""

    def __str__(self) -> str:
        """Show all of it."""
        return f"{self.title} ended early: {self.reason}\n{self.traceback}".rstrip()


class ProcessCrashedError(CrashError, ProcessFailedError):
    """A process ended by a mistake in its code."""


def describe_exit(exit_code: int, *, for_memory: bool = False) -> str:
    """How a process ended, in words.

    Args:
        exit_code: its exit status, or minus the signal that killed it.
        for_memory: whether the kernel has killed processes meanwhile because memory ran out.
    """
    number = -exit_code if exit_code < 0 else exit_code - SIGNALLED
    if number <= 0:
        return f"exit status {exit_code}"
    killed = f"killed by signal {number}"
    if for_memory and number == signal.SIGKILL:
        killed += f" ({os.strerror(errno.ENOMEM)}: the kernel kills processes when it runs out)"
    return killed


def oom_kills() -> int:
    """How many processes the kernel has killed since it booted because memory ran out.

    Those of a control group that reached its limit count, too.
    """
    for line in _COUNTERS.read_text(encoding="ascii").splitlines() if _COUNTERS.exists() else ():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
