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

from testbed.model.errors import InputError
from testbed.studies.labs.grading.formats import to_gradescope, write_autograder
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.identity import (
    code_print,
    noting_copies,
    remark_on_users,
    remarks_on_known_code,
)
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.work import Work
from tests.commands import completed

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
    done = completed(["sh", "-c", moved])
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


LAB = "02-first-failure"


def _noted(*grades: Grade) -> list[Grade]:
    return noting_copies([Path(grade.file) for grade in grades], grades)


def _handed_in(file: str, student: str, time: str = "", **prints: str) -> Grade:
    named = {what.replace("_", " "): digest for what, digest in prints.items()}
    return Grade(file=file, lab=LAB, student=student, submitted=time, prints=named)


def test_a_student_who_hands_in_twice_has_one_submission_that_counts() -> None:
    """The last one: but not one that somebody made in this name, or that cannot be graded."""
    noted = _noted(
        _handed_in("1.zip", "ada", "2026-01-01"),
        _handed_in("2.zip", " Ada", "2026-01-02"),
        _handed_in("3.zip", "ada", "2026-01-03").model_copy(update={"right_key": False}),
        _handed_in("4.zip", "ada", "2026-01-04").model_copy(update={"error": "another version"}),
        _handed_in("eve.zip", "eve"),
        Grade(file="x.zip", error="no zip"),
    )
    assert [grade.superseded for grade in noted] == [True, False, True, True, False, False]
    assert "more than once, also 2.zip, 3.zip, 4.zip: 2.zip counts" in noted[0].remarks[0]
    assert noted[1].remarks[0].endswith("this one counts")
    assert noted[4].remarks == noted[5].remarks == ()


def test_copies_under_another_name_have_remarks() -> None:
    noted = _noted(
        _handed_in("ada.zip", "ada", all_files="1", text_of_explain="t", controller="c"),
        _handed_in("bob.zip", "bob", all_files="1", text_of_explain="t", controller="c"),
        _handed_in("eve.zip", "eve", all_files="2", text_of_explain="t"),
        _handed_in("joe.zip", "joe", all_files="3", text_of_explain="u", controller="c"),
        _handed_in("joe-again.zip", "joe", all_files="4", text_of_explain="u", controller="c"),
        _handed_in("zoe.zip", "zoe", all_files="5", text_of_explain="w"),
        Grade(file="x.zip", lab="03-one-path", student="max", prints={"text of explain": "t"}),
    )
    said = [" ".join(grade.remarks) for grade in noted]
    assert "has the same content as bob.zip" in said[0]
    assert "text of explain: as in eve.zip" in said[0]
    assert "text of explain: as in ada.zip, bob.zip: look whose work it is" in said[2]
    assert "controller: as in ada.zip, bob.zip" in said[3]
    assert "text" not in said[3]
    assert said[5:] == ["", ""]


CODE = '''
class Controller:
    """A text."""
    GAIN = 4

    def __init__(self, path):
        self.window = 1.5 * path.bdp_bytes  # all of it
'''


def test_code_is_the_same_whatever_its_names_and_remarks_are() -> None:
    renamed = CODE.replace("GAIN", "MORE").replace("A text.", "Mine.").replace("  # all of it", "")
    assert code_print(renamed.replace("\n    def", "\n\n\n    def")) == code_print(CODE)
    assert code_print(CODE.replace("1.5", "1.4")) != code_print(CODE)
    assert code_print("class (") != code_print("class )")


@pytest.mark.parametrize(
    ("lab", "file"),
    [("09-path-selector", "selector.py"), ("10-congestion-controller", "controller.py")],
)
def test_code_that_is_the_solution_is_known_without_the_solution(lab: str, file: str) -> None:
    """The wheel, with which Gradescope grades, has none."""
    directory = load_lab(LABS / lab)
    solution = (directory.path / "solution" / file).read_text()
    prints = {file: code_print(solution.replace("window", "w").replace("evs", "all_of_them"))}
    (remark,) = remarks_on_known_code(prints, directory)
    assert remark.startswith(f"{file} is the solution that comes with the testbed")
    assert not remarks_on_known_code({file: code_print(f"{solution}\nx = 1\n")}, directory)


def test_remarks_are_no_part_of_what_students_see() -> None:
    grade = Grade(file="x", lab="l", student="ada", remarks=("copied",))
    for graded in (grade, grade.model_copy(update={"error": "another version"})):
        result = json.loads(to_gradescope(graded))
        assert [test["visibility"] for test in result["tests"]] == ["hidden"]
        assert "copied" not in result["output"]
        assert result["stdout_visibility"] == "hidden"
