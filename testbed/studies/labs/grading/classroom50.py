"""Grades for Classroom 50: its `result.json`, as its runner and its collection of scores want it.

What only the runner knows it passes in environment variables (`run_entrypoint` in its runner.py).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from testbed.model.errors import Problem, raise_any
from testbed.studies.labs.grading.grades import AGAIN, Grade
from testbed.studies.labs.grading.identity import remark_on_owner

SCHEMA = "classroom50/result/v1"

_TAG = "submit/"
_WEB = ("https://", "http://")
_REMEDY = "Classroom 50's runner sets it; elsewhere: {name}={example} testbed lab grade ..."


@dataclass(frozen=True, slots=True)
class Submitted:
    """What Classroom 50 knows of a submission, by its own names.

    Attributes:
        classroom: the short name of the classroom.
        assignment: the short name of the assignment.
        assignment_type: individual, group or team.
        owner: who owns the repository: the student.
        submission: the tag of the submission.
        commit: the web address of the commit.
        release: that of the release.
        review: that of all changes of the student.
    """

    classroom: str
    assignment: str
    assignment_type: str
    owner: str
    submission: str
    commit: str
    release: str
    review: str


def submitted_by(environment: Mapping[str, str]) -> Submitted:
    """What the variables of the environment say of a submission.

    Raises:
        InputError: some are missing or have not the form that Classroom 50 accepts.
    """
    known = {name: environment.get(name, "").strip() for name in _EXAMPLES}
    owner = environment.get("OWNER", "").strip() or environment.get("USERNAME", "").strip()
    known["OWNER"] = owner
    raise_any(_problem(name, known[name]) for name in _EXAMPLES)
    return Submitted(
        classroom=known["CLASSROOM"],
        assignment=known["ASSIGNMENT"],
        assignment_type=environment.get("ASSIGNMENT_TYPE", "").strip() or "individual",
        owner=owner,
        submission=known["SUBMISSION_TAG"],
        commit=known["COMMIT_URL"],
        release=known["RELEASE_URL"],
        review=environment.get("REVIEW_URL", "").strip() or known["COMMIT_URL"],
    )


_EXAMPLES = {
    "CLASSROOM": ("cs101", "the short name of the classroom"),
    "ASSIGNMENT": ("lab-02", "the short name of the assignment"),
    "OWNER": ("ada", "the GitHub name of the student"),
    "SUBMISSION_TAG": ("submit/2026-11-26T10-00-00Z-0a1b2c3", f"a tag that begins with {_TAG}"),
    "COMMIT_URL": ("https://github.com/O/R/commit/0a1b2c3", "the web address of the commit"),
    "RELEASE_URL": ("https://github.com/O/R/releases/tag/T", "the web address of the release"),
}


def _problem(name: str, value: str) -> Problem | None:
    """What is wrong with a variable; None if nothing is."""
    example, expected = _EXAMPLES[name]
    begins = (_TAG,) if name == "SUBMISSION_TAG" else _WEB if name.endswith("_URL") else ("",)
    if value and value.startswith(begins):
        return None
    remedy = _REMEDY.format(name=name, example=example)
    return Problem(f"--classroom50: the environment variable {name}", value, expected, remedy)


def to_classroom50(grade: Grade, submitted: Submitted) -> str:
    """A grade as a result of Classroom 50.

    A submission that could not be graded has one test, which fails: without tests it would pass.
    Students can read all of this, so the only remark in it says that the repository's owner is
    another person than the submission's student.
    """
    tests = [
        {
            "test-name": task.title,
            "passed": task.status != "lost",
            "score": task.points,
            "max-score": task.max_points,
        }
        for task in grade.tasks
    ]
    if grade.error:
        name = " ".join(f"{AGAIN} {grade.error}".split())
        tests = [{"test-name": name, "passed": False, "score": 0, "max-score": 0}]
    result = {
        "schema": SCHEMA,
        **asdict(submitted),
        "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "score": grade.points,
        "max-score": grade.max_points,
        "tests": tests,
    }
    if grade.lab and (remark := remark_on_owner(grade.student, submitted.owner)):
        result["remarks"] = [remark]
    return json.dumps(result, indent=2) + "\n"
