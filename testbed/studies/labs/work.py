"""A student's work on a lab: a directory with the handout, the answers, the runs and a journal.

The journal says all that was done, and only grows: an entry of JSON on each line. So work survives
a crash at any moment: a run that was broken off has no entry, and is made again. A line that was
cut off is left out. The file is the student's: nothing in it is proof.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from testbed.installation import describe_version
from testbed.model.errors import InputError, did_you_mean
from testbed.model.file_names import is_there
from testbed.model.files.catalog import relative_to_here
from testbed.model.run_files.layout import SUMMARY
from testbed.results.code_version import code_version
from testbed.rights import acting_for, is_of_user, reading_for
from testbed.studies.labs.answers import ANSWERS, questions_digest, read_answers, template
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.evidence import Evidence
from testbed.studies.labs.lab import FORMAT_VERSION, Task
from testbed.studies.labs.library import (
    ALGORITHMS,
    GLOSSARY,
    HANDOUT,
    LAB_FILE,
    LABS,
    START,
    LabDirectory,
    algorithms_for_students,
    glossary_for_students,
    lab_named,
    load_lab,
)
from testbed.studies.labs.students import checked_key, own_key


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was done.

    Attributes:
        kind: start, prediction, run, emulated, attempt or hint.
        time: when, as `in_utc`: the order of these texts is that of the times.
        content: what, by key.
    """

    kind: str
    time: str
    content: dict[str, Any]

    def to_line(self) -> str:
        return json.dumps({"kind": self.kind, "time": self.time, "content": self.content})


_NEEDED: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "start": {"lab": str, "key": str},
    "prediction": {"task": str, "value": (str, int, float, list)},
    "run": {"run": str, "directory": str, "verdict": str},
    "emulated": {"run": str},
    "attempt": {"task": str, "answer": str, "passed": bool},
    "hint": {"task": str, "number": int},
}
"""What each kind of entry has, as the commands read it."""


