"""Grades of submissions as they come: perfect, wrong, edited, broken, hostile."""

import csv
import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import patch

import pytest

from testbed.model.errors import InputError
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.runs.cluster import calls
from testbed.runs.making import simulate_into
from testbed.runs.places import pool_at
from testbed.studies.labs.grading.course import Course, grade_all, submissions_in
from testbed.studies.labs.grading.formats import (
    NBGRADER_COLUMNS,
    OWN_COLUMNS,
    to_csv,
    to_gradescope,
)
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.grades import Grade, TaskGrade
from testbed.studies.labs.grading.identity import noting_copies
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS
from tests.runs.programs import program, scheduler, worker_options

from .prepared import CHANGES, CODE, COURSE_KEY, FORGED, FULL, changed, solved

pytestmark = pytest.mark.long


OF_A_COURSE = (
    *("perfect", "the file of another student", "edited records", "a YAML bomb", "no run"),
    *("another version", "a path out of it", "2 GB of zeros"),
)
"""What one course has: graded, seen as copies, refused, and too much for a process."""


def _ignore(*_: object) -> None:
    pass


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ada's submission, in which everything is right."""
    directory = tmp_path_factory.mktemp("ada")
    return submit(solved(directory, "ada"), directory)


@pytest.fixture(scope="module")
def simulated_once() -> Iterator[None]:
    """Have the grader in this process simulate each scenario once, and copy its records later."""
    made: dict[str, tuple[dict[str, bytes], Summary]] = {}

    def simulate(directory: Path, scenario: Scenario) -> Summary:
        key = scenario.model_dump_json()
        if key in made:
            for name, content in made[key][0].items():
                (directory / name).write_bytes(content)
        else:
            summary = simulate_into(directory, scenario)
            files = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
            made[key] = files, summary
        return made[key][1]

    with patch("testbed.studies.labs.grading.grade.simulate_into", simulate):
        yield


def _as_handed_in(perfect: Path, directory: Path, names: Iterable[str]) -> dict[str, Path]:
    """Ada's submission, changed in each of these ways, in a new directory."""
    directory.mkdir()
    return {
        name: changed(perfect, directory, name.replace(" ", "-"), CHANGES[name][0])
        for name in names
    }


def _assert_given(name: str, given: Grade) -> None:
    """Assert the points of a changed submission, and what is said of it."""
    _, points, reason = CHANGES[name]
    said = " ".join([given.error, *given.remarks, *(task.reason for task in given.tasks)])
    assert reason in said, (name, said)
    assert bool(given.error) == (points == -2), (name, given.error)
    if points >= 0:
        assert given.points == points, (name, said)


@pytest.mark.simulated
@pytest.mark.usefixtures("simulated_once")
def test_whatever_is_changed_in_a_submission_it_is_graded(perfect: Path, tmp_path: Path) -> None:
    files = _as_handed_in(perfect, tmp_path / "handed in", CHANGES)
    given = []
    for number, file in enumerate(files.values()):
        given.append(grade(file, LABS, COURSE_KEY, _new(tmp_path / str(number))))
    for name, each in zip(files, noting_copies([*files.values()], given), strict=True):
        _assert_given(name, each)


@pytest.mark.simulated
def test_a_course_of_submissions(perfect: Path, tmp_path: Path) -> None:
    """Each is graded in a process of its own, whose limits hold, and its grade is kept."""
    handed_in = tmp_path / "handed in"
    files = _as_handed_in(perfect, handed_in, OF_A_COURSE)
    (handed_in / "no-archive.zip").write_bytes(b"not a zip")
    (handed_in / "empty.zip").write_bytes(b"")
    (handed_in / "cut.zip").write_bytes(perfect.read_bytes()[:-500])
    paths = submissions_in([handed_in])
    assert len(paths) == len(OF_A_COURSE) + 3
    course = Course(COURSE_KEY, cache=tmp_path / "kept", jobs=2)
    grades = dict(zip(paths, grade_all(paths, course, _ignore), strict=True))
    for name, file in files.items():
        _assert_given(name, grades[file])
    for name in ("no-archive.zip", "empty.zip", "cut.zip"):
        assert grades[handed_in / name].error
    assert not (tmp_path / "evil.txt").exists()
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    again = grade_all(paths, course, _ignore)
    assert [_without_cpu(given) for given in again] == [*map(_without_cpu, grades.values())]
    assert kept == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _without_cpu(given: Grade) -> Grade:
    """What is rejected is graded anew each time, which takes another time."""
    return given.model_copy(update={"cpu_s": 0.0})


