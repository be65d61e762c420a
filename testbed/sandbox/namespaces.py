"""Linux namespaces: one outer sandbox for a run, one network namespace for every node in it.

Everything a run makes lives in one PID + network + mount namespace and disappears with its first
process, whatever is killed. Nodes' namespaces are named in the sandbox's own /run/netns, where
iproute2 finds them and nobody outside does.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from testbed.sandbox.forking import fork

CLONE_NEWNS = 0x0002_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

NETNS_DIR = Path("/run/netns")
TOPOLOGY_FILE = NETNS_DIR.parent / "topology.json"
"""What a sandbox's fabric is, for programs that run in its hosts."""

OWN_NETNS = "/proc/thread-self/ns/net"

AUTOGROUP = Path("/proc/self/autogroup")
"""The niceness of this process's session, where the kernel schedules by session."""

NICENESS = -10
"""What makes the network goes before ordinary programs of the machine, which shall not look like
it: endpoints, the controller, Open vSwitch, propagation delay."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    _call("unshare", flags)


def setns(fd: int, kind: int) -> None:
    """Enter the namespace behind a descriptor."""
    _call("setns", fd, kind)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a filesystem: the system call of that name."""
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())


def unmount(target: str) -> None:
    """Detach a filesystem as soon as nobody uses it."""
    _call("umount2", target.encode(), MNT_DETACH)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends.

    Args:
        parent: the parent's PID, 0 where it is in an outer PID namespace.
    """
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)


def start_sandbox(first_process: Callable[[], int]) -> int:
    """Run a function as the first process of new PID, network and mount namespaces.

    Returns the PID, as seen from here, of the process that waits for it and ends with its status
    (128 + the signal's number if one killed it). SIGTERM to that process ends the sandbox and
    everything in it in order; killing it, or this one, ends it as well. Signals that end the caller
    wait until the fork is over; then they end what was forked, too.
    """
    parent = os.getpid()
    waiter, let_signals_through = fork()
    if not waiter:
        _leave(lambda: _hold_sandbox(parent, let_signals_through, first_process))
    try:
        let_signals_through()
    except BaseException:
        os.kill(waiter, signal.SIGTERM)
        os.waitpid(waiter, 0)
        raise
    return waiter


def _leave(function: Callable[[], int]) -> NoReturn:
    """End this forked process with the function's status: never return into the caller's stack."""
    status = 1
    try:
        status = function()
    except BaseException:  # noqa: BLE001 - reported here, as nobody above can
        import traceback  # noqa: PLC0415 - only on the way out

        traceback.print_exc()
    finally:
        os._exit(status)


def _hold_sandbox(
    parent: int, let_signals_through: Callable[[], None], first_process: Callable[[], int]
) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    let_signals_through()
    die_with_parent(parent)
    os.setsid()  # the terminal's Ctrl-C goes to the command, which ends the sandbox in order
    unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS)
    first = os.fork()
    if not first:
        _leave(lambda: _as_first_process(first_process))
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(first, signal.SIGKILL))
    _, status = os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _as_first_process(function: Callable[[], int]) -> int:
    die_with_parent(0)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    mount("tmpfs", str(NETNS_DIR.parent), "tmpfs")
    NETNS_DIR.mkdir()
    return function()


def go_first(niceness: int = NICENESS) -> None:
    """Give this process that niceness, and its session, where the kernel groups by it (sched(7)).

    There a niceness counts only among the processes of a session: without this, a program in
    another terminal gets as much of the CPUs as all of a sandbox.

    Raises:
        PermissionError: it takes root to go before others.
    """
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if AUTOGROUP.exists():
        AUTOGROUP.write_text(str(niceness))


def name_process(name: str) -> None:
    """Give this process a name for ps and top: 15 characters of it show."""
    _call("prctl", PR_SET_NAME, name.encode(), 0, 0, 0)


@contextmanager
def entered(fd: int) -> Iterator[None]:
    """Be in the network namespace behind a descriptor for the duration of a block."""
    own = os.open(OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(fd, CLONE_NEWNET)
        try:
            yield
        finally:
            setns(own, CLONE_NEWNET)
    finally:
        os.close(own)


def open_netns(name: str) -> int:
    """Open a named network namespace of this sandbox; the caller closes the descriptor."""
    return os.open(NETNS_DIR / name, os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def entered_by_name(name: str) -> Iterator[None]:
    """Be in a named network namespace of this sandbox for the duration of a block."""
    fd = open_netns(name)
    try:
        with entered(fd):
            yield
    finally:
        os.close(fd)


def enter_netns(name: str) -> None:
    """Move this process into a named network namespace of this sandbox, for good."""
    fd = open_netns(name)
    try:
        setns(fd, CLONE_NEWNET)
    finally:
        os.close(fd)


def create_netns(name: str) -> int:
    """Make a named network namespace and return a descriptor of it."""
    own = os.open(OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNET)
        try:
            place = NETNS_DIR / name
            place.touch()
            mount(OWN_NETNS, str(place), "", MS_BIND)
            return os.open(OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            setns(own, CLONE_NEWNET)
    finally:
        os.close(own)
