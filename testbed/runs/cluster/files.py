"""The files of a campaign's store, which is a directory or an fsspec address."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from uuid import uuid4

from testbed.model.errors import InputError, MachineError
from testbed.model.run_files.layout import SUMMARY
from testbed.results.scratch import scratch
from testbed.results.shortage import has_no_space, is_full, shortage

OPTION = "--store"

WORKERS, SLURM, KEYS = "workers", "slurm", ".tls-"
"""What the start of a cluster leaves in a campaign's directory: records of workers, the logs of
Slurm's jobs, and certificates in directories whose names begin like this."""

_OF_A_PROCESS = ("memory",)
"""File systems of fsspec that no other process sees."""


def require_store(store: str) -> None:
    """Check that a store can be used from here.

    Raises:
        InputError: it is no address of a file system that fsspec has here.
        MachineError: it cannot be reached.
    """
    protocol = store.partition("://")[0] if is_address(store) else ""
    expected = "a directory, or an fsspec address such as sftp://HOST/PATH"
    if protocol in _OF_A_PROCESS:
        raise InputError.of(OPTION, store, expected, "each process has a memory of its own")
    try:
        StoreFiles(store).names("")
    except (ValueError, ImportError) as error:
        raise InputError.of(OPTION, store, expected, str(error)) from error
    except Exception as error:  # each file system of fsspec has errors of its own
        what = f"{OPTION} {store}: {type(error).__name__}: {error}"
        remedy = "this machine and all workers have to reach it, without a question"
        raise MachineError(what, remedy) from error


def is_of_start(name: str) -> bool:
    """Whether the start of a cluster makes a file of this name in a campaign's directory.

    Such a file is there before any run, even if the start fails.
    """
    return name in {WORKERS, SLURM} or name.startswith(KEYS)


def is_address(store: str) -> bool:
    """Whether a store is an fsspec address, such as `sftp://host/path`; else it is a directory."""
    return "://" in store


def shortage_for(error: Exception, store: str) -> MachineError | None:
    """What was short when a run was made here and left in a store; None if nothing was."""
    if not is_address(store):
        return shortage(error, Path(store))
    here = Path(gettempdir())
    if has_no_space(error) and not is_full(here):
        remedy = "free some, or write elsewhere: --store ADDRESS"
        return MachineError(f"no space is left in the store {store}", remedy)
    return shortage(error, here, "TMPDIR=DIR, for this worker")


class _OneAtATime:
    """Calls a file system of fsspec from one thread at a time: that of sftp is not thread-safe."""

    def __init__(self, system: Any) -> None:
        self._system, self._lock = system, threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._system, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return method(*args, **kwargs)

        return call


class StoreFiles:
    """Reads and writes files of a store, named by their paths relative to it.

    Any thread may do so. Each instance has a connection of its own to the store.
    """

    def __init__(self, store: str) -> None:
        """Use a store.

        Args:
            store: a directory, or an fsspec address.

        Raises:
            ValueError, ImportError: the address names no file system that fsspec has here.
            OSError: it cannot be reached.
        """
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        self._local = not is_address(store)
        if self._local:
            self._system, self._root = LocalFileSystem(), str(Path(store).absolute())
        else:
            system, self._root = url_to_fs(store, skip_instance_cache=True)
            self._system = _OneAtATime(system)

    def write(self, path: str, content: str) -> None:
        """Write a file as a whole."""
        place, temporary = self._place(path), self._place(f"{path}.{uuid4().hex}")
        self._make_directory(str(PurePosixPath(place).parent))
        self._system.pipe_file(temporary, content.encode())
        self._system.mv(temporary, place)

    def read(self, path: str) -> str:
        """The content of a file."""
        self._system.invalidate_cache()
        return bytes(self._system.cat_file(self._place(path))).decode()

    def names(self, directory: str) -> list[str]:
        """The names of what is in a directory, in order; none if there is no such directory."""
        self._system.invalidate_cache()
        try:
            found = self._system.ls(self._place(directory), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(PurePosixPath(path).name for path in found)

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A directory to make runs in during a block: the store itself, or a temporary one."""
        if self._local:
            yield Path(self._root)
            return
        with scratch("testbed-runs-") as directory:
            yield directory

    def keep(self, file: Path, path: str) -> None:
        """Copy a file into the store, if the store is not the directory that it was made in."""
        if not self._local and file.is_file():
            self.write(path, file.read_text(encoding="utf-8"))

    def keep_run(self, run: Path, path: str) -> str:
        """Copy a run into the store; returns its path there, which is new.

        Its summary comes last and as a whole, so a run that is finished there is whole. What cannot
        be copied leaves nothing.
        """
        if self._local:
            return path
        unique, number = path, 1
        while self.names(unique):
            number += 1
            unique = f"{path}-{number}"
        place = self._place(unique)
        self._make_directory(place)
        try:
            for file in sorted(run.rglob("*")):
                target = f"{place}/{file.relative_to(run).as_posix()}"
                if file.is_dir():
                    self._make_directory(target)
                elif file != run / SUMMARY:
                    self._system.put_file(str(file), target)
            self.write(f"{unique}/{SUMMARY}", (run / SUMMARY).read_text(encoding="utf-8"))
        except Exception:
            with suppress(Exception):  # the store may be gone
                self._system.rm(place, recursive=True)
            raise
        return unique

    def fetch(self, path: str, directory: Path) -> None:
        """Copy a file or a run from the store below a directory, as a whole or not at all.

        A file takes the place of one that is there; a run that is there stays.
        """
        if (directory / path).is_dir():
            return
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetched-", dir=place.parent) as temporary:
            copy = Path(temporary) / place.name
            self._system.get(self._place(path), str(copy), recursive=True)
            copy.replace(place)

    def _make_directory(self, place: str) -> None:
        """Make a directory with its parents, while other machines may make them as well.

        On some file systems, such as sftp's, that fails if another machine makes one of them just
        after it was not found. So it is tried once for each of them.
        """
        for left in reversed(range(len(PurePosixPath(place).parts))):
            try:
                self._system.makedirs(place, exist_ok=True)
                break
            except OSError:
                if not left:
                    raise

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}"
