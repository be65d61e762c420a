"""Submissions that are made to end the grader have a reason instead of a grade."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus, InputError
from testbed.studies.labs.grading.course import Course, grade_all
from testbed.studies.labs.grading.formats import to_csv, to_gradescope
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.grades import MAX_TEXT, Grade, TaskGrade
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import Work, start
from tests.cli.conftest import Call, call

__all__ = ["call"]


def _deep_journal(archive: zipfile.ZipFile) -> None:
    archive.writestr("journal.jsonl", "[" * 200_000 + "\n")


def _directory_and_file(archive: zipfile.ZipFile) -> None:
    archive.writestr("files", "x")
    archive.writestr("files/selector.py", "x")


def _file_and_directory(archive: zipfile.ZipFile) -> None:
    archive.writestr("files/selector.py", "x")
    archive.writestr("files", "x")


def _long_name(archive: zipfile.ZipFile) -> None:
    archive.writestr("files/" + "x" * 300, "x")


def _another_compression(archive: zipfile.ZipFile) -> None:
    archive.writestr("files/x", "x" * 1000, zipfile.ZIP_LZMA)


def _endless_name(archive: zipfile.ZipFile) -> None:
    archive.writestr("../" + "x" * 60_000, "x")


def _deep_path(archive: zipfile.ZipFile) -> None:
    archive.writestr("files/" + "a/" * 900 + "x", "x")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_deep_journal, "found a line that is no entry"),
        (_directory_and_file, "found files: "),
        (_file_and_directory, "found files: "),
        (_long_name, "file name too long"),
        (_another_compression, "compressed by method 14"),
        (_endless_name, "a path within the submission"),
        (_deep_path, "a path of 10 parts at most"),
    ],
)
def test_it_has_a_reason(
    work: Work, tmp_path: Path, change: Callable[[zipfile.ZipFile], None], reason: str
) -> None:
    scratch = tmp_path / "of-the-grader"
    with zipfile.ZipFile(submit(work, tmp_path)) as whole:
        files = {name: whole.read(name) for name in whole.namelist()}
    if change is _deep_journal:
        del files["journal.jsonl"]
    hostile = tmp_path / "hostile.zip"
    with zipfile.ZipFile(hostile, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        change(archive)
    graded = grade(hostile, LABS, None, scratch)
    assert reason in graded.error
    assert scratch.name not in graded.error
    assert len(graded.error) < 1000


def test_a_journal_tells_the_instructor_little(work: Work, tmp_path: Path) -> None:
    said = "X\n=cmd|' /C calc'!A0" + "y" * 100_000
    handed_in = tmp_path / "handed-in"
    shutil.unpack_archive(submit(work, tmp_path), handed_in)
    journal = handed_in / "journal.jsonl"
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    entries[0]["content"]["student"] = said
    hint = {"task": "awaited", "number": 1}
    entries.append({"kind": "hint", "time": "9998-01-01T00:00:00.000+00:00", "content": hint})
    journal.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    scratch = tmp_path / "of-the-grader"
    scratch.mkdir()
    graded = grade(handed_in, LABS, None, scratch)
    begun, ends = (remark for remark in graded.remarks if "begun" in remark or "journal" in remark)
    assert begun.startswith("begun by X =cmd")
    assert len(begun) < 200
    assert ends == "the journal ends at 9998-01-01T00:00:00.000+00:00, which is to come"


def test_whatever_a_grade_quotes_is_bounded_and_in_lists_on_one_line() -> None:
    said = "X\n=1" + "\x1b" * 100_000
    task = TaskGrade(task="a", title="b", points=0, max_points=1, status="lost", reason=said)
    graded = Grade(file=said, student=said, remarks=(said,), tasks=(task,), error=said)
    lines = (graded.file, graded.student, *graded.remarks, graded.tasks[0].reason)
    assert not any("\n" in line for line in lines)
    assert max(map(len, (*lines, graded.error))) <= MAX_TEXT + 3
    again = Grade.model_validate_json(graded.model_dump_json())
    assert again == graded


def test_long_answers_are_refused_unread(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML of 1 MB took the grader 40 s of CPU."""

    def unread(*_: object, **__: object) -> None:
        pytest.fail("it was read")

    work.answers.write_text("awaited: 7\n" * 50_000, encoding="utf-8")
    monkeypatch.setattr("testbed.studies.labs.answers.read_document", unread)
    with pytest.raises(InputError, match="found 550000 bytes, expected 200000 bytes at most"):
        work.read_answers()


