"""The directory of a run: never overwritten, owned by the user.

A run is finished when its summary is there; it is written last.
"""

import errno
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from testbed.model.errors import InputError, similar_word
from testbed.model.run_files.layout import FIGURES, LOGS, RUN, SUMMARY

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    CAN_LOCK = False
else:
    CAN_LOCK = True
"""Whether a run in progress can be told from one that was killed."""

LATEST = "latest"
TIME_FORMAT = "%Y%m%dT%H%M%S"
"""How the name of a directory gives the time at which its run started (strftime)."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory `results/<scenario>/<YYYYmmddTHHMMSS>-<seed>/` of one run."""

    path: Path

    @classmethod
    def create(cls, results: Path, scenario: str, seed: int, started: datetime) -> "RunDirectory":
        """Create the directory of a new run and point `latest` at it.

        Where a run of the same second and seed exists, `-2`, `-3`, ... is appended.

        Raises:
            InputError: `results` cannot be written to.
        """
        stem = f"{started.strftime(TIME_FORMAT)}-{seed}"
        try:
            new = _missing_parents(results / scenario)
            (results / scenario).mkdir(parents=True, exist_ok=True)
            path = _make_unique(results / scenario, stem)
        except OSError as error:
            expected = f"a directory to write to ({error.strerror})"
            raise InputError.of("--results", str(results), expected) from error
        run = cls(path)
        run.figures.mkdir()
        run.logs.mkdir()
        for directory in (*new, path, run.figures, run.logs):
            give_to_user(directory)
        _replace_link(path.parent / LATEST, path.name)
        return run

    @property
    def name(self) -> str:
        """`<scenario>/<time>-<seed>`."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def figures(self) -> Path:
        """Where figures go."""
        return self.path / FIGURES

    @property
    def logs(self) -> Path:
        """Where the logs of all processes go."""
        return self.path / LOGS

    @property
    def finished(self) -> bool:
        """Whether the run was carried through to its summary."""
        return (self.path / SUMMARY).is_file()

    @property
    def complete(self) -> bool:
        """Whether the run's records are whole, so that they can be analysed (again)."""
        return self.finished or (self.path / RUN).is_file()

    def remove(self) -> None:
        """Remove the directory, and its scenario's if no run is left in it."""
        shutil.rmtree(self.path)
        scenario = self.path.parent
        latest = scenario / LATEST
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
            if others := [run for run in runs(scenario.parent) if run.path.parent == scenario]:
                latest.symlink_to(others[-1].path.name)
        if not any(scenario.iterdir()):
            scenario.rmdir()

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the run as a whole or not at all; return its path."""
        path = self.path / name
        raw = content.encode() if isinstance(content, str) else content
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            give_to_user(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return path

    def give_to_user(self) -> None:
        """Make all that it holds the property of the user who called sudo, if one did."""
        for directory, _, files in os.walk(self.path):
            give_to_user(Path(directory))
            for file in files:
                give_to_user(Path(directory, file))


def runs(results: Path) -> tuple[RunDirectory, ...]:
    """Every run under a results directory, finished or not, oldest first."""
    directories = [
        path
        for path in results.glob("*/*")
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    ]
    return tuple(RunDirectory(path) for path in sorted(directories, key=lambda p: (p.name, p)))


def find_run(given: Path) -> RunDirectory:
    """The run that a user means by a path: a run's directory, or a scenario's for its latest.

    Raises:
        InputError: it is no run directory.
    """
    for path in (given, given / LATEST):
        if (path / RUN).is_file():
            return RunDirectory(path.resolve())
    expected = f"the directory of a run (it would hold {RUN})"
    raise InputError.of("RUN", str(given), expected, _run_meant_by(given))


_DEPTH = 3
"""How far below a directory of results a run is at most: series, case, run."""


def _run_meant_by(given: Path) -> str:
    """What a user may mean by a path that is no run."""
    below = [file for depth in range(1, _DEPTH + 1) for file in given.glob(f"{'*/' * depth}{RUN}")]
    if below:
        newest = max(below, key=lambda file: file.stat().st_mtime).parent
        return f"it holds runs: the newest is {newest}"
    beside = [path.name for path in given.parent.glob("*")] if given.parent.is_dir() else []
    if not given.exists() and (similar := similar_word(given.name, beside)) is not None:
        return f"did you mean {given.parent / similar}?"
    return "each run prints its directory at its end: results/SCENARIO/TIME-SEED"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory that is in use; the lock ends with the block or with the process.

    Without effect where the system has no such locks.
    """
    if not CAN_LOCK:
        yield
        return
    with _opened(directory) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_if_free(directory: Path) -> Iterator[bool]:
    """Lock a directory for a block, unless another process has; yields whether it is locked.

    Where the system has no such locks, or not this directory, it counts as locked.
    """
    if not CAN_LOCK or not directory.is_dir():
        yield True
        return
    with _opened(directory) as descriptor:
        yield _lock_at_once(descriptor)


def is_locked(path: Path) -> bool:
    """Whether another process, such as a run in progress, has locked a directory or a file.

    False where the system has no such locks.
    """
    if not CAN_LOCK:
        return False
    with _opened(path) as descriptor:
        return not _lock_at_once(descriptor)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a directory or file, to lock it; its lock ends when it is closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock_at_once(descriptor: int) -> bool:
    """Lock an open directory or file, unless another process has; whether it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_to_user(path: Path) -> None:
    """Make a file the property of the user who called sudo (SUDO_UID, SUDO_GID), if one did."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if uid.isdecimal() and gid.isdecimal() and os.geteuid() == 0:
        os.chown(path, int(uid), int(gid), follow_symlinks=False)


def new_directory(parent: Path, stem: str) -> Path:
    """Make a directory that no other command makes: `stem`, or `stem-2`, `stem-3`, ...

    Raises:
        InputError: the parent cannot be written to.
    """
    try:
        new = _missing_parents(parent)
        parent.mkdir(parents=True, exist_ok=True)
        path = _make_unique(parent, stem)
    except OSError as error:
        expected = f"a directory to write to ({error.strerror})"
        raise InputError.of("--results", str(parent), expected) from error
    for directory in (*new, path):
        give_to_user(directory)
    return path


def _missing_parents(path: Path) -> list[Path]:
    return [directory for directory in (path, *path.parents) if not directory.exists()]


def _make_unique(parent: Path, stem: str) -> Path:
    for attempt in range(1, 1000):
        path = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise OSError(errno.EEXIST, "no free name for the run")


def _replace_link(link: Path, target: str) -> None:
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    try:
        temporary.symlink_to(target)
    except OSError:
        if platform.system() == "Windows":  # some users may make no links: there is none then
            return
        raise
    give_to_user(temporary)
    temporary.replace(link)
