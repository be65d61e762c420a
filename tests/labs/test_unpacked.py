"""Submissions that are handed over as directories, as Gradescope does: links are refused."""

import json
import os
import shutil
from pathlib import Path

import pytest

from testbed.studies.labs.grading.course import Course, grade_all
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.submission import MAX_ENTRIES, MAX_LEVELS, submit
from testbed.studies.labs.library import LABS
from testbed.studies.labs.work import Work

SECRET = "0123456789abcdef" * 4


@pytest.fixture
def unpacked(work: Work, tmp_path: Path) -> Path:
    """Ada's submission as a directory, beside a course key."""
    (tmp_path / "course.key").write_text(f"{SECRET}\n")
    shutil.unpack_archive(submit(work, tmp_path), tmp_path / "submission")
    return tmp_path / "submission"


@pytest.mark.parametrize("name", ["answers.yaml", "journal.jsonl", "submission.json", "files/x.py"])
def test_a_link_is_refused_and_what_it_leads_to_is_not_told(
    unpacked: Path, tmp_path: Path, name: str
) -> None:
    link = unpacked / name
    link.unlink(missing_ok=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("../" * len(Path(name).parts) + "course.key")
    assert link.read_text() == f"{SECRET}\n"
    graded = grade(unpacked, LABS, None, tmp_path)
    assert SECRET[:8] not in graded.model_dump_json()
    assert f"found {name}, a link, expected a plain file" in graded.error
    assert "remedy: testbed lab submit" in graded.error


@pytest.mark.parametrize("name", ["answers.yaml", "journal.jsonl", "runs/pipe"])
def test_a_pipe_is_refused_and_not_waited_for(unpacked: Path, tmp_path: Path, name: str) -> None:
    pipe = unpacked / name
    pipe.unlink(missing_ok=True)
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    graded = grade(unpacked, LABS, None, tmp_path)
    assert f"found {name}, a pipe or a device, expected a plain file" in graded.error


@pytest.mark.parametrize("size", [17 << 20, 5 << 30])
def test_a_file_that_is_too_large_is_refused_unread(
    unpacked: Path, tmp_path: Path, size: int
) -> None:
    """It is as long as that, and takes no place on the disk."""
    with (unpacked / "journal.jsonl").open("r+b") as journal:
        journal.truncate(size)
    course = Course(None, cache=tmp_path / "kept")
    (graded,) = grade_all([unpacked], course, lambda *_: None)
    assert "found journal.jsonl, with which it has" in graded.error
    assert "expected 16 MiB at most in a file, 64 in all" in graded.error


def test_many_files_are_refused(unpacked: Path, tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES * MAX_LEVELS + 1):
        (unpacked / str(number)).mkdir()
    assert "found more than 5000 files" in grade(unpacked, LABS, None, tmp_path).error


def test_names_of_files_count_in_a_kept_grade(unpacked: Path, tmp_path: Path) -> None:
    """Another order of the same content is another submission."""
    course = Course(None, cache=tmp_path / "kept")
    for number in (1, 2):
        grade_all([unpacked], course, lambda *_: None)
        assert len([*(tmp_path / "kept").iterdir()]) == number
        (unpacked / "submission.json").rename(unpacked / "moved")
        shutil.copy(unpacked / "moved", unpacked / "submission.json")


def test_a_name_that_is_no_text_is_graded(unpacked: Path, tmp_path: Path) -> None:
    (unpacked / os.fsdecode(b"\xff.md")).touch()
    assert not grade(unpacked, LABS, None, tmp_path).error


@pytest.mark.parametrize(("name", "remarks"), [(" ADA", 0), ("bob", 1)])
def test_a_key_of_another_name_is_noticed_without_the_course_key(
    unpacked: Path, tmp_path: Path, name: str, remarks: int
) -> None:
    file = unpacked / "submission.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"student": name}))
    graded = grade(unpacked, LABS, None, tmp_path)
    assert not graded.error
    told = [remark for remark in graded.remarks if "a key that is not that of bob" in remark]
    assert (len(told), graded.right_key) == (remarks, not remarks)


def test_a_linked_directory_is_refused(unpacked: Path, tmp_path: Path) -> None:
    (unpacked / "runs").symlink_to(tmp_path)
    graded = grade(unpacked, LABS, None, tmp_path)
    assert "found runs, a link, expected a plain file" in graded.error


def test_a_cache_of_grades_follows_no_link(unpacked: Path, tmp_path: Path) -> None:
    (unpacked / "large").symlink_to("/proc/self/mem")  # nobody can read its beginning
    course = Course(None, cache=tmp_path / "kept")
    (graded,) = grade_all([unpacked], course, lambda *_: None)
    assert "found large, a link" in graded.error
