"""Runs never overwrite one another, and their files are whole or not there."""

import os
import re
from datetime import datetime
from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.model.run_files.layout import RUN, SUMMARY
from testbed.results.run_directory import RunDirectory, find_run, give_to_user, runs

STARTED = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the user's own clock names the run


def test_the_name_says_when_and_with_which_seed(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "results", "link-failure", 7, STARTED)
    assert run.path == tmp_path / "results" / "link-failure" / "20260102T030405-7"
    assert run.name == "link-failure/20260102T030405-7"
    assert run.figures.is_dir()
    assert run.logs.is_dir()


def test_runs_of_the_same_second_do_not_share_a_directory(tmp_path: Path) -> None:
    first, second, third = (RunDirectory.create(tmp_path, "x", 1, STARTED) for _ in range(3))
    assert len({first.path, second.path, third.path}) == 3
    assert (tmp_path / "x" / "latest").resolve() == third.path
    assert runs(tmp_path) == (first, second, third)


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
    RunDirectory.create(tmp_path, "x", 1, STARTED).write("run.json", "{}")
    newest = RunDirectory.create(tmp_path, "x", 2, STARTED)
    newest.write("run.json", "{}")
    assert find_run(newest.path) == newest
    assert find_run(tmp_path / "x") == newest
    with pytest.raises(InputError, match=r"run\.json"):
        find_run(tmp_path)


def test_results_that_cannot_be_written_to_are_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a directory to write to"):
        RunDirectory.create(tmp_path / "file", "x", 1, STARTED)


@pytest.mark.root
def test_files_belong_to_the_user_who_called_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "23456")
    run = RunDirectory.create(tmp_path / "results", "x", 1, STARTED)
    run.write("a.txt", "a")
    (run.logs / "b.log").write_text("b")
    run.give_to_user()
    made = [tmp_path / "results", *(tmp_path / "results").rglob("*")]
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in made} == {(12345, 23456)}
    assert tmp_path.stat().st_uid == os.getuid()


def test_without_sudo_nothing_changes_hands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    before = tmp_path.stat().st_uid
    give_to_user(tmp_path)
    assert tmp_path.stat().st_uid == before


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
