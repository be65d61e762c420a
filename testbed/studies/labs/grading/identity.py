"""Whose work a submission is: what instructors are told, and no points depend on."""

import hashlib
import io
import json
import keyword
import os
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError, few, printable
from testbed.studies.labs.answers import read_answers
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.submission import FILES, Submission
from testbed.studies.labs.lab import TextAnswer
from testbed.studies.labs.library import START, LabDirectory
from testbed.studies.labs.students import plain_name

_WORD = re.compile(r"(?<![\w])[^\W\d_]+(?![\w])")
"""A word without digits: figures and names of links differ from student to student."""

_LINE_ENDS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def remark_on_users(student: str, metadata: Path) -> str:
    """What to tell instructors of the users who handed a submission in; empty if one fits.

    A user fits by the name, the address, what stands before its @, or the number, in any case.

    Args:
        student: whose the submission is, as it says itself.
        metadata: Gradescope's `submission_metadata.json`.
    """
    try:
        users = _users(json.loads(metadata.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        found = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        return f"{metadata.name} cannot be read ({found}): look who handed this in"
    names = {plain_name(name) for user in users for name in _names(user)}
    if not users or plain_name(student) in names:
        return ""
    handed_in = ", ".join(" ".join(map(str, filter(None, _shown(user)))) for user in users)
    whose = f"made by {student}" if student else "a submission that names no student"
    return printable(f"{whose}, handed in by {handed_in}: look whose work it is")


def remark_on_owner(student: str, owner: str) -> str:
    """What to tell instructors of the owner of a repository; empty if it is the student.

    Args:
        student: whose the submission is, as it says itself.
        owner: the GitHub name of who handed it in.
    """
    if plain_name(student) == plain_name(owner):
        return ""
    whose = f"made by {student}" if student else "a submission that names no student"
    return printable(f"{whose}, in the repository of {owner}: look whose work it is")


def prints_of(submission: Submission, directory: LabDirectory) -> dict[str, str]:
    """A digest of each part of a submission that no two students have alike, by what it is.

    Numbers and names such as p0_t1_2 do not count in a text, nor what a variable is called in code.
    Files that are as the lab brings them have none.
    """
    prints = {"all files": _content_digest(submission.directory)}
    answers: Mapping[str, Any] = {}
    with suppress(InputError):  # grading says what is wrong
        answers = read_answers(submission.answers, Assignment(directory, submission.key)).data
    for task in directory.lab.questions:
        text = answers.get(task.id)
        if isinstance(task.answer, TextAnswer) and isinstance(text, str):
            words = " ".join(_WORD.findall(text.lower()))
            prints[f"text of {task.id}"] = _digest(words)
    for file in sorted((submission.directory / FILES).glob("*.py")):
        own = _code_in(file)
        if own and own != _code_in(directory.path / START / file.name):
            prints[file.name] = own
    return {what: digest for what, digest in prints.items() if digest}


def remarks_on_known_code(prints: Mapping[str, str], directory: LabDirectory) -> list[str]:
    """What to tell instructors of code that is the project's own solution."""
    return [
        f"{file} is the solution that comes with the testbed, but for names: look whose work it is"
        for file, known in directory.lab.known_code.items()
        if prints.get(file) in known
    ]


def noting_copies(paths: Sequence[Path], grades: Sequence[Grade]) -> list[Grade]:
    """Grades with a remark at each submission that is one of several of a lab.

    Several are those of one student, and those of several students in which all files, a text, or
    code is the same. Of one student's the last counts that was graded and has the right key.
    """
    called = _called(paths)
    by_print, by_student = defaultdict[Any, set[int]](set), defaultdict[Any, set[int]](set)
    for place, grade in enumerate(grades):
        for what, digest in grade.prints.items():
            by_print[grade.lab, what, digest].add(place)
        by_student[_whose(grade)].add(place)
    noted = []
    for place, grade in enumerate(grades):
        remarks, known = [], {place}
        for what, digest in grade.prints.items():
            same = by_print[grade.lab, what, digest] - known
            known |= same  # all files come first: what they hold is not said again
            if what != "all files":
                same = {other for other in same if _whose(grades[other]) != _whose(grade)}
            if same:
                said = "has the same content as" if what == "all files" else f"{what}: as in"
                remarks.append(f"{said} {_listed(same, called)}: look whose work it is")
        several = by_student[_whose(grade)] if grade.student else {place}
        if len(several) > 1:
            last = max(several, key=lambda other: _rank(grades[other]))
            counts = "this one counts" if last == place else f"{called[last]} counts"
            others = _listed(several - {place}, called)
            remarks.append(
                f"{grade.student} has handed in this lab more than once, also {others}: {counts}"
            )
        updated = {"remarks": (*grade.remarks, *remarks), "superseded": False}
        if len(several) > 1:
            updated["superseded"] = last != place
        noted.append(grade.model_copy(update=updated))
    return noted


def code_print(text: str) -> str:
    """A digest of Python code without comments, docstrings and what names are."""
    numbers: dict[str, str] = {}
    parts, before = list[str](), tokenize.NEWLINE
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in {tokenize.COMMENT, tokenize.NL}:
                continue
            docstring = token.type == tokenize.STRING and before in _LINE_ENDS
            before = token.type
            if docstring:
                continue
            if token.type in _LINE_ENDS:
                parts.append(tokenize.tok_name[token.type])
            elif token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                parts.append(numbers.setdefault(token.string, f"name{len(numbers)}"))
            else:
                parts.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError):
        parts = text.split()
    return _digest(" ".join(parts))


def _code_in(file: Path) -> str:
    """The print of a file; empty if it has no code."""
    if not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace")
    return code_print(text) if text.strip() else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def _content_digest(directory: Path) -> str:
    """A digest of all that was handed in, however it was packed."""
    digest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(os.fsencode(file.relative_to(directory)) + f"\n{content}\n".encode())
    return digest.hexdigest()


def _users(metadata: Any) -> list[dict[str, Any]]:
    users = metadata.get("users") if isinstance(metadata, dict) else None
    return [user for user in users if isinstance(user, dict)] if isinstance(users, list) else []


def _names(user: dict[str, Any]) -> Iterable[str]:
    address = str(user.get("email") or "")
    found = (user.get("name"), address, address.partition("@")[0], user.get("id"))
    return (str(name) for name in found if name)


def _shown(user: dict[str, Any]) -> tuple[Any, ...]:
    return user.get("name"), user.get("email") or user.get("id")


def _whose(grade: Grade) -> tuple[str, str]:
    return plain_name(grade.student), grade.lab


def _rank(grade: Grade) -> tuple[bool, bool, str]:
    """What decides which of a student's submissions counts: the greatest does."""
    return not grade.error, grade.right_key, grade.submitted


def _called(paths: Sequence[Path]) -> list[str]:
    """What each file is called: with its directory, if another one has the same name."""
    names = [path.name for path in paths]
    return [
        printable(f"{path.parent.name}/{path.name}" if names.count(path.name) > 1 else path.name)
        for path in paths
    ]


def _listed(places: set[int], called: Sequence[str]) -> str:
    return few([called[place] for place in sorted(places)])
