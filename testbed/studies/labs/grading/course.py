"""The grades of a course: many submissions, each in a process of its own, and kept."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from testbed import interpreter
from testbed.installation import PACKAGE
from testbed.model.errors import InputError, TestbedError, few, printable
from testbed.results.code_version import SUFFIXES, code_version
from testbed.results.whole_file import scratch, write_file
from testbed.rights import acting_for
from testbed.studies.labs.grading.grades import Grade
from testbed.studies.labs.grading.identity import noting_copies
from testbed.studies.labs.grading.limits import FEW_THREADS, slowness
from testbed.studies.labs.grading.submission import MAX_BYTES, SUBMISSION
from testbed.studies.labs.library import LABS

TIMEOUT_S = 300.0
"""A submission that takes longer has no grade; CPU time is limited too (`limits.py`).

On a slow machine it is so many times longer as the machine is slower (`speed.py`).
"""

_KEPT_LINES = 3


@dataclass(frozen=True, slots=True)
class Course:
    """How the submissions of a course are graded.

    Attributes:
        course_key: the course's; None: the keys in submissions are believed.
        labs: the directory of all labs.
        cache: where grades are kept; None: nowhere.
        jobs: how many submissions are graded at a time.
        lab: the name of the only lab whose submissions are graded; empty: of all.
    """

    course_key: bytes | None = None
    labs: Path = LABS
    cache: Path | None = None
    jobs: int = 1
    lab: str = ""


def submissions_in(paths: Sequence[Path]) -> list[Path]:
    """The submissions that a user means: files, and what is in directories.

    Raises:
        InputError: a path does not exist, or nothing was handed in.
    """
    submissions: list[Path] = []
    for path in paths:
        if path.is_dir() and not (path / SUBMISSION).is_file():
            submissions += sorted(path.rglob("*.zip"))
            submissions += sorted(file.parent for file in path.rglob(SUBMISSION))
        elif path.exists():
            submissions.append(path)
        else:
            raise InputError.of("SUBMISSION", str(path), "a file, or a directory of files")
    if not submissions:
        expected = "files that testbed lab submit made"
        remedy = "testbed lab submit, in the directory of the lab, makes the file to hand in"
        raise InputError.of("SUBMISSION", ", ".join(map(_content, paths)), expected, remedy)
    return [*dict.fromkeys(submissions)]


def _content(path: Path) -> str:
    """A directory with the files that are in it."""
    files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    return f"{path} with {few(files) or 'no files'}"


def grade_all(
    submissions: Sequence[Path],
    course: Course,
    progress: Callable[[str, float], None],
    pool: Executor | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> list[Grade]:
    """Grade submissions; whatever one of them holds, the others are graded.

    Args:
        submissions: files, or directories with what was in them.
        course: how they are graded.
        progress: is told how far it is.
        pool: what grades each of them, on machines that have all paths; None: this machine.
        warn: is told why a grade is not kept.

    Returns:
        The grades in the order of the submissions.
    """
    grades: dict[Path, Grade] = {}
    code = _code_of_labs()
    with pool or ThreadPoolExecutor(course.jobs) as chosen:
        under_way = {
            chosen.submit(_grade, path.absolute(), course, code): path for path in submissions
        }
        for done, future in enumerate(as_completed(under_way), 1):
            path = under_way[future]
            try:
                grades[path], kept = future.result()
            except (TestbedError, OSError) as error:  # no machine can grade it, or read it
                found = str(error).partition("\n")[0]
                grades[path] = Grade(file=path.name, error=found, by_machine=True)
            else:
                _keep(grades[path], kept, warn)
            progress("grading", done / len(submissions))
    return noting_copies(submissions, [grades[path] for path in submissions])


def _keep(grade: Grade, file: Path | None, warn: Callable[[str], object]) -> None:
    """Keep a grade; only in the first thread, since the rights that count are one's own there."""
    if file is None:
        return
    try:
        with acting_for(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, grade.model_dump_json())
    except OSError as error:
        warn(f"the grade of {grade.file} is not kept: {error}")


def _grade(path: Path, course: Course, code: str) -> tuple[Grade, Path | None]:
    """The grade of a submission: the one that was kept, or a new one and where to keep it."""
    cached = (
        None if course.cache is None else course.cache / f"{_identity(path, course, code)}.json"
    )
    if cached is not None and cached.is_file():
        try:
            grade = Grade.model_validate_json(cached.read_text(encoding="utf-8"))
            return grade.model_copy(update={"file": printable(path.name)}), None
        except ValueError:
            pass  # it is damaged, and made again
    graded = _grade_apart(path, course)
    return graded, None if graded.error else cached


def _grade_apart(path: Path, course: Course) -> Grade:
    """Grade a submission in a process of its own, which may end at any moment."""
    with scratch("testbed-grade-") as place:
        return _graded_in(place, path, course)


def _graded_in(place: Path, path: Path, course: Course) -> Grade:
    timeout_s = TIMEOUT_S * slowness()
    request = {
        "archive": str(path.absolute()),
        "labs": str(course.labs.resolve()),
        "slowness": slowness(),
        "lab": course.lab,
        "scratch": str(place),
        "course_key": None if course.course_key is None else course.course_key.hex(),
    }
    try:
        done = interpreter.run(
            interpreter.python("-m", "testbed.studies.labs.grading.grade"),
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            timeout=timeout_s,
            env={**FEW_THREADS, "PYTHONIOENCODING": "utf-8"},
        )
    except subprocess.TimeoutExpired:
        return Grade(file=path.name, error=f"grading took longer than {timeout_s:.0f} s")
    try:
        return Grade.model_validate_json(done.stdout)
    except ValidationError:
        errors = " ".join(done.stderr.strip().splitlines()[-_KEPT_LINES:])
        return Grade(file=path.name, error=f"grading ended with {done.returncode}: {errors}")


def _identity(path: Path, course: Course, code: str) -> str:
    """A digest of all that decides a grade."""
    digest = hashlib.sha256(code.encode())
    digest.update(course.course_key or b"")
    digest.update(course.lab.encode())
    for file in _files(path):
        digest.update(_print_of(file, path))
    for file in _files(course.labs):
        digest.update(_print_of(file, course.labs))
    return digest.hexdigest()


def _print_of(file: Path, of: Path) -> bytes:
    """The name of a file, and a digest of its content; without what is refused unread."""
    content = b"no plain file"
    if not file.is_symlink() and file.stat().st_size <= MAX_BYTES:
        content = hashlib.sha256(file.read_bytes()).digest()
    return os.fsencode(file.relative_to(of)) + b"\0" + content


def _code_of_labs() -> str:
    """A digest of the code that grades: the simulator's and this package's."""
    files = (
        file for file in sorted((PACKAGE / "studies/labs").rglob("*")) if file.suffix in SUFFIXES
    )
    content = b"".join(file.read_bytes() for file in files)
    return code_version() + hashlib.sha256(content).hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
