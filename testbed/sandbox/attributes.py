"""What a process sets for itself: when the kernel ends it, its name, its priority."""

import os
import select
import signal
import sys
from pathlib import Path

from testbed.rights import as_root
from testbed.sandbox.system_calls import system_call

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
F_SETSIG = 10
"""From fcntl.h; Python's module does not have it."""

AUTOGROUP = Path("/proc/self/autogroup")
"""The niceness of this process's session, where the kernel schedules by session."""

OOM_SCORE_FILE = Path("/proc/self/oom_score_adj")
MAX_OOM_SCORE = 1000

NICENESS = -10
"""Of the processes that make up the network: endpoints, the controller, Open vSwitch, propagation
delay. They run before ordinary programs of the machine, whose load shall not look like the
network's."""


OUTSIDE = 0
"""The PID of a parent that is outside this process's PID namespace."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit if the parent already has.

    Only Linux does that; elsewhere, where nothing is emulated, the process lives on.

    Args:
        parent: the parent's PID, or OUTSIDE.
    """
    if sys.platform != "linux":
        return
    system_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def end_with_input() -> None:
    """Have the kernel send this process SIGTERM when its standard input, a pipe, is closed.

    It works where the process belongs to another user than the one that holds the other end.
    """
    import fcntl  # noqa: PLC0415 - Windows has none

    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:  # it was closed before
        signal.raise_signal(signal.SIGTERM)


def prefer_for_oom_kill() -> None:
    """Have the kernel kill this process and its children first when memory runs out.

    What a run measures is lost then in any case; the command that started it can still tell why.
    """
    with as_root():
        OOM_SCORE_FILE.write_text(str(MAX_OOM_SCORE), encoding="ascii")


def name_process(name: str) -> None:
    """Give this process a name for ps and top, which show 15 characters of it."""
    system_call("prctl", PR_SET_NAME, name.encode(), 0, 0, 0)


def raise_priority(niceness: int = NICENESS) -> None:
    """Give this process a niceness, and its session too, where the kernel groups by it (sched(7)).

    There a niceness counts only among the processes of a session: without this, a program in
    another terminal gets as much of the CPUs as a whole sandbox.

    Raises:
        PermissionError: a niceness below 0 takes root.
    """
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if AUTOGROUP.exists():
        with as_root():
            AUTOGROUP.write_text(str(niceness), encoding="ascii")