def test_a_large_archive_and_a_pipe_are_refused_unread(tmp_path: Path) -> None:
    large, pipe = tmp_path / "large.zip", tmp_path / "pipe.zip"
    with large.open("wb") as file:
        file.truncate(5 << 30)
    os.mkfifo(pipe)
    assert (
        "5368709120 bytes, expected a submission of 64 MiB"
        in grade(large, LABS, None, tmp_path).error
    )
    assert "found no plain file" in grade(pipe, LABS, None, tmp_path).error


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_every_name_fits_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """A hundred letters may be 300 bytes, or none that the file system has."""
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: encoding)
    name = "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 100
    work = start(load_lab(LABS / "02-first-failure"), tmp_path, name, student_key(b"x", name))
    made = submit(work, tmp_path).name.removeprefix("02-first-failure-")
    assert made == {"utf-8": f"{name[:33]}.zip", "latin-1": "_.zip"}[encoding]


def test_a_full_disk_is_not_the_students_fault(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = submit(work, tmp_path)
    monkeypatch.setattr("testbed.studies.labs.grading.grade.is_full", lambda _: True)
    assert not grade(archive, LABS, None, tmp_path / "fine").error
    (tmp_path / "full").mkdir()
    (tmp_path / "full/submission").touch()  # a file in the place of the directory
    graded = grade(archive, LABS, None, tmp_path / "full")
    assert graded.error.startswith("no space is left on the file system of")
    for said in (to_csv([graded]), to_gradescope(graded)):
        assert "Not graded, for a reason of the machine: grade it again." in said
        assert "handed in again" not in said


def test_grades_that_cannot_be_kept_are_not_lost(
    work: Work, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission is never to be handed in again for want of a place for its grade."""
    archive = submit(work, tmp_path)
    refused = call("lab", "grade", str(archive), "--cache", str(archive))
    assert refused.status == ExitStatus.WRONG_INPUT
    assert f"--cache: found {archive}, expected a directory to write to" in refused.err
    missing = archive.with_name("none") / "grades.csv"
    refused = call("lab", "grade", str(archive), "--csv", str(missing))
    assert f"--csv: found {missing}, expected a file to write" in refused.err
    assert "grading" not in refused.err  # at once
    full = call("lab", "grade", str(archive), "--csv", "/dev/full")
    assert full.status == ExitStatus.MACHINE_CANNOT
    assert archive.name in full.out
    warned: list[str] = []
    course = Course(None, cache=archive / "kept")
    monkeypatch.setattr(
        "testbed.studies.labs.grading.course._grade_apart", lambda path, _: Grade(file=path.name)
    )
    (graded,) = grade_all([archive], course, lambda *_: None, None, warned.append)
    assert not graded.error
    assert f"the grade of {archive.name} is not kept" in warned[0]


@pytest.mark.parametrize("place", range(5, 60, 6))
def test_a_damaged_stream_has_a_reason(work: Work, tmp_path: Path, place: int) -> None:
    archive = submit(work, tmp_path)
    with zipfile.ZipFile(archive) as whole:
        info = whole.getinfo("answers.yaml")
    raw = bytearray(archive.read_bytes())
    start = info.header_offset + 30 + len(info.filename) + place
    raw[start : start + 4] = b"\xff" * 4
    archive.write_bytes(raw)
    scratch = tmp_path / "of-the-grader"
    graded = grade(archive, LABS, None, scratch)
    assert "a submission" in graded.error
    assert scratch.name not in graded.error
    shutil.rmtree(scratch)
