"""The directory of a run: never overwritten, and whole or recognisably not.

A run's records are complete when `run.json` is there, and raw records or all tables. It is finished
when its summary is there, which is written last.
"""

import errno
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from testbed.model.errors import InputError, similar_word
from testbed.model.run_files.layout import FIGURES, LOGS, MANIFEST, RAW, RUN, SUMMARY
from testbed.results.records import OF_SOME_RUNS, TABLES
from testbed.results.whole_file import write_file
from testbed.rights import acting_for

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

_NAME = re.compile(r"\d{8}T\d{6}-\d+(-\d+)?", re.ASCII)
"""The name of a run's directory."""

_USUAL = Path("results")
"""The directory of all results, unless another is named."""

_LEVELS = 4
"""How far below the directory of all results a run is at most: scenario, series, case, run."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory `results/<scenario>/<YYYYmmddTHHMMSS>-<seed>/` of one run."""

    path: Path

    @classmethod
    def create(cls, results: Path, scenario: str, seed: int, started: datetime) -> "RunDirectory":
        """Create the directory of a new run.

        Where a run of the same second and seed exists, `-2`, `-3`, ... is appended.

        Raises:
            InputError: `results` cannot be written to, or its path is no text.
        """
        require_text("--results", results)
        stem = f"{started.strftime(TIME_FORMAT)}-{seed}"
        try:
            (results / scenario).mkdir(parents=True, exist_ok=True)
            run = cls(_make_unique(results / scenario, stem))
            run.figures.mkdir()
            run.logs.mkdir()
        except OSError as error:
            expected = f"a directory to write to ({error.strerror})"
            raise InputError.of("--results", str(results), expected) from error
        return run

    @property
    def name(self) -> str:
        """`<scenario>/<time>-<seed>`."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def figures(self) -> Path:
        return self.path / FIGURES

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    @property
    def finished(self) -> bool:
        """Whether the run was carried through to its summary."""
        return (self.path / SUMMARY).is_file()

    @property
    def complete(self) -> bool:
        """Whether the run's records are whole, so that they can be analysed (again)."""
        if self.finished or not (self.path / RUN).is_file():
            return self.finished
        tables = (self.path / table.file for table in TABLES if table not in OF_SOME_RUNS)
        return (self.path / RAW).is_dir() or all(table.is_file() for table in tables)

    def remove(self) -> None:
        """Remove the directory, and its scenario's if no run is left in it."""
        with suppress(FileNotFoundError):  # the user has removed it
            shutil.rmtree(self.path)
        scenario = self.path.parent
        latest = scenario / LATEST
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
            if (newest := newest_run(scenario)) is not None:
                newest.make_latest()
        if scenario.is_dir() and not any(scenario.iterdir()):
            scenario.rmdir()

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the run as a whole or not at all; return its path."""
        return write_file(self.path / name, content)

    def make_latest(self) -> None:
        """Point `latest` at it, where the file system has links: it is only for people."""
        link = self.path.parent / LATEST
        temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
        with suppress(OSError):
            temporary.symlink_to(self.path.name)
            try:
                temporary.replace(link)
            except OSError:
                temporary.unlink()


@contextmanager
def making_run(results: Path, scenario: str, seed: int) -> Iterator[RunDirectory]:
    """Make the directory of a new run for a block that makes the run.

    Within the block it is locked, and files are written as the one whose place it is
    (`acting_for`). `latest` points to it afterwards if its records are complete.

    Raises:
        InputError: `results` cannot be written to.
    """
    with acting_for(results):
        run = RunDirectory.create(results, scenario, seed, datetime.now().astimezone())
        with locked(run.path):
            try:
                yield run
            finally:
                if run.complete:
                    run.make_latest()


def require_text(where: str, path: Path) -> None:
    """Check that a path can be written into files and shown: that its bytes are UTF-8.

    Raises:
        InputError: they are not.
    """
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        found = os.fsencode(path).decode(errors="backslashreplace")
        expected = "a path in UTF-8, in a directory whose path is"
        raise InputError.of(where, found, expected, "rename it, or choose another") from None
    except FileNotFoundError:
        expected = "a working directory that exists"
        raise InputError.of(where, str(path), expected, "cd to another one") from None


def runs(results: Path) -> tuple[RunDirectory, ...]:
    """Every run under a results directory, finished or not, oldest first; those of series, too."""
    found, level = list[Path](), [results]
    for _ in range(_LEVELS):
        inside = [path for above in level for path in above.glob("*") if _may_be_run(path)]
        found += [path for path in inside if _NAME.fullmatch(path.name)]
        level = [path for path in inside if not _NAME.fullmatch(path.name)]
    return tuple(RunDirectory(path) for path in sorted(found, key=_by_age))


def cleaning(run: Path) -> str:
    """The command that removes an unfinished run."""
    run, usual = run.absolute(), _USUAL.absolute()
    if run.is_relative_to(usual) and len(run.relative_to(usual).parts) <= _LEVELS:
        return "testbed clean"
    return f"testbed clean --results {shlex.quote(str(run.parent.parent))}"


def newest_run(
    scenario: Path, is_wanted: Callable[[RunDirectory], bool] = lambda run: run.complete
) -> RunDirectory | None:
    """The newest run in a scenario's directory of those that can be shown, if there is one."""
    directories = sorted(filter(_may_be_run, scenario.glob("*")), key=_by_age, reverse=True)
    return next(filter(is_wanted, map(RunDirectory, directories)), None)


