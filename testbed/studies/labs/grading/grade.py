"""The grade of one submission: by runs that the grader simulates, with the student's seed.

Nothing that was handed in is believed. The records of the student's runs are compared with those of
the grader's; a difference is a remark. Work of another version of the testbed, and whatever cannot
be judged, has no grade: the student hands it in again.

A submission is graded in a process of its own: a request on standard input, the grade on standard
output.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.host.own_code import run_apart
from testbed.installation import describe_version
from testbed.model.errors import InputError, MachineError, RunFailedError, TestbedError
from testbed.model.files.catalog import relative_to_here
from testbed.model.files.reading import Document
from testbed.results.code_version import code_version
from testbed.runs.making import simulate_into
from testbed.runs.room import is_full
from testbed.studies.labs import checking
from testbed.studies.labs.answers import questions_digest, read_answers
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.evidence import Evidence
from testbed.studies.labs.grading.grades import Grade, Status, TaskGrade
from testbed.studies.labs.grading.identity import prints_of, remarks_on_known_code
from testbed.studies.labs.grading.limits import limit_this_process
from testbed.studies.labs.grading.submission import (
    FILES,
    SUBMISSION,
    Submission,
    read_submission,
    short,
    unpack,
)
from testbed.studies.labs.lab import Task
from testbed.studies.labs.library import LabDirectory, lab_named, load_lab
from testbed.studies.labs.runs import differing_tables
from testbed.studies.labs.students import fits, plain_name, student_key
from testbed.studies.labs.work import Entry, in_utc

if TYPE_CHECKING:
    from testbed.model.summary import Summary

_WRONG_CLOCK = timedelta(days=1)
"""By how much a student's clock may be ahead without a remark."""


def grade(
    archive: Path,
    labs: Path,
    course_key: bytes | None,
    scratch: Path,
    slowness: float = 1.0,
    lab: str = "",
) -> Grade:
    """Grade a submission.

    Args:
        archive: the file, or a directory with its content.
        labs: the directory of all labs.
        course_key: the course's; None: the key in the submission is believed.
        scratch: an empty directory.
        slowness: how many times longer the student's code may take (`speed.py`).
        lab: the name of the only lab whose submissions are graded; empty: of all.
    """
    began = _cpu_s()
    known: dict[str, Any] = {}
    try:
        with _on_this_machine(scratch):
            if archive.is_dir():
                submission = read_submission(archive, archive)
            else:
                submission = unpack(archive, scratch / "submission")
            known = {"lab": submission.lab, "student": submission.student}
            _refuse_another_lab(archive, submission, lab)
            directory = load_lab(lab_named(f"{SUBMISSION}: lab", submission.lab, labs))
            known["prints"] = prints = prints_of(submission, directory)
            known["remarks"] = remarks_on_known_code(prints, directory)
            graded = _Grading(submission, directory, course_key, scratch).grade(
                archive.name, slowness
            )
            remarks = (*known["remarks"], *graded.remarks)
            graded = graded.model_copy(update={"prints": prints, "remarks": remarks})
    except TestbedError as error:
        by_machine = isinstance(error, MachineError)
        graded = Grade(file=archive.name, error=str(error), by_machine=by_machine, **known)
    return graded.model_copy(update={"cpu_s": round(_cpu_s() - began, 2)})


@contextmanager
def _on_this_machine(scratch: Path) -> Iterator[None]:
    """Where the block fails for want of space, say so: it is not the submission's fault.

    Raises:
        MachineError: no space is left.
    """
    try:
        yield
    except Exception as error:
        if not is_full(scratch):
            raise
        what = f"no space is left on the file system of {scratch}"
        remedy = "free some, or name another directory: TMPDIR=DIR"
        raise MachineError(what, remedy) from error


def _refuse_another_lab(archive: Path, submission: Submission, lab: str) -> None:
    """Refuse a submission of another lab than the one that is graded.

    Raises:
        InputError: it is of another lab.
    """
    if lab and submission.lab != lab:
        remedy = f"hand in the file that testbed lab submit makes in the directory of {lab}"
        found = f"a submission of lab {submission.lab}"
        raise InputError.of(archive.name, found, f"one of lab {lab}", remedy)


