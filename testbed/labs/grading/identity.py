"""Who handed a submission in: what instructors are told, and no points depend on."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.labs.grading.grades import Grade
from testbed.labs.students import plain_name
from testbed.model.errors import few, printable


def remark_on_users(student: str, metadata: Path) -> str:
    """What to tell instructors of the users who handed a submission in; empty if one fits.

    A user fits by the name, the address, what stands before its @, or the number, in any case.

    Args:
        student: whose the submission is, as it says itself.
        metadata: Gradescope's `submission_metadata.json`.
    """
    try:
        users = _users(json.loads(metadata.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        found = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        return f"{metadata.name} cannot be read ({found}): look who handed this in"
    names = {plain_name(name) for user in users for name in _names(user)}
    if not users or plain_name(student) in names:
        return ""
    handed_in = ", ".join(" ".join(map(str, filter(None, _shown(user)))) for user in users)
    whose = f"made by {student}" if student else "a submission that names no student"
    return printable(f"{whose}, handed in by {handed_in}: look whose work it is")


def noting_repeats(paths: Sequence[Path], grades: Sequence[Grade]) -> list[Grade]:
    """Grades with a remark at each submission that is one of several.

    Several are those of one student and lab, and those that have the same content.

    Args:
        paths: the submissions.
        grades: the grade of each.
    """
    called = _called(paths)
    by_content, by_student = defaultdict[str, set[int]](set), defaultdict[Any, set[int]](set)
    for place, grade in enumerate(grades):
        by_content[grade.content].add(place)
        by_student[_whose(grade)].add(place)
    noted = []
    for place, grade in enumerate(grades):
        same = by_content[grade.content] - {place} if grade.content else set()
        several = by_student[_whose(grade)] - {place} if grade.student else set()
        remarks = []
        if same:
            remarks.append(
                f"has the same content as {_listed(same, called)}: look whose work it is"
            )
        if several - same:
            others = _listed(several - same, called)
            remarks.append(f"{grade.student} has handed in this lab more than once: also {others}")
        noted.append(grade.model_copy(update={"private": (*grade.private, *remarks)}))
    return noted


def _users(metadata: Any) -> list[dict[str, Any]]:
    users = metadata.get("users") if isinstance(metadata, dict) else None
    return [user for user in users or [] if isinstance(user, dict)]


def _names(user: dict[str, Any]) -> Iterable[str]:
    address = str(user.get("email") or "")
    found = (user.get("name"), address, address.partition("@")[0], user.get("id"))
    return (str(name) for name in found if name)


def _shown(user: dict[str, Any]) -> tuple[Any, ...]:
    return user.get("name"), user.get("email") or user.get("id")


def _whose(grade: Grade) -> tuple[str, str]:
    return plain_name(grade.student), grade.lab


def _called(paths: Sequence[Path]) -> list[str]:
    """What each file is called: with its directory, if another one has the same name."""
    names = [path.name for path in paths]
    return [
        printable(f"{path.parent.name}/{path.name}" if names.count(path.name) > 1 else path.name)
        for path in paths
    ]


def _listed(places: set[int], called: Sequence[str]) -> str:
    return few([called[place] for place in sorted(places)])
