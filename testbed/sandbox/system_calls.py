"""Calls of the C library that Python does not offer, through ctypes; reads that do not block."""

import ctypes
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import addressof, create_string_buffer
from pathlib import Path
from typing import Final

from testbed.rights import as_root

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


# --------------------------------------------------------------------------------------------------
# What a process sets for itself: when the kernel ends it, its name, its priority.


PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
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


def die_with_parent(parent: int, number: int | None = None) -> None:
    """Have the kernel signal this process when its parent ends; exit if the parent already has.

    Only Linux does that; elsewhere, where nothing is emulated, the process lives on.

    Args:
        parent: the parent's PID, or OUTSIDE.
        number: the signal; by default SIGKILL.
    """
    if sys.platform != "linux":
        return
    number = signal.SIGKILL if number is None else number
    system_call("prctl", PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def become_subreaper() -> None:
    """Have descendants whose parents have ended become children of this process (prctl(2))."""
    system_call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(parent: int) -> list[int]:
    """The PIDs of a process's children."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            fields = stat.read_bytes().rpartition(b")")[2].split()
            if int(fields[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def cpu_ns(pid: int) -> int:
    """CPU time that a process has used so far, in ns, until it is reaped.

    Its CPU clock is number ~pid << 3 | 2 (clock_getcpuclockid(3), which Python does not offer).

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime_ns(~pid << 3 | 2)


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


# --------------------------------------------------------------------------------------------------
# Options of sockets that Python does not name, and names of UNIX sockets with long paths.


SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
"""Buffers beyond the system's limit, for root (socket(7))."""

ETH_P_ALL: Final = 3
"""Frames of every protocol (packet(7))."""


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A name for a UNIX socket during a block, however long its path is.

    The kernel takes at most 107 bytes (unix(7)), so the name leads through the descriptor of the
    socket's directory.

    Raises:
        OSError: the directory cannot be opened.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextmanager
def new_socket_name(path: Path) -> Iterator[str]:
    """The same for one that is bound in the block; later only this process's user can call it.

    The umask counts for all threads, so use it before there are others.

    Raises:
        OSError: the directory cannot be opened.
    """
    usual = os.umask(0o177)
    try:
        with socket_name(path) as name:
            yield name
    finally:
        os.umask(usual)


# --------------------------------------------------------------------------------------------------
# Classic BPF programs by which the kernel selects the packets of a socket.


_SO_ATTACH_FILTER: Final = 26
_INSTRUCTION: Final = struct.Struct("=HBBI")

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand: linux/filter.h, struct sock_filter."""


def attach_filter(receiver: socket.socket, program: Sequence[Instruction]) -> None:
    """Have the kernel hand over only the packets that a program selects.

    Raises:
        OSError: the kernel refused the program.
    """
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    kept = create_string_buffer(code, len(code))  # until the kernel has copied it
    head = struct.pack("@HP", len(program), addressof(kept))
    receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