@pytest.mark.simulated
def test_workers_of_a_cluster_give_the_same_grades(perfect: Path, tmp_path: Path) -> None:
    without = changed(perfect, tmp_path, "no-run", CHANGES["no run"][0])
    broken = tmp_path / "no-archive.zip"
    broken.write_bytes(b"not a zip")
    paths, course = [perfect, without, broken], Course(COURSE_KEY, cache=tmp_path / "kept")
    here = grade_all(paths, Course(COURSE_KEY), _ignore)
    with pool_at("local", "grading", tmp_path) as pool:
        there = grade_all(paths, course, _ignore, pool)
    assert [*map(_without_cpu, there)] == [*map(_without_cpu, here)]
    assert len([*(tmp_path / "kept").iterdir()]) == 2


@pytest.mark.simulated
def test_grading_ends_when_the_last_worker_is_killed(
    perfect: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is graded until then is kept; the others say why they are not."""
    paths = [Path(shutil.copy(perfect, tmp_path / f"{number}.zip")) for number in range(4)]
    for path in paths:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = path.name.encode()  # so that no grade is that of another
    course = Course(COURSE_KEY, cache=tmp_path / "kept")
    with (
        scheduler() as (_, address),
        program(*worker_options(address, threads=1)) as worker,
        pool_at(f"dask:{address}", "grading", tmp_path) as pool,
    ):
        monkeypatch.setattr(calls, "PATIENCE_S", 1.0)
        grades = grade_all(paths, course, lambda _what, _done: worker.kill(), pool)
    graded = [given for given in grades if not given.error]
    assert graded
    assert all(given.points == FULL for given in graded)
    assert len([*(tmp_path / "kept").glob("*.json")]) >= len(graded)
    errors = {given.error for given in grades if given.error}
    assert errors == {"grade: the cluster has no worker (waited 1 s for one)"}


def test_a_submission_that_cannot_be_read_ends_no_other_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grade_one(path: Path, *_: object) -> tuple[Grade, None]:
        if path.name == "locked.zip":
            raise PermissionError(13, "Permission denied", str(path))
        return Grade(file=path.name), None

    monkeypatch.setattr("testbed.studies.labs.grading.course._grade", grade_one)
    paths = [tmp_path / "locked.zip", tmp_path / "fine.zip"]
    locked, fine = grade_all(paths, Course(COURSE_KEY), _ignore)
    assert "Permission denied" in locked.error
    assert not fine.error


def test_a_letter_outside_the_encoding_of_the_system_loses_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    name = "\N{LATIN CAPITAL LETTER L WITH STROKE}ukasz.zip"
    (tmp_path / name).write_bytes(b"not a zip")
    (graded,) = grade_all([tmp_path / name], Course(None), _ignore)
    assert graded.file == name
    assert "expected a submission" in graded.error


def test_two_equal_files_are_graded_and_kept_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2, timeout=60)

    def grade_both_at_a_time(path: Path, _: Course) -> Grade:
        both.wait()
        return Grade(file=path.name)

    monkeypatch.setattr("testbed.studies.labs.grading.course._grade_apart", grade_both_at_a_time)
    paths = [tmp_path / "ada.zip", tmp_path / "bob.zip"]
    for path in paths:
        path.write_bytes(b"the same")
    grades = grade_all(paths, Course(COURSE_KEY, cache=tmp_path / "kept", jobs=2), _ignore)
    assert [given.error for given in grades] == ["", ""]
    assert len([*(tmp_path / "kept").iterdir()]) == 1


def test_a_worker_that_aborts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, usual = tmp_path / "tmp", subprocess.run
    kept.mkdir()
    script = (
        "import json, os, pathlib, sys\n"
        "(pathlib.Path(json.load(sys.stdin)['scratch']) / 'file').touch()\n"
        "os.abort()\n"
    )

    def abort(command: list[str], **options: Any) -> object:
        return usual([command[0], "-c", script], **options)

    monkeypatch.setattr("tempfile.tempdir", str(kept))
    monkeypatch.setattr("subprocess.run", abort)
    (tmp_path / "x.zip").touch()
    (graded,) = grade_all([tmp_path / "x.zip"], Course(None), _ignore)
    assert graded.error.startswith("grading ended with -6")
    assert not [*kept.iterdir()]


@pytest.mark.simulated
@pytest.mark.usefixtures("simulated_once")
def test_without_the_course_key_the_submission_is_believed(perfect: Path, tmp_path: Path) -> None:
    assert grade(perfect, LABS, None, tmp_path).points == FULL


@pytest.mark.simulated
@pytest.mark.usefixtures("simulated_once")
def test_a_directory_with_an_unpacked_submission_is_graded(perfect: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "submission"
    shutil.unpack_archive(perfect, unpacked)
    assert submissions_in([tmp_path]) == [unpacked]
    assert grade(unpacked, LABS, COURSE_KEY, _new(tmp_path / "scratch")).points == FULL


def test_nothing_to_grade_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="testbed lab submit"):
        submissions_in([tmp_path])
    with pytest.raises(InputError, match="a file, or a directory"):
        submissions_in([tmp_path / "none"])


GRADE = Grade(
    file="02-first-failure-ada.zip",
    lab="02-first-failure",
    student="=ada",
    submitted="2026-11-24T03:26:05.000+00:00",
    tasks=(
        TaskGrade(task="a", title="A", points=2, max_points=2, status="earned"),
        TaskGrade(task="b", title="B", points=0, max_points=3, status="lost", reason="wrong"),
        TaskGrade(task="c", title="C", points=1, max_points=1, status="earned"),
    ),
    remarks=("made by another version",),
    confined=("limits", "the user nobody"),
)


def test_the_documents_say_how_many_prepared_submissions_there_are() -> None:
    number = len(CHANGES) + len(CODE) + len(FORGED) + 3
    text = (Path(__file__).parents[2] / "docs/labs.md").read_text()
    assert f"makes {number} submissions" in text


def test_csv_has_the_columns_of_nbgrader() -> None:
    rows = [*csv.DictReader(io.StringIO(to_csv([GRADE])))]
    assert tuple(rows[0]) == (*NBGRADER_COLUMNS, *OWN_COLUMNS)
    assert (rows[0]["counts"], rows[0]["remarks"]) == ("yes", "made by another version")
    assert (rows[0]["score"], rows[0]["max_score"]) == ("3", "6")
    assert rows[0]["student_id"] == "'=ada"  # no formula
    forged = GRADE.model_copy(update={"submitted": "=HYPERLINK(1)", "lab": " @x", "file": "+1"})
    failed = Grade(file="-1", submitted="\t=1", error="no zip")
    for row in csv.reader(io.StringIO(to_csv([forged, failed]))):
        assert not [cell for cell in row if cell.strip().startswith(("=", "+", "-", "@"))]


def test_what_could_not_be_graded_has_no_score_in_the_csv() -> None:
    """A 0 would be a grade; without the name of the file nobody would know whose it is."""
    grades = [Grade(file="eve.zip", error="no submission")]
    grades.append(Grade(file="x.zip", lab="02-first-failure", student="bob", error="too slow"))
    unread, slow = csv.DictReader(io.StringIO(to_csv(grades)))
    assert (unread["assignment"], unread["student_id"]) == ("", "eve.zip")
    assert (slow["assignment"], slow["student_id"]) == ("02-first-failure", "bob")
    for row in (unread, slow):
        assert (row["raw_score"], row["score"], row["max_score"]) == ("", "", "")
        assert row["counts"] == "no"
        assert row["remarks"].startswith("Not graded, to be handed in again. | ")


def test_gradescope_gets_a_result_for_each_task() -> None:
    result: dict[str, Any] = json.loads(to_gradescope(GRADE))
    assert result["score"] == 3
    visible = [test for test in result["tests"] if test["visibility"] == "visible"]
    assert [test["status"] for test in visible] == ["passed", "failed", "passed"]
    (hidden,) = [test for test in result["tests"] if test["visibility"] == "hidden"]
    assert hidden["output"] == "made by another version"
    assert result["stdout_visibility"] == "hidden"
    assert result["tests"][1]["output"] == "wrong"
    assert result["output"].splitlines() == [
        "Lab 02-first-failure, student =ada.",
        "Your code ran with limits; the user nobody.",
    ]
    failed = json.loads(to_gradescope(Grade(file="x", error="no submission")))
    assert failed["score"] == 0
    assert failed["output"] == "Not graded, to be handed in again.\nno submission"
