"""Results for Classroom 50: what its collection of scores accepts."""

import json
from typing import Any

import pytest

from testbed.model.errors import ExitStatus, InputError
from testbed.studies.labs.grading.formats import submitted_by, to_classroom50
from testbed.studies.labs.grading.grades import Grade, TaskGrade

VARIABLES = {
    "CLASSROOM": "cs101",
    "ASSIGNMENT": "lab-02",
    "ASSIGNMENT_TYPE": "group",
    "OWNER": "ada",
    "SUBMISSION_TAG": "submit/2026-11-26T10-00-00Z-0a1b2c3",
    "COMMIT_URL": "https://github.com/o/r/commit/0a1b2c3",
    "RELEASE_URL": "https://github.com/o/r/releases/tag/t",
    "REVIEW_URL": "https://github.com/o/r/compare/a...b",
}
GRADE = Grade(
    file="02-first-failure-ada.zip",
    lab="02-first-failure",
    student="ada",
    tasks=(
        TaskGrade(task="a", title="A", points=2, max_points=2, status="earned"),
        TaskGrade(task="b", title="B", points=0, max_points=3, status="lost", reason="wrong"),
    ),
)


def _result(grade: Grade, **variables: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        to_classroom50(grade, submitted_by({**VARIABLES, **variables}))
    )
    return result


def test_a_result_says_which_submission_it_is_of() -> None:
    result = _result(GRADE)
    assert result["schema"] == "classroom50/result/v1"
    names = ("classroom", "assignment", "assignment_type", "owner", "submission")
    assert [result[name] for name in names] == [*VARIABLES.values()][:5]
    assert [result[name] for name in ("commit", "release", "review")] == [*VARIABLES.values()][5:]
    assert result["datetime"].endswith("Z")
    assert (result["score"], result["max-score"]) == (2, 5)
    assert [test["passed"] for test in result["tests"]] == [True, False]


def test_another_owner_is_a_remark() -> None:
    """Whoever owns the repository may be written in other letters; other remarks are not in it."""
    graded = GRADE.model_copy(update={"student": "ada", "remarks": ("copied",)})
    assert "remarks" not in _result(graded, OWNER="ADA")
    (remark,) = _result(graded, OWNER="bob")["remarks"]
    assert remark == "made by ada, in the repository of bob: look whose work it is"


def test_what_older_runners_leave_out_is_replaced() -> None:
    result = _result(GRADE, REVIEW_URL="", ASSIGNMENT_TYPE="", OWNER="", USERNAME="eve")
    assert result["review"] == VARIABLES["COMMIT_URL"]
    assert (result["assignment_type"], result["owner"]) == ("individual", "eve")


def test_what_could_not_be_graded_does_not_pass() -> None:
    result = _result(Grade(file="x.zip", error="no zip\n  remedy: submit"))
    (test,) = result["tests"]
    assert (test["test-name"], test["passed"]) == (
        "Not graded, to be handed in again. no zip remedy: submit",
        False,
    )
    assert (result["score"], result["max-score"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, "") for name in VARIABLES if name not in {"ASSIGNMENT_TYPE", "REVIEW_URL"}]
    + [("SUBMISSION_TAG", "v1"), ("COMMIT_URL", "0a1b2c3"), ("RELEASE_URL", "ftp://x")],
)
def test_a_variable_that_is_missing_or_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError) as refused:
        submitted_by({**VARIABLES, name: value})
    assert refused.value.exit_status == ExitStatus.WRONG_INPUT
    (problem,) = refused.value.problems
    assert problem.where == f"--classroom50: the environment variable {name}"
    assert problem.found == value
    assert f"{name}=" in problem.remedy
