"""Runs never overwrite one another, and their files are whole or not there."""

import errno
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.model.run_files.layout import RAW, RUN, SUMMARY
from testbed.results.records import OF_SOME_RUNS, TABLES
from testbed.results.run_directory import (
    CAN_LOCK,
    RunDirectory,
    find_run,
    is_locked,
    lock_if_free,
    making_run,
    runs,
)

STARTED = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the user's own clock names the run


def test_the_name_says_when_and_with_which_seed(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "results", "link-failure", 7, STARTED)
    assert run.path == tmp_path / "results" / "link-failure" / "20260102T030405-7"
    assert run.name == "link-failure/20260102T030405-7"
    assert run.figures.is_dir()
    assert run.logs.is_dir()


def test_runs_of_the_same_second_do_not_share_a_directory(tmp_path: Path) -> None:
    made = tuple(RunDirectory.create(tmp_path, "x", 1, STARTED) for _ in range(11))
    assert len({run.path for run in made}) == len(made)
    assert runs(tmp_path) == made


def test_a_run_is_finished_when_its_summary_is_written(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "x", 1, STARTED)
    assert not run.finished
    run.write(SUMMARY, "{}")
    assert run.finished


def test_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "x", 1, STARTED)
    run.write("a.txt", "a long first text")
    assert run.write("a.txt", b"short").read_bytes() == b"short"
    assert {path.name for path in run.path.iterdir()} == {"a.txt", "figures", "logs"}


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path, "x", 1, STARTED)
    run.write("a.txt", "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        run.write("a.txt", "new")
    assert (run.path / "a.txt").read_text() == "old"
    assert {path.name for path in run.path.iterdir()} == {"a.txt", "figures", "logs"}


def test_a_run_is_found_by_its_path_and_by_its_scenario(tmp_path: Path) -> None:
    for seed in (9, 10):
        newest = RunDirectory.create(tmp_path, "x", seed, STARTED)
        newest.write("run.json", "{}")
        (newest.path / RAW).mkdir()
    assert find_run(newest.path) == newest
    assert find_run(tmp_path / "x") == newest
    with pytest.raises(InputError, match=r"run\.json"):
        find_run(tmp_path)


def test_results_that_cannot_be_written_to_are_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a directory to write to"):
        RunDirectory.create(tmp_path / "file", "x", 1, STARTED)


def test_latest_leads_to_runs_that_can_be_shown(tmp_path: Path) -> None:
    with making_run(tmp_path, "x", 1) as first:
        first.write(RUN, "{}")
        (first.path / RAW).mkdir()
        assert not (tmp_path / "x" / "latest").exists()
    with suppress(KeyboardInterrupt), making_run(tmp_path, "x", 2) as second:
        second.write("manifest.json", "{}")
        raise KeyboardInterrupt
    assert (tmp_path / "x" / "latest").resolve() == first.path
    assert find_run(tmp_path / "x") == first


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_has_runs_without_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "symlink", refuse)
    for seed in (1, 2):
        with making_run(tmp_path, "x", seed) as run:
            run.write(SUMMARY, "{}")
            run.write(RUN, "{}")
    assert {path.name for path in (tmp_path / "x").iterdir()} == {
        run.path.name for run in runs(tmp_path)
    }
    assert find_run(tmp_path / "x") == run


@pytest.mark.skipif(not CAN_LOCK, reason="this system has no locks")
def test_a_file_system_without_locks_has_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell there that a run is not in progress."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with making_run(tmp_path, "x", 1) as run:
        pass
    assert is_locked(run.path)
    with lock_if_free(run.path) as is_free:
        assert is_free


def test_a_run_is_complete_with_raw_records_or_all_tables(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "x", 1, STARTED)
    assert not run.complete
    run.write(RUN, "{}")
    assert not run.complete
    (run.path / RAW).mkdir()
    assert run.complete
    (run.path / RAW).rmdir()
    for table in TABLES:
        assert not run.complete
        if table not in OF_SOME_RUNS:
            run.write(table.file, b"")
    assert run.complete


def test_a_path_that_is_no_text_is_an_input_error(tmp_path: Path) -> None:
    results = tmp_path / os.fsdecode(b"results-\xff")
    with pytest.raises(InputError, match=r"--results: found .*results-\\xff, expected .*UTF-8"):
        RunDirectory.create(results, "x", 1, STARTED)


def test_a_directory_that_is_no_run_gets_the_run_that_is_meant(tmp_path: Path) -> None:
    run = tmp_path / "first" / "series-1" / "a" / "run"
    run.mkdir(parents=True)
    (run / RUN).touch()
    for given, remedy in (
        ("first", f"it holds runs: the newest is {run}"),
        ("frist", f"did you mean {tmp_path / 'first'}?"),
        ("zz", "each run prints its directory"),
    ):
        with pytest.raises(InputError, match=re.escape(remedy)):
            find_run(tmp_path / given)