def _cpu_s() -> float:
    """CPU time of this process and of those that it has started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class _Grading:
    def __init__(
        self,
        submission: Submission,
        directory: LabDirectory,
        course_key: bytes | None,
        scratch: Path,
    ) -> None:
        self._submission = submission
        self._scratch = scratch
        self._remarks: list[str] = []
        self._right_key = True
        self._restrictions: dict[str, None] = {}
        self._unlimited = False
        key = submission.key
        if course_key is not None:
            if not submission.student:
                remedy = "begin it again: testbed lab start LAB --reset --student NAME --key KEY"
                expected = "the name of a student in the course"
                raise InputError.of(f"{SUBMISSION}: student", "no student", expected, remedy)
            key = student_key(course_key, submission.student)
            self._right_key = key == submission.key
            if not self._right_key:
                self._remarks.append(
                    f"made with another key than that of {submission.student}: graded "
                    "with the seed that the right key gives"
                )
        elif submission.student and not fits(key, submission.student):
            self._right_key = False
            self._remarks.append(
                f"made with a key that is not that of {submission.student}: look whose work it is"
            )
        self._assignment = Assignment(directory, key, submission.directory / FILES)
        self._refuse_another_version()
        self._summaries: dict[str, Summary] = {}
        self._failed: dict[str, str] = {}

    def _refuse_another_version(self) -> None:
        """Refuse work of another version: its runs and questions are other ones.

        Raises:
            InputError: it is of another version, by what the submission says itself.
        """
        submission, here = self._submission, code_version()
        versions = submission.versions([*self._assignment.directory.lab.runs])
        others = [version for version in versions if version[0] != here]
        asked_here = questions_digest(self._assignment)
        is_believed = submission.key == self._assignment.key
        other_questions = is_believed and submission.questions != asked_here
        if others:
            code, testbed = others[0]
            raise InputError.of(
                SUBMISSION,
                f"work of testbed {testbed}, code {code}",
                f"work of testbed {describe_version()}, code {here}",
                "install this version, make the runs again (testbed lab status shows which), "
                "check the answers, and hand in again",
            )
        if other_questions:
            raise InputError.of(
                SUBMISSION,
                "answers to other questions",
                f"those that testbed {describe_version()} asks {submission.student or 'here'}",
                "begin again with this version and your own name and key: testbed lab start LAB "
                "--reset",
            )

    def grade(self, name: str, slowness: float) -> Grade:
        submission, lab = self._submission, self._assignment.directory.lab
        self._remark_on_journal()
        evidence = Evidence(self._assignment, dict(self._runs(slowness)))
        answers, unreadable = self._answers()
        tasks = tuple(self._task(task, answers, unreadable, evidence) for task in lab.tasks)
        return Grade(
            file=name,
            lab=self._assignment.directory.name,
            student=submission.student,
            submitted=submission.submitted,
            tasks=tasks,
            remarks=tuple(self._remarks),
            right_key=self._right_key,
            confined=tuple(self._restrictions),
            unlimited=self._unlimited,
        )

    def _remark_on_journal(self) -> None:
        """Say what is odd of who did the work and when, by the journal that was handed in."""
        submission = self._submission
        began = next((e.content for e in submission.journal if e.kind == "start"), {})
        said = str(began.get("student", ""))
        if plain_name(said) != plain_name(submission.student):
            self._remarks.append(f"begun by {short(said) or 'somebody without a name'}")
        elif began.get("key") != submission.key:
            self._remarks.append("begun with another key than that of the submission")
        if submission.submitted > in_utc(datetime.now(UTC) + _WRONG_CLOCK):
            self._remarks.append(f"the journal ends at {submission.submitted}, which is to come")

    def _answers(self) -> tuple[Document | None, str]:
        """The answers, or why they cannot be read."""
        try:
            return read_answers(self._submission.answers, self._assignment), ""
        except InputError as error:
            return None, self._said(error)

    def _runs(self, slowness: float) -> Iterator[tuple[str, Path]]:
        """Simulate each run that counts; each with the directory of the grader's records."""
        for run, planned in self._assignment.directory.lab.runs.items():
            if self._submission.made(run) is None or self._unpredicted(run):
                continue
            records = self._scratch / run
            records.mkdir()
            with run_apart(slowness) as restrictions:
                try:
                    summary = simulate_into(records, self._assignment.scenario(run))
                except InputError as error:  # of the student's code
                    self._failed[run] = self._said(error)
            if planned.code:
                self._restrictions |= restrictions or {}
                self._unlimited |= restrictions is None
            self._compare(run, records)
            if run not in self._failed:
                self._summaries[run] = summary
                yield run, records

    def _compare(self, run: str, records: Path) -> None:
        """Say how what was handed in of a run differs from the grader's."""
        last, handed_in = self._submission.made(run), self._submission.run(run)
        files = self._assignment.directory.lab.runs[run].code_files
        if last is not None and last.content.get("code") != self._assignment.code_digest(run):
            self._remarks.append(
                f"the run {run} was made with another {', '.join(files)} than the one handed in"
            )
        if not handed_in.is_dir():  # not made again after the code was changed, or lost
            self._remarks.append(f"no records of {run} were handed in")
        elif run not in self._failed and (differing := differing_tables(handed_in, records)):
            self._remarks.append(
                f"the records of {run} are not what its seed gives ({', '.join(differing)})"
            )

    def _said(self, error: InputError) -> str:
        """The first problem of a submission's file, without the path that it was unpacked to."""
        problem = error.problems[0]
        where = problem.where.rpartition("/")[2]
        text = str(type(problem)(where, problem.found, problem.expected))
        unpacked = self._submission.directory / FILES
        for place in (unpacked, relative_to_here(unpacked)):
            text = text.replace(f"{place}/", "") if place.name else text
        return text

    def _unpredicted(self, run: str) -> list[str]:
        journal = self._submission.journal
        before = journal[: _place(journal, "run", run=run)]
        predictions = self._assignment.directory.lab.predictions(run)
        return [p.id for p in predictions if _place(before, "prediction", task=p.id) is None]

    def _task(
        self, task: Task, answers: Document | None, unreadable: str, evidence: Evidence
    ) -> TaskGrade:
        if task.is_prediction:
            reason = self._uncounted_prediction(task)
            return _graded(task, "lost" if reason else "earned", reason)
        reason = next(filter(None, map(self._uncounted, task.after)), "")
        reason = unreadable or reason
        if not reason and answers is not None:
            reason = self._wrong(task, answers, evidence)
        return _graded(task, "lost" if reason else "earned", reason)

    def _uncounted_prediction(self, task: Task) -> str:
        """Why a prediction does not count; empty if it does."""
        if self._submission.made(task.before) is None:
            return f"the run {task.before} was not made"
        missing = task.id in self._unpredicted(task.before)
        return f"no prediction before the run {task.before}" if missing else ""

    def _uncounted(self, run: str) -> str:
        """Why a run does not count; empty if it does."""
        if self._submission.made(run) is None:
            return f"the run {run} was not made"
        missing = self._unpredicted(run)
        if missing:
            return f"the run {run} does not count: no prediction {missing[0]} before"
        if run in self._failed:
            return f"the run {run} ends with an error: {self._failed[run]}"
        if self._summaries[run].verdict == "trusted":
            return ""
        # a simulated run is the same on every machine: the student's code is the cause
        why = " ".join(("it cannot be trusted", *self._summaries[run].reasons[:1]))
        return f"the run {run} does not count: {why}"

    def _wrong(self, task: Task, answers: Document, evidence: Evidence) -> str:
        """What is wrong with an answer, but not in which direction; empty if it is right."""
        try:
            return checking.check(task, answers, evidence, attempts=checking.DIRECTED).reason
        except InputError as error:
            return self._said(error)
        except RunFailedError as error:  # what the student's code did leaves no such figure
            return str(error).partition("\n")[0]


def _graded(task: Task, status: Status, reason: str) -> TaskGrade:
    return TaskGrade(
        task=task.id,
        title=task.title,
        points=0 if status == "lost" else task.points,
        max_points=task.points,
        status=status,
        reason=" ".join(reason.split()),
    )


def _place(entries: Sequence[Entry], kind: str, **content: object) -> int | None:
    """The place of the first entry of a kind with these values; None if there is none."""
    for place, entry in enumerate(entries):
        if entry.kind == kind and content.items() <= entry.content.items():
            return place
    return None


def main() -> None:
    """Read the request, limit this process, grade, and write the grade as JSON."""
    request = json.load(sys.stdin)
    if sys.platform != "win32":
        limit_this_process(request["slowness"])
    key = request["course_key"]
    graded = grade(
        Path(request["archive"]),
        Path(request["labs"]),
        None if key is None else bytes.fromhex(key),
        Path(request["scratch"]),
        request["slowness"],
        request["lab"],
    )
    sys.stdout.write(graded.model_dump_json())


if __name__ == "__main__":
    main()
