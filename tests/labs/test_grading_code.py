"""Grades of submissions with code of the student's own: good, wrong, hostile."""

from pathlib import Path
from tempfile import gettempdir

import pytest

from testbed.studies.labs.grading import course
from testbed.studies.labs.grading.course import Course, grade_all
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.submission import submit

from .prepared import (
    CODE,
    COURSE_KEY,
    FORGED,
    FULL_CODE,
    LOOP,
    PATH_SELECTOR,
    changed,
    solved,
    with_code,
)

pytestmark = pytest.mark.long


def _ignore(*_: object) -> None:
    pass


@pytest.fixture(scope="module")
def perfect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of lab 9 in which everything is right."""
    directory = tmp_path_factory.mktemp("ada")
    return submit(solved(directory, "ada", PATH_SELECTOR), directory)


@pytest.mark.simulated
def test_whatever_code_is_handed_in_it_is_graded(perfect: Path, tmp_path: Path) -> None:
    files = {
        name: with_code(perfect, tmp_path, name, code)
        for name, (code, _) in CODE.items()
        if name != LOOP
    }
    two = Course(COURSE_KEY, jobs=2)
    first = grade_all([*files.values()], two, _ignore)
    for name, graded in zip(files, first, strict=True):
        said = " ".join([graded.error, *graded.remarks, *(task.reason for task in graded.tasks)])
        assert not graded.error, (name, said)
        assert CODE[name][1] in said, (name, said)
        assert (graded.points == FULL_CODE) == (name == "perfect"), (name, graded.points)
        assert str(tmp_path) not in said
    forged = {
        name: changed(perfect, tmp_path, name, change) for name, (change, _) in FORGED.items()
    }
    for name, graded in zip(forged, grade_all([*forged.values()], two, _ignore), strict=True):
        said = " ".join([*graded.remarks, *(task.reason for task in graded.tasks)])
        assert FORGED[name][1] in said, (name, said)
        assert (graded.points == FULL_CODE) == (name == "code changed after the run"), said
    (remark,) = next(graded for graded in first if graded.file == "perfect.zip").remarks[:1]
    assert remark.startswith("selector.py is the solution")
    some = [files[name] for name in ("a fork bomb", "an error")]
    again = grade_all(some, two, _ignore)
    kept = [graded for graded in first if graded.file in {file.name for file in some}]
    for one, other in zip(again, kept, strict=True):
        assert _without_cpu(one).model_dump() == _without_cpu(other).model_dump()


@pytest.mark.simulated
def test_an_endless_loop_is_ended_in_each_run(
    perfect: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fifth of the time that code has otherwise."""
    monkeypatch.setattr(course, "slowness", lambda: 0.2)
    code, reason = CODE[LOOP]
    (graded,) = grade_all([with_code(perfect, tmp_path, LOOP, code)], Course(COURSE_KEY), _ignore)
    assert not graded.error
    assert graded.points < FULL_CODE
    late = [task.reason for task in graded.tasks if reason in task.reason]
    assert len(late) > 1, graded.tasks
    assert not [task for task in graded.tasks if str(tmp_path) in task.reason]


@pytest.mark.simulated
def test_a_grade_does_not_depend_on_the_working_directory(
    perfect: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_code(perfect, tmp_path, "another class", CODE["another class"][0])
    monkeypatch.chdir(gettempdir())  # submissions are unpacked below it
    (graded,) = grade_all([file], Course(COURSE_KEY), _ignore)
    reasons = {task.reason.partition(": ")[2] for task in graded.tasks if task.reason}
    assert reasons == {"selector.py: found Selector, expected a class of selector.py: Other"}


def _without_cpu(graded: Grade) -> Grade:
    """A grade without its time, and without what it says of the other submissions."""
    return graded.model_copy(update={"cpu_s": 0.0, "remarks": (), "superseded": False})