def _has_begun(run: RunDirectory) -> bool:
    return (run.path / MANIFEST).is_file()


def _may_be_run(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".")


def _by_age(path: Path) -> tuple[list[int | str], Path]:
    """Sorts runs by the time in their names, then by seed and number."""
    words = re.split(r"([0-9]+)", path.name)
    return [int(word) if place % 2 else word for place, word in enumerate(words)], path


def find_run(given: Path) -> RunDirectory:
    """The run that a user means by a path: a run's directory, or a scenario's for its latest.

    Raises:
        InputError: it is no run directory.
    """
    if (given / RUN).is_file():
        return RunDirectory(given.resolve())
    if (newest := newest_run(given)) is not None:
        return RunDirectory(newest.path.resolve())
    expected = f"the directory of a run (it would hold {RUN})"
    raise InputError.of("RUN", str(given), expected, _run_meant_by(given))


_DEPTH = 3
"""How far below a directory of results a run is at most: series, case, run."""


def _run_meant_by(given: Path) -> str:
    """What a user may mean by a path that is no run."""
    itself = RunDirectory(given)
    broken = itself if _has_begun(itself) else newest_run(given, _has_begun)
    if broken is not None:
        if is_locked(broken.path):
            return f"{broken.path} is under way"
        return (
            f"{broken.path} broke off before all was recorded: {cleaning(broken.path)} removes it"
        )
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

    Without effect where the system, or the file system, has no such locks.
    """
    if not CAN_LOCK:
        yield
        return
    with _opened(directory) as descriptor:
        _lock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_if_free(directory: Path) -> Iterator[bool]:
    """Lock a directory for a block, unless another process has; yields whether it is locked.

    Where there are no such locks, or not this directory, it counts as locked.
    """
    if not CAN_LOCK or not directory.is_dir():
        yield True
        return
    with _opened(directory) as descriptor:
        yield _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) is not False


def is_locked(path: Path) -> bool:
    """Whether another process, such as a run in progress, has locked a directory or a file.

    False where the system has no such locks; True where the file system has none, as nobody can
    tell then that it is not in use.
    """
    if not CAN_LOCK:
        return False
    with _opened(path) as descriptor:
        return not _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a directory or file, to lock it; its lock ends when it is closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_WITHOUT_LOCKS = errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL


def _lock(descriptor: int, how: int) -> bool | None:
    """Lock an open directory or file, and return whether it was; None: there are no locks here."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return None
        raise
    return True


def new_directory(parent: Path, stem: str) -> Path:
    """Make a directory that no other command makes: `stem`, or `stem-2`, `stem-3`, ...

    Raises:
        InputError: the parent cannot be written to.
    """
    require_text("--results", parent)
    with acting_for(parent):
        try:
            parent.mkdir(parents=True, exist_ok=True)
            return _make_unique(parent, stem)
        except OSError as error:
            expected = f"a directory to write to ({error.strerror})"
            raise InputError.of("--results", str(parent), expected) from error


def _make_unique(parent: Path, stem: str) -> Path:
    for attempt in range(1, 1000):
        path = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise OSError(errno.EEXIST, "no free name for the run")
