"""Submissions that are made to end the grader have a reason instead of a grade."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS
from testbed.studies.labs.work import Work


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


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_deep_journal, "found a line that is no entry"),
        (_directory_and_file, "found files: "),
        (_file_and_directory, "found files: "),
        (_long_name, "file name too long"),
        (_another_compression, "compressed by method 14"),
        (_endless_name, "a path within the submission"),
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
