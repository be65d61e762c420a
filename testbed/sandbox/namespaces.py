"""Linux namespaces: one outer sandbox for a run, one network namespace for every node in it.

Everything a run makes lives in one PID + network + mount namespace and disappears with its first
process, whatever is killed. Nodes' namespaces are named in the sandbox's own /run/netns, where
iproute2 finds them and nobody outside does.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from testbed.sandbox.system_calls import system_call

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

NETNS_DIR = Path("/run/netns")
TOPOLOGY_FILE = NETNS_DIR.parent / "topology.json"
"""What a sandbox's fabric is, for programs that run in its hosts."""

RECORDS_FILE = NETNS_DIR.parent / "records"
"""Names the directory in which programs in the hosts record, if somebody watches the fabric."""

OWN_NETNS = "/proc/thread-self/ns/net"


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a filesystem: the system call of that name."""
    system_call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())


def unmount(target: str) -> None:
    """Detach a filesystem as soon as nobody uses it."""
    system_call("umount2", target.encode(), MNT_DETACH)


def enter_new_namespaces() -> None:
    """Leave the network and mount namespace for new ones; children start in a new PID namespace."""
    system_call("unshare", CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS)


def mount_private_filesystems() -> None:
    """Mount what a sandbox has of its own: /proc, for its PIDs, and /run, for its namespaces."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    mount("tmpfs", str(NETNS_DIR.parent), "tmpfs")
    NETNS_DIR.mkdir()


@contextmanager
def _opened(netns: str | Path) -> Iterator[int]:
    """Have a network namespace open for the duration of a block."""
    fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def own_netns() -> AbstractContextManager[int]:
    """Have the network namespace that this thread is in open for the duration of a block."""
    return _opened(OWN_NETNS)


@contextmanager
def _returning() -> Iterator[None]:
    """At the end of a block, return to the network namespace of its beginning."""
    with _opened(OWN_NETNS) as here:
        try:
            yield
        finally:
            system_call("setns", here, CLONE_NEWNET)


@contextmanager
def entered(fd: int) -> Iterator[None]:
    """Be in the network namespace behind a descriptor for the duration of a block."""
    with _returning():
        system_call("setns", fd, CLONE_NEWNET)
        yield


def open_netns(name: str) -> int:
    """Open a named network namespace of this sandbox; the caller closes the descriptor."""
    return os.open(NETNS_DIR / name, os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def entered_by_name(name: str) -> Iterator[None]:
    """Be in a named network namespace of this sandbox for the duration of a block."""
    with _opened(NETNS_DIR / name) as fd, entered(fd):
        yield


def enter_netns(name: str) -> None:
    """Move this process into a named network namespace of this sandbox, for good."""
    with _opened(NETNS_DIR / name) as fd:
        system_call("setns", fd, CLONE_NEWNET)


def take_hostname(name: str) -> None:
    """Have this process, and those that it starts, call their host by this name."""
    system_call("unshare", CLONE_NEWUTS)
    socket.sethostname(name)


def create_netns(name: str) -> int:
    """Make a named network namespace and return a descriptor of it."""
    with _returning():
        system_call("unshare", CLONE_NEWNET)
        place = NETNS_DIR / name
        place.touch()
        mount(OWN_NETNS, str(place), "", MS_BIND)
        return os.open(OWN_NETNS, os.O_RDONLY | os.O_CLOEXEC)
