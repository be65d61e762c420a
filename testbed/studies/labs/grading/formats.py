"""Grades as other programs read them: nbgrader's CSV, and Gradescope."""

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError, Problem, raise_any
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.identity import remark_on_owner

NBGRADER_COLUMNS = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)


OWN_COLUMNS = ("file", "counts", "remarks")
"""What follows them: the submission, whether it is the student's that counts, what to look at."""


def to_csv(grades: Sequence[Grade]) -> str:
    """Grades as CSV with the columns of `nbgrader export` and some of our own.

    A submission that could not be graded has no score; if it does not say whose it is, the name of
    its file stands for the student.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*NBGRADER_COLUMNS, *OWN_COLUMNS))
    for grade in grades:
        student = grade.student or (grade.file if grade.error else "")
        score, most = ("", "") if grade.error else (grade.points, grade.max_points)
        counts = "no" if grade.superseded or grade.error else "yes"
        remarks = " | ".join(filter(None, (grade.ungraded, grade.error, *grade.remarks)))
        row = (
            *(grade.lab, "", grade.submitted, student, "", "", "", score, 0, score, most),
            *(grade.file, counts, " ".join(remarks.split())),
        )
        writer.writerow([_safe(str(cell)) for cell in row])
    return text.getvalue()


def _safe(cell: str) -> str:
    """The text of a cell, such that no spreadsheet takes it for a formula."""
    return f"'{cell}" if cell.lstrip().startswith(("=", "+", "-", "@")) else cell


def to_gradescope(grade: Grade) -> str:
    """A grade as Gradescope's `results.json`; each remark is a test that students never see."""
    hidden = [
        {
            "name": "For instructors",
            "score": 0,
            "max_score": 0,
            "output": remark,
            "output_format": "text",
            "visibility": "hidden",
        }
        for remark in grade.remarks
    ]
    common = {"output_format": "text", "stdout_visibility": "hidden"}
    whose = [f"Lab {grade.lab}, student {grade.student or '(none named)'}."] if grade.lab else []
    if grade.error:
        output = "\n".join([grade.ungraded, grade.error, *whose])
        return _json({"score": 0, "output": output, **common, "tests": hidden})
    ran = [f"Your code ran {held}."] if (held := grade.confinement_in_words) else []
    return _json(
        {
            "score": grade.points,
            "output": "\n".join([*whose, *ran]),
            **common,
            "visibility": "visible",
            "execution_time": round(grade.cpu_s),
            "tests": [
                {
                    "name": task.title,
                    "number": str(number),
                    "score": task.points,
                    "max_score": task.max_points,
                    "status": "failed" if task.status == "lost" else "passed",
                    "output": task.reason,
                    "output_format": "text",
                    "visibility": "visible",
                }
                for number, task in enumerate(grade.tasks, 1)
            ]
            + hidden,
        }
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


# --------------------------------------------------------------------------------------------------
# Grades for Classroom 50: its `result.json`, as its runner and its collection of scores want it.
#
# What only the runner knows it passes in environment variables (`run_entrypoint` in its runner.py).


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
        name = " ".join(f"{grade.ungraded} {grade.error}".split())
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


# --------------------------------------------------------------------------------------------------
# The archive that Gradescope runs: `setup.sh`, `run_autograder`, the wheel and the course key.


PYTHON = ">=3.11,<3.15"
"""Which Python the wheel needs; Ubuntu 22.04, Gradescope's usual image, has 3.10."""

SETUP = f"""#!/bin/sh
# Installs the testbed where run_autograder finds it, with the image's Python or else a newer one.
set -e
apt-get update && apt-get install -y --no-install-recommends python3-venv
python3 -m venv /autograder/uv
/autograder/uv/bin/pip install --quiet uv
export UV_PYTHON_INSTALL_DIR=/autograder/python # every user can read it, as students' code has to
/autograder/uv/bin/uv venv --quiet --python "{PYTHON}" /autograder/venv
/autograder/uv/bin/uv pip install --quiet --python /autograder/venv /autograder/source/*.whl
"""

RUN = """#!/bin/sh
# Grades the submission; a failing grade ends with status 0, as Gradescope wants it.
cd /autograder || exit 1
mkdir -p results
set -- submission --lab {lab} {key}--gradescope results/results.json
[ ! -e submission_metadata.json ] || set -- "$@" --metadata submission_metadata.json
/autograder/venv/bin/testbed lab grade "$@" || true
test -e results/results.json
"""

_COURSE_KEY = "course.key"
_EXECUTABLE = 0o755 << 16


def write_autograder(path: Path, lab: str, wheel: Path, course_key: bytes | None) -> None:
    """Write the archive.

    Args:
        path: the file to write.
        lab: the name of the lab that it grades; submissions of other labs are refused.
        wheel: the testbed's wheel.
        course_key: the course's; None: keys in submissions are believed.

    Raises:
        InputError: there is no such wheel.
    """
    if wheel.suffix != ".whl" or not wheel.is_file():
        remedy = "pip wheel --no-deps . in a checkout makes it"
        raise InputError.of("--wheel", str(wheel), "the file of a wheel", remedy)
    key = "" if course_key is None else f"--course-key source/{_COURSE_KEY} "
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN.format(lab=lab, key=key))):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = _EXECUTABLE
            archive.writestr(entry, text)
        archive.write(wheel, wheel.name)
        if course_key is not None:
            archive.writestr(_COURSE_KEY, course_key)
