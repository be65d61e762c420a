"""Grades as other programs read them: nbgrader's CSV, and Gradescope."""

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from testbed.studies.labs.grading.grades import AGAIN, Grade

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
        remarks = " | ".join(filter(None, (AGAIN * bool(grade.error), grade.error, *grade.remarks)))
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
        output = "\n".join([AGAIN, grade.error, *whose])
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
