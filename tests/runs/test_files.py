"""The files of a store, with a file system that is as particular as sftp's."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from testbed.model.run_files.layout import SUMMARY
from testbed.runs.cluster.files import StoreFiles
from tests.waiting import WATCHDOG_S

THREADS, OVERLAP_S = 3, 0.2


class OneThreadSystem(LocalFileSystem):  # type: ignore[misc]
    """A file system of which an instance stands one thread at a time.

    It gives others time to come while it is used.
    """

    protocol = "onethread"
    cachable = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.in_use, self.shared = threading.Lock(), threading.Event()

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        if not self.in_use.acquire(blocking=False):
            self.shared.set()
            raise OSError("two threads at a time")
        try:
            self.shared.wait(OVERLAP_S)
            super().pipe_file(path, value, **options)
        finally:
            self.in_use.release()


fsspec.register_implementation("onethread", OneThreadSystem, clobber=True)


def test_threads_use_a_store_in_turn(tmp_path: Path) -> None:
    """Both that share an object and those that have objects of their own for it."""
    store = f"onethread://{tmp_path}"
    one, other = StoreFiles(store), StoreFiles(store)
    with ThreadPoolExecutor(THREADS) as threads:
        written = [
            threads.submit(files.write, f"{number}.json", "x")
            for number, files in enumerate((one, one, other))
        ]
        for each in written:
            each.result(WATCHDOG_S)
    assert one.names("") == ["0.json", "1.json", "2.json"]


class OvertakenSystem(LocalFileSystem):  # type: ignore[misc]
    """A file system on which another machine is always the first to make a directory."""

    protocol = "overtaken"

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        assert exist_ok
        for directory in reversed((Path(path), *Path(path).parents)):
            if not directory.exists():
                directory.mkdir()
                raise OSError("Failure")


fsspec.register_implementation("overtaken", OvertakenSystem, clobber=True)


def test_workers_make_the_directories_of_a_store_at_the_same_time(tmp_path: Path) -> None:
    files = StoreFiles(f"overtaken://{tmp_path}/store")
    files.write("figures/scenarios/a.attempts/1.json", "x")
    (tmp_path / "run/logs").mkdir(parents=True)
    (tmp_path / "run/logs/one.log").write_text("y")
    (tmp_path / "run/summary.json").write_text("{}")
    assert files.keep_run(tmp_path / "run", "figures/a/1") == "figures/a/1"
    assert files.read("figures/a/1/logs/one.log") == "y"


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        StoreFiles(f"file://{tmp_path}/file").write("a/b.json", "x")


class BrokenSystem(LocalFileSystem):  # type: ignore[misc]
    """A file system that writes half of each summary, and raises an error then."""

    protocol = "broken"
    error: ClassVar[BaseException]

    def put_file(self, path: str, target: str, **options: Any) -> None:
        super().put_file(path, target, **options)
        self._break(target)

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        super().pipe_file(path, value, **options)
        self._break(path)

    def _break(self, path: str) -> None:
        if SUMMARY in path:
            os.truncate(path, 1)
            raise self.error


fsspec.register_implementation("broken", BrokenSystem, clobber=True)


@pytest.mark.parametrize(
    ("error", "left"), [(SystemExit("killed"), ["run.json"]), (OSError("no space"), [])]
)
def test_a_run_that_is_not_copied_to_its_end_is_not_finished_in_the_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    left: list[str],
) -> None:
    """What a worker leaves that is killed is no finished run; one that fails leaves nothing."""
    monkeypatch.setattr(BrokenSystem, "error", error, raising=False)
    files, run = StoreFiles(f"broken://{tmp_path}/store"), tmp_path / "run"
    run.mkdir()
    for name in ("run.json", SUMMARY):
        (run / name).write_text("{}")
    with pytest.raises(type(error)):
        files.keep_run(run, "figures/a/1")
    there = files.names("figures/a/1")
    assert SUMMARY not in there
    assert [name for name in there if not name.startswith(SUMMARY)] == left
