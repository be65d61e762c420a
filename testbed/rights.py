"""As whom root writes files.

A process of root may write anywhere. In a directory that belongs to somebody else, a link or a
directory that is swapped while the process writes would lead it to any file of the machine. So
within `acting_for` the kernel lets it write where another user may (setfsuid(2)): the caller of
sudo, if they may write there, or else the directory's owner. What is made belongs to them. Only
that is theirs. Root still reads every file, as its Python may lie in its home; within `reading_for`
it reads what that user may read. Network, namespaces and signals stay root's. So do programs that
are started, since exec(2) ends it. It holds for the calling thread, and for the threads and the
forked processes that it starts in the block.

`as_root` is for files of the kernel, such as those below /proc and /sys.
"""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_UNCHANGED = -1
"""An ID with which setfsuid(2) changes nothing, and tells the present one."""

_MAX_ID = 2**32 - 2

_CAPABILITIES_VERSION = 0x2008_0522
_CAP_DAC_READ_SEARCH = 1 << 2
"""To read every file and directory (capabilities(7))."""

_MOST_LINKS = 40
"""As many links as the kernel follows on the way to a file (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class User:
    """Whose rights count: the IDs of a user and of their groups, the first one for new files."""

    uid: int
    groups: tuple[int, ...]


def caller() -> User | None:
    """The user who called sudo, if this process is root's."""
    uid, gid = (_number(os.environ.get(name, "")) for name in ("SUDO_UID", "SUDO_GID"))
    return _user(uid, gid) if _is_root() and uid and gid is not None else None


def _number(text: str) -> int | None:
    """An ID of a user or group; None if it is none: the greatest one stands for no change."""
    number = int(text) if text.isdecimal() and len(text) <= len(str(_MAX_ID)) else _MAX_ID + 1
    return number if number <= _MAX_ID else None


@contextmanager
def acting_for(directory: Path) -> Iterator[None]:
    """Write files within the block as the one whose directory it is, if not root's.

    Without effect for other users than root, on other systems than Linux, and within another such
    block.

    Args:
        directory: where the block writes; it need not exist.
    """
    user = _user_for(directory)
    if user is None:
        yield
        return
    with _as(user):
        yield


@contextmanager
def reading_for(directory: Path) -> Iterator[None]:
    """Read files within the block, too, as the one whose directory it is: links there are theirs.

    Otherwise as `acting_for`, also in such a block. Import before it what the block needs: Python
    may lie where only root reads.
    """
    with acting_for(directory):
        if not _is_root() or _fsuid() == 0:
            yield
            return
        libc = _libc()
        could_read_all = _set_reading_all(libc, wanted=False)
        try:
            yield
        finally:
            _set_reading_all(libc, wanted=could_read_all)


@contextmanager
def as_root() -> Iterator[None]:
    """Write files of the kernel within the block as root, if this process is root's."""
    if not _is_root() or _fsuid() == 0:
        yield
        return
    with _as(User(0, (0,))):
        yield


def _is_root() -> bool:
    return sys.platform == "linux" and hasattr(os, "geteuid") and os.geteuid() == 0


def _libc() -> Any:
    import ctypes  # noqa: PLC0415 - it takes long, and most processes are not root's

    return ctypes.CDLL(None, use_errno=True)


def _fsuid() -> int:
    return int(_libc().setfsuid(_UNCHANGED))


@contextmanager
def _as(user: User) -> Iterator[None]:
    """Take over the rights of a user; where a namespace does not know them, nothing changes."""
    libc, groups = _libc(), os.getgroups()
    before = int(libc.setfsuid(_UNCHANGED)), int(libc.setfsgid(_UNCHANGED))
    _set_groups(user.groups)
    _set(libc, user.uid, user.groups[0])
    try:
        yield
    finally:
        _set(libc, *before)
        _set_groups(groups)


def _set_groups(groups: Sequence[int]) -> None:
    with suppress(PermissionError):  # in a user namespace in which nobody may
        os.setgroups(groups)


def _set(libc: Any, uid: int, gid: int) -> None:
    """Set the IDs that count for files, and keep the right to read.

    The kernel forgets then that this process ends with its parent (prctl(2)), so it is told again.
    """
    import ctypes  # noqa: PLC0415 - as in _libc

    number = ctypes.c_int()
    libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)
    parent = os.getppid()
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    _set_reading_all(libc, wanted=True)
    if number.value:
        libc.prctl(_PR_SET_PDEATHSIG, number.value, 0, 0, 0)
        if os.getppid() != parent:  # it ended in between
            os.kill(os.getpid(), number.value)


def _set_reading_all(libc: Any, *, wanted: bool) -> bool:
    """Be able to read every file, if that is permitted, or not; return whether it was so before."""
    import ctypes  # noqa: PLC0415 - as in _libc

    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    before = bool(sets[0] & _CAP_DAC_READ_SEARCH)  # of the effective ones; then the permitted ones
    sets[0] &= ~_CAP_DAC_READ_SEARCH
    sets[0] |= sets[1] & _CAP_DAC_READ_SEARCH if wanted else 0
    libc.capset(header, sets)
    return before


def _user_for(directory: Path) -> User | None:
    """Who should act in a directory; None: this process as it is."""
    if not _is_root() or _fsuid() != 0:
        return None
    sudo, owner = caller(), _owner(directory)
    able = (user for user in (sudo, owner) if user is not None and _may_write(user, directory))
    # Where neither may write, it is the owner who is told so; in root's own place root acts.
    return next(able, owner)


def _may_write(user: User, directory: Path) -> bool:
    """Whether a user may make files in a directory, or make it where it does not exist."""
    with _as(user):
        try:
            places = (directory, *directory.absolute().parents)
        except OSError:  # the working directory is gone
            return False
        existing = next(filter(os.path.exists, places), None)
        return existing is not None and os.access(existing, os.W_OK | os.X_OK, effective_ids=True)


def _owner(path: Path) -> User | None:
    """The owner of the last directory or link on the way to a path that is not root's, if any.

    They, or somebody further up, can lead the path elsewhere at any time.
    """
    owner = None
    try:
        here, rest = Path("/"), [*reversed((Path.cwd() / path).parts)]
    except OSError:  # the working directory is gone
        return None
    links = 0
    while rest and links < _MOST_LINKS:
        here /= rest.pop()
        try:
            status = here.lstat()
        except OSError:
            break
        if status.st_uid:
            owner = _user(status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            rest += reversed(here.readlink().parts)
            here = here.parent
    return owner


def _user(uid: int, gid: int) -> User:
    """A user with all their groups; those that the system does not know have the given one."""
    import pwd  # noqa: PLC0415 - not on every system

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return User(uid, (gid,))
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return User(uid, (entry.pw_gid, *(group for group in groups if group != entry.pw_gid)))