class Journal:
    """The file of a work directory."""

    def __init__(self, path: Path) -> None:
        """Open the file, which may not exist yet."""
        self.path = path

    def entries(self) -> tuple[Entry, ...]:
        """All entries, in order; without the last line if it was cut off.

        Raises:
            InputError: a line is no entry.
        """
        try:
            with reading_for(self.path.parent):
                text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise _damaged(self.path, 0, str(error)) from None
        return tuple(parse_entries(text, self.path))

    def append(self, kind: str, **content: Any) -> Entry:
        """Add an entry; it is on the disk when this returns.

        Raises:
            InputError: a line is no entry, or the file cannot be written.
        """
        self.entries()  # raises if a line is no entry
        entry = Entry(kind, in_utc(datetime.now(UTC)), content)
        try:
            with reading_for(self.path.parent):
                self._write(f"{entry.to_line()}\n".encode())
        except OSError as error:
            found = (error.strerror or str(error)).lower()
            expected, remedy = "a file that you may write", "make it yours: chown, chmod"
            raise InputError.of(str(self.path), found, expected, remedy) from None
        return entry

    def _write(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("rb+" if self.path.exists() else "xb") as file:
            file.truncate(_whole_lines(self.path))
            file.seek(0, os.SEEK_END)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def in_utc(time: datetime) -> str:
    """A time in UTC, in the one form of ISO 8601 that a journal has."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _whole_lines(path: Path) -> int:
    """The length of a file up to the end of its last whole line, in bytes."""
    return path.read_bytes().rfind(b"\n") + 1


def parse_entries(text: str, path: Path) -> Iterator[Entry]:
    """The entries of a journal's text.

    Raises:
        InputError: a line is no entry.
    """
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            return  # cut off by a crash
        try:
            data = json.loads(line)
            kind, time, content = (data[key] for key in ("kind", "time", "content"))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _damaged(path, number, "a line that is no entry") from None
        if not isinstance(kind, str):
            raise _damaged(path, number, "an entry of no kind")
        if not isinstance(content, dict):
            raise _damaged(path, number, "an entry without content")
        if not _is_time(time):
            raise _damaged(path, number, "an entry without the time at which it was made")
        for key, form in _NEEDED.get(kind, {}).items():
            if not isinstance(content.get(key), form):
                raise _damaged(path, number, f"an entry ({kind}) without its {key}")
        yield Entry(kind, time, content)


def _is_time(text: object) -> TypeGuard[str]:
    """Whether it is a time as `in_utc` writes it; which submission counts depends on it."""
    try:
        return isinstance(text, str) and in_utc(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):  # no time, or one at the end of all years
        return False


def _damaged(path: Path, line: int, found: str) -> InputError:
    where = f"{path}:{line}" if line else str(path)
    remedy = (
        "restore the file from a backup; to begin again: cd .. and testbed lab start LAB --reset"
    )
    return InputError.of(where, found, "the journal that testbed lab writes", remedy)


STATE = ".lab"
"""What belongs to the commands, below a work directory."""

AGAIN = "to begin again: cd .. and testbed lab start LAB --reset"
JOURNAL = "journal.jsonl"
RESULTS = "results"
EMULATED = "emulated"
"""Runs with real packets, which are for looking."""

SEALED = "sealed"


@dataclass(frozen=True)
class Work:
    """A work directory."""

    path: Path
    labs: Path = LABS

    @cached_property
    def journal(self) -> Journal:
        """What was done."""
        return Journal(self.path / STATE / JOURNAL)

    @cached_property
    def start(self) -> Entry:
        """The journal's first entry.

        Raises:
            InputError: the journal is empty.
        """
        entries = self.journal.entries()
        if not entries or entries[0].kind != "start":
            remedy = AGAIN
            raise InputError.of(str(self.journal.path), "no beginning", "a started lab", remedy)
        return entries[0]

    @cached_property
    def assignment(self) -> Assignment:
        """The lab as this student has it."""
        content = self.start.content
        if "lab_path" in content:
            directory = self._lab_elsewhere(Path(str(content["lab_path"])))
        else:
            name = str(content.get("lab"))
            directory = lab_named(f"{self.journal.path}: lab", name, self.labs)
        return Assignment(load_lab(directory), str(content["key"]), self.path)

    def _lab_elsewhere(self, path: Path) -> Path:
        """The directory of a lab that does not ship, whose `figures.py` is executed.

        So it has to be written as `start` writes it, by this user: a directory that somebody else
        has made, or that comes in an archive, leads to no code beside it.

        Raises:
            InputError: it is not, or it is no longer there.
        """
        if str(path) != str(path.resolve()) or not is_of_user(self.journal.path):
            remedy = "if you trust it, start it yourself: testbed lab start DIR/NAME --into DIR"
            found, expected = f"the lab {path}", "work that you have begun, as its code is executed"
            raise InputError.of(str(self.journal.path), found, expected, remedy)
        if (path / LAB_FILE).is_file():
            return path
        remedy = "move it back, or start it where it is now: testbed lab start DIR/NAME --reset"
        raise InputError.of(str(path / LAB_FILE), "no such file", "the lab of this work", remedy)

    @property
    def student(self) -> str:
        """Who works here; empty if nobody in particular."""
        return str(self.start.content.get("student", ""))

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.assignment.directory.lab.tasks

    def task(self, name: str | None, *, predictions: bool | None = None) -> Task:
        """A task by its id.

        Args:
            name: the id.
            predictions: whether only predictions are meant, or only questions; None: any task.

        Raises:
            InputError: there is no such task, or it is of the other kind.
        """
        lab = self.assignment.directory.lab
        task = lab.task(name or "")
        if task is not None and predictions in (None, task.is_prediction):
            return task
        ids = tuple(t.id for t in self.tasks if predictions in (None, t.is_prediction))
        expected = f"one of {', '.join(ids)}"
        if task is not None and task.is_prediction:
            expected = f"a question: {expected}"
            remedy = "predictions are neither checked nor have hints: any honest one is right"
        elif task is not None:
            expected = f"a prediction: {expected}"
            remedy = f"write the answer into {ANSWERS}, then: testbed lab check {name}"
        elif name in lab.runs:
            remedy = f"{name} is a run: testbed lab run {name}"
        else:
            remedy = did_you_mean(name or "", ids) or "testbed lab status shows what is next"
        raise InputError.of("TASK", name or "nothing", expected, remedy)

    def entries(self, kind: str, **content: Any) -> Iterator[Entry]:
        """The entries of a kind whose content has these values, in order."""
        for entry in self.journal.entries():
            if entry.kind == kind and content.items() <= entry.content.items():
                yield entry

    def last(self, kind: str, **content: Any) -> Entry | None:
        return next(reversed([*self.entries(kind, **content)]), None)

    def made_run(self, run: str) -> Entry | None:
        """The last run that can be trusted; None if there is none yet."""
        return self.last("run", run=run, verdict="trusted")

    def counted_run(self, run: str) -> Entry | None:
        """The same, if its files are there and it was made by this code and the student's own."""
        made = self.made_run(run)
        if made is None or made.content.get("version") != code_version():
            return None
        if not is_there(self.path / str(made.content["directory"]) / SUMMARY, Path.is_file):
            return None
        code = self.assignment.code_digest(run)
        return made if made.content.get("code", code) == code else None

    def changed_since_start(self) -> InputError | None:
        """What is wrong if this version of the testbed asks other questions; else None."""
        if self.start.content.get("questions") == questions_digest(self.assignment):
            return None
        begun, here = self.start.content.get("testbed", "another version"), describe_version()
        expected = f"a lab with the questions of testbed {here}"
        return InputError.of(str(self.path), f"one begun with testbed {begun}", expected, AGAIN)

    def is_out_of_date(self, task: Task) -> bool:
        """Whether a run that a task is about was made again, or its code changed, since the check.

        False if the task was not checked yet.
        """
        entries = self.journal.entries()
        about = [entry for entry in entries if entry.content.get("task") == task.id]
        checks = [entry for entry in about if entry.kind == "attempt"]
        if not checks:
            return False
        later = entries[entries.index(checks[-1]) + 1 :]
        made = {entry.content["run"] for entry in later if entry.kind == "run"}
        return any(run in made or not self.counted_run(run) for run in task.after)

    def passed(self, task: Task) -> bool:
        """Whether a task was done at some time: predicted, or answered rightly."""
        if task.is_prediction:
            return self.last("prediction", task=task.id) is not None
        last = self.last("attempt", task=task.id)
        return last is not None and bool(last.content["passed"])

    def evidence(self) -> Evidence:
        """The runs that count."""
        runs = {}
        for run in self.assignment.directory.lab.runs:
            entry = self.counted_run(run)
            if entry is not None:
                runs[run] = self.path / str(entry.content["directory"])
        return Evidence(self.assignment, runs)

    @property
    def answers(self) -> Path:
        """The file of the student's answers."""
        return self.path / ANSWERS

    def read_answers(self) -> Any:
        """The student's answers, as `answers.read_answers`."""
        return read_answers(self.answers, self.assignment)


def find_work(here: Path, labs: Path = LABS) -> Work:
    """The work directory that contains a directory.

    Raises:
        InputError: there is none.
    """
    for path in (here, *here.parents):
        if is_there(path / STATE / JOURNAL, Path.is_file):
            return Work(relative_to_here(path), labs)
    if is_there(here / STATE, Path.is_dir):
        if not os.access(here / STATE, os.X_OK):
            expected, remedy = "a directory that you may enter", f"chmod u+rwx {STATE}"
            raise InputError.of(str(relative_to_here(here / STATE)), "", expected, remedy)
        missing = str(relative_to_here(here / STATE / JOURNAL))
        raise InputError.of(missing, "no such file", "the journal of this lab", AGAIN)
    begun = sorted(file.parent.parent for file in here.glob(f"*/{STATE}/{JOURNAL}"))
    names = ", ".join(path.name for path in begun)
    remedy = f"cd {begun[0].name}" if len(begun) == 1 else f"cd into one of {names}"
    if not begun:
        remedy = "testbed lab list shows the labs, testbed lab start LAB begins one"
    raise InputError.of(str(here), "no lab", "the directory of a lab that was started", remedy)


def start(directory: LabDirectory, parent: Path, student: str, key: str | None) -> Work:
    """Make the work directory of a lab.

    Args:
        directory: the lab.
        parent: where the work directory is made; it is called like the lab.
        student: who works there; empty for somebody who works alone.
        key: the student's; None for a new one.

    Raises:
        InputError: it exists, or cannot be made.
    """
    path = parent / directory.name
    if (path / STATE / JOURNAL).is_file():
        lab = directory.path if _is_elsewhere(directory) else directory.name
        remedy = f"cd {path} and go on, or begin again: testbed lab start {lab} --reset"
        raise InputError.of(str(path), "a lab that was started", "a new directory", remedy)
    if path.is_dir() and (path.resolve() == directory.path.resolve() or any(path.iterdir())):
        remedy = "move it away, or name another directory: --into DIR"
        raise InputError.of(str(path), "a directory with files", "a new directory", remedy)
    assignment = Assignment(directory, key or own_key())
    try:
        with acting_for(parent):
            _make(path, assignment, student)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        remedy = "name another directory: --into DIR"
        raise InputError.of(str(path), found, "a directory that can be written", remedy) from None
    return Work(path, directory.path.parent)


def _is_elsewhere(directory: LabDirectory) -> bool:
    """Whether it is no lab that ships."""
    return directory.path.resolve().parent != LABS.resolve()


def _make(path: Path, assignment: Assignment, student: str) -> None:
    """Make a work directory as a whole; a failure leaves nothing of it."""
    directory, new = assignment.directory, path.with_name(f".{path.name}.new")
    elsewhere = {"lab_path": str(directory.path.resolve())} if _is_elsewhere(directory) else {}
    try:
        shutil.rmtree(new, ignore_errors=True)  # what a crash has left
        new.mkdir(parents=True)
        if (directory.path / START).is_dir():
            shutil.copytree(directory.path / START, new, dirs_exist_ok=True)
            text = algorithms_for_students(directory.lab)
            (new / ALGORITHMS.name).write_text(text, encoding="utf-8")
        shutil.copyfile(directory.path / HANDOUT, new / HANDOUT)
        (new / GLOSSARY.name).write_text(glossary_for_students(), encoding="utf-8")
        (new / ANSWERS).write_text(template(assignment), encoding="utf-8")
        Work(new, directory.path.parent).journal.append(
            "start",
            lab=directory.name,
            **elsewhere,
            format_version=FORMAT_VERSION,
            student=student,
            key=assignment.key,
            alone=not student,
            questions=questions_digest(assignment),
            testbed=describe_version(),
        )
        if path.is_dir():
            path.rmdir()
        new.rename(path)  # a crash leaves either all of it or none
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def begun_by(path: Path) -> tuple[str, str] | None:
    """The name and the key with which work was begun; None if its journal does not say.

    Args:
        path: a work directory, whose journal may be damaged behind its first entry.
    """
    try:
        with reading_for(path):
            text = (path / STATE / JOURNAL).read_text(encoding="utf-8", errors="replace")
        content = next(parse_entries(text, path)).content
        student = str(content["student"])
        return student, checked_key(str(content["key"]), student)
    except (OSError, StopIteration, KeyError, InputError):
        return None


def students_beside(parent: Path) -> dict[tuple[str, str], Path]:
    """The names and keys with which labs in a directory were begun, each with one of these labs."""
    begun = {}
    for journal in sorted(parent.glob(f"*/{STATE}/{JOURNAL}")):
        path = journal.parent.parent
        identity = begun_by(path)
        if identity is not None and identity[0]:
            begun[identity] = path
    return begun


def set_aside(path: Path) -> Path:
    """Rename a work directory, so that the lab can be started again; nothing is deleted.

    Raises:
        InputError: it cannot be renamed.
    """
    for number in range(1, 1000):
        old = path.with_name(f"{path.name}.old-{number}")
        if not old.exists():
            try:
                with acting_for(path.parent):
                    return path.rename(old)
            except OSError as error:
                found = (error.strerror or str(error)).lower()
                raise InputError.of(str(path), found, "a directory that you may rename") from None
    raise InputError.of(str(path), "a thousand old copies", "fewer", "remove some of them")
