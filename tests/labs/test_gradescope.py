"""What Gradescope runs: one lab, one submission, and who handed it in."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from testbed.labs.grading.autograder import write_autograder
from testbed.labs.grading.formats import to_gradescope
from testbed.labs.grading.grades import Grade
from testbed.labs.grading.identity import noting_repeats, remark_on_users
from testbed.labs.grading.submission import submit
from testbed.labs.work import Work
from testbed.model.errors import InputError

pytestmark = pytest.mark.programs

COURSE_KEY = b"the key of a whole course"


def _archive(directory: Path, lab: str) -> Path:
    wheel = directory / "mrc_testbed-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    write_autograder(directory / "autograder.zip", lab, wheel, COURSE_KEY)
    return directory / "autograder.zip"


def test_the_archive_has_what_gradescope_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the file of a wheel"):
        write_autograder(tmp_path / "a.zip", "02-first-failure", tmp_path / "none.whl", None)
    with zipfile.ZipFile(_archive(tmp_path, "02-first-failure")) as archive:
        names = {"setup.sh", "run_autograder", "mrc_testbed-0.1.0-py3-none-any.whl", "course.key"}
        assert {*archive.namelist()} == names


def test_the_setup_wants_a_python_that_the_wheel_can_use(tmp_path: Path) -> None:
    """Whatever the image has: uv gets one if that is too old."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    place, log = tmp_path / "autograder", tmp_path / "log"
    programs = [tmp_path / name for name in ("bin/apt-get", "bin/python3")]
    programs += [place / "uv/bin" / name for name in ("pip", "uv")]
    for program in programs:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {program.name} "$@" >> {log}\n')
        program.chmod(0o755)
    with zipfile.ZipFile(_archive(tmp_path, "02-first-failure")) as archive:
        setup = archive.read("setup.sh").decode().replace("/autograder", str(place))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", setup], check=True, env={"PATH": path})
    asked = f"uv venv --quiet --python {project['requires-python']} {place / 'venv'}"
    assert asked in log.read_text().splitlines()


def _run_autograder(
    directory: Path, lab: str, files: dict[str, bytes], metadata: object = None
) -> dict[str, Any]:
    """What `run_autograder` writes about some files, with this checkout in place of the wheel."""
    place = directory / "autograder"
    for name in ("source", "submission", "venv/bin"):
        (place / name).mkdir(parents=True)
    with zipfile.ZipFile(_archive(directory, lab)) as archive:
        archive.extractall(place / "source")
    for name, content in files.items():
        (place / "submission" / name).write_bytes(content)
    if metadata is not None:
        (place / "submission_metadata.json").write_text(json.dumps(metadata))
    testbed = place / "venv/bin/testbed"
    testbed.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m testbed "$@"\n')
    testbed.chmod(0o755)
    script = (place / "source/run_autograder").read_text()
    moved = script.replace("/autograder", str(place))
    done = subprocess.run(["sh", "-c", moved], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((place / "results/results.json").read_text())
    return result


def test_a_submission_of_another_lab_is_not_graded(work: Work, tmp_path: Path) -> None:
    archive = submit(work, tmp_path)
    result = _run_autograder(tmp_path, "07-which-link", {archive.name: archive.read_bytes()})
    assert result["score"] == 0
    said = "found a submission of lab 02-first-failure, expected one of lab 07-which-link"
    assert said in result["output"]
    assert "remedy: hand in the file that testbed lab submit makes" in result["output"]
    assert "student ada" in result["output"]


def test_what_another_handed_in_has_a_remark_for_instructors(work: Work, tmp_path: Path) -> None:
    archive = submit(work, tmp_path)
    users = [{"name": "Bob Builder", "email": "bob@example.com", "id": 7}]
    content = {archive.name: archive.read_bytes()}
    result = _run_autograder(tmp_path, "07-which-link", content, {"users": users})
    (hidden,) = result["tests"]
    assert hidden["visibility"] == "hidden"
    assert "made by ada, handed in by Bob Builder bob@example.com" in hidden["output"]
    assert "Bob" not in result["output"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"answers.yaml": b"{}\n"}, "found submission with answers.yaml, expected files that"),
        ({"a.zip": b"x", "b.zip": b"y"}, "found 2 submissions (a.zip, b.zip), expected one"),
        ({}, "found submission with no files"),
    ],
)
def test_a_wrong_upload_says_what_to_hand_in(
    tmp_path: Path, files: dict[str, bytes], found: str
) -> None:
    result = _run_autograder(tmp_path, "02-first-failure", files)
    assert result["score"] == 0
    assert found in result["output"]
    assert "remedy: " in result["output"]


@pytest.mark.parametrize(
    "users",
    [
        [{"name": "ADA", "email": "x@example.com", "id": 1}],
        [{"name": "Ada Lovelace", "email": "Ada@Example.com", "id": 1}],
        [{"name": "Bob", "email": "bob@example.com"}, {"name": " ada "}],
        [{"name": None, "email": None, "id": None}, {"id": "ada"}],
        [],
        None,
    ],
)
def test_a_student_who_handed_in_the_own_work_has_no_remark(tmp_path: Path, users: object) -> None:
    file = tmp_path / "submission_metadata.json"
    file.write_text(json.dumps({"users": users}))
    assert remark_on_users("ada", file) == ""


def test_a_number_fits_and_no_part_of_a_name(tmp_path: Path) -> None:
    file = tmp_path / "submission_metadata.json"
    file.write_text(json.dumps({"users": [{"name": "Adam", "email": "adam@a.org", "id": 12}]}))
    assert remark_on_users("12", file) == ""
    assert "made by ada, handed in by Adam adam@a.org" in remark_on_users("ada", file)
    assert "names no student" in remark_on_users("", file)
    file.write_text("{")
    assert "submission_metadata.json cannot be read" in remark_on_users("ada", file)


def test_submissions_that_are_there_twice_have_remarks() -> None:
    lab = {"lab": "02-first-failure"}
    paths = [
        Path("ada/x.zip"),
        Path("bob/x.zip"),
        Path("later.zip"),
        Path("eve.zip"),
        Path("e.zip"),
    ]
    grades = [
        Grade(file="x.zip", student="ada", content="1", **lab),
        Grade(file="x.zip", student="ada", content="1", **lab),
        Grade(file="later.zip", student=" Ada", content="2", **lab),
        Grade(file="eve.zip", student="eve", content="3", **lab),
        Grade(file="e.zip", error="no zip"),
    ]
    noted = [" ".join(grade.private) for grade in noting_repeats(paths, grades)]
    assert "the same content as bob/x.zip" in noted[0]
    assert "more than once: also later.zip" in noted[0]
    assert "the same content as ada/x.zip" in noted[1]
    assert "more than once: also ada/x.zip, bob/x.zip" in noted[2]
    assert noted[3:] == ["", ""]


def test_private_remarks_are_no_part_of_what_students_see() -> None:
    result = json.loads(to_gradescope(Grade(file="x", lab="l", student="ada", private=("copied",))))
    assert [test["visibility"] for test in result["tests"]] == ["hidden"]
    assert "copied" not in result["output"]
