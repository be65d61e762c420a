"""The grade of one submission: every run is simulated again, every figure computed again."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.files.catalog import relative_to_here
from testbed.files.documents import Document
from testbed.host.own_code import run_apart
from testbed.labs import checking
from testbed.labs.answers import read_answers
from testbed.labs.assignment import Assignment
from testbed.labs.evidence import Evidence
from testbed.labs.grading.grades import Grade, Status, TaskGrade
from testbed.labs.grading.handed_in import HandedIn
from testbed.labs.grading.records import differing_tables
from testbed.labs.grading.submission import (
    FILES,
    SUBMISSION,
    Submission,
    content_digest,
    read_submission,
    unpack,
)
from testbed.labs.journal import Entry, first_break
from testbed.labs.lab import NamesAnswer, Task
from testbed.labs.library import lab_directories, load_lab
from testbed.labs.students import student_key
from testbed.model.errors import InputError, RunFailedError, TestbedError
from testbed.results.code_version import code_version

if TYPE_CHECKING:
    from testbed.model.summary import Summary


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
    known = {}
    try:
        if archive.is_dir():
            submission = read_submission(archive, archive)
        else:
            submission = unpack(archive, scratch / "submission")
        known = {
            "lab": submission.lab,
            "student": submission.student,
            "content": content_digest(submission.directory),
        }
        _refuse_another_lab(archive, submission, lab)
        graded = _Grading(submission, labs, course_key, scratch).grade(archive.name, slowness)
    except TestbedError as error:
        graded = Grade(file=archive.name, error=str(error), **known)
    cpu_s = round(_cpu_s() - began, 2)
    return graded.model_copy(update={"cpu_s": cpu_s, "content": known.get("content", "")})


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
    """The grading of one submission."""

    def __init__(
        self, submission: Submission, labs: Path, course_key: bytes | None, scratch: Path
    ) -> None:
        self._submission = submission
        self._scratch = scratch
        self._remarks: list[str] = []
        directory = load_lab(_lab(submission.lab, labs))
        key = submission.key
        if course_key is not None:
            if not submission.student:
                remedy = "begin it again: testbed lab start LAB --reset --student NAME --key KEY"
                expected = "the name of a student in the course"
                raise InputError.of(f"{SUBMISSION}: student", "no student", expected, remedy)
            key = student_key(course_key, submission.student)
            if key != submission.key:
                self._remarks.append(
                    f"made with another key than that of {submission.student}: graded "
                    "with the seed that the right key gives"
                )
        self._assignment = Assignment(directory, key, submission.directory / FILES)
        self._summaries: dict[str, Summary] = {}
        self._failed: dict[str, str] = {}
        self._emulated_runs: set[str] = set()
        self._handed_in = HandedIn(submission, self._assignment)

    def grade(self, name: str, slowness: float) -> Grade:
        submission, lab = self._submission, self._assignment.directory.lab
        broken = first_break(submission.journal)
        if broken is not None:
            self._remarks.append(f"the journal was changed: entry {broken} does not follow")
        if submission.code != code_version():
            self._remarks.append("made by another version of the testbed")
        with run_apart(slowness) as restrictions:
            evidence = Evidence(self._assignment, dict(self._runs()))
        answers, unreadable = self._answers()
        tasks = tuple(self._task(task, answers, unreadable, evidence) for task in lab.tasks)
        return Grade(
            file=name,
            lab=self._assignment.directory.name,
            student=submission.student,
            submitted=submission.journal[-1].time if submission.journal else "",
            tasks=tasks,
            remarks=tuple(self._remarks),
            confined=tuple(restrictions or ()),
            unlimited=restrictions is None
            and any(lab.runs[run].code for run in (*evidence.runs, *self._failed)),
        )

    def _answers(self) -> tuple[Document | None, str]:
        """The answers, or why they cannot be read."""
        try:
            return read_answers(self._submission.answers, self._assignment), ""
        except InputError as error:
            return None, self._said(error)

    def _runs(self) -> Iterator[tuple[str, Path]]:
        """Each run that counts, with the records that its figures come from."""
        from testbed.results.analyse import analyse  # noqa: PLC0415 - these take long
        from testbed.sim import simulate  # noqa: PLC0415

        for run, planned in self._assignment.directory.lab.runs.items():
            if self._journal_index(run) is None or self._unpredicted(run):
                continue
            again = self._scratch / run
            if planned.code:
                self._remark_on_code(run)
            elif self._handed_in.emulated(run):
                self._emulated_runs.add(run)
                self._remarks.append(
                    f"the run {run} was emulated, which gives other records each time: graded by "
                    "its own"
                )
                again = self._submission.run(run)
                self._summaries[run] = analyse(again, drawn=False)
                yield run, again
                continue
            again.mkdir()
            try:
                simulate(self._assignment.scenario(run), again)
            except InputError as error:  # of the student's code
                self._failed[run] = self._said(error)
                continue
            records = self._believed(run, again)
            self._summaries[run] = analyse(records, drawn=False)
            yield run, records

    def _remark_on_code(self, run: str) -> None:
        """Say what of a run with the student's code is not graded: it is always simulated again."""
        changed = self._handed_in.changed_code(run)
        if changed:
            self._remarks.append(
                f"the run {run} was made with another {changed} than the one handed in: graded by "
                "a simulation with what was handed in"
            )
        if self._handed_in.claims_emulation(run):
            self._remarks.append(
                f"the run {run} was emulated with code of the student's: graded by a simulation "
                "with this code"
            )

    def _believed(self, run: str, again: Path) -> Path:
        """The records of a run that are graded, after a comparison with the simulation."""
        handed_in = self._submission.run(run)
        if not handed_in.is_dir():  # not made again after the code was changed, or lost
            self._remarks.append(
                f"no records of {run} were handed in: graded by what its seed gives"
            )
            return again
        with_code = bool(self._assignment.directory.lab.runs[run].code)
        if with_code and self._handed_in.claims_emulation(run):
            return again
        differing = differing_tables(handed_in, again)
        if not differing:
            return again
        difference = f"the records of {run} are not what its seed gives ({', '.join(differing)})"
        versions = self._handed_in.versions(run)
        if len(versions) > 1:
            difference += f"; they name {len(versions)} versions of the testbed"
        if not with_code and self._handed_in.of_another_version(run) and self._handed_in.whole(run):
            self._remarks.append(
                f"{difference}: graded by the records, as another version may have made them; look "
                "whether they were edited"
            )
            return handed_in
        self._remarks.append(f"{difference}: graded by what it gives")
        return again

    def _said(self, error: InputError) -> str:
        """The first problem of a submission's file, without the path that it was unpacked to."""
        problem = error.problems[0]
        where = problem.where.rpartition("/")[2]
        text = str(type(problem)(where, problem.found, problem.expected))
        unpacked = self._submission.directory / FILES
        for place in (unpacked, relative_to_here(unpacked)):
            text = text.replace(f"{place}/", "") if place.name else text
        return text

    def _journal_index(self, run: str) -> int | None:
        """The place in the journal at which a run was first made; None if it was not."""
        return _place(self._submission.journal, "run", run=run)

    def _unpredicted(self, run: str) -> list[str]:
        """The predictions that are missing before a run."""
        run_index = self._journal_index(run)
        before = self._submission.journal[:run_index]
        predictions = self._assignment.directory.lab.predictions(run)
        return [p.id for p in predictions if _place(before, "prediction", task=p.id) is None]

    def _task(
        self, task: Task, answers: Document | None, unreadable: str, evidence: Evidence
    ) -> TaskGrade:
        if task.is_prediction:
            return self._prediction(task)
        reason, untrusted = unreadable, ""
        for run in task.after:
            reason = reason or self._uncounted(run)
            if run in self._emulated_runs and self._summaries[run].verdict != "trusted":
                untrusted = f"the run {run} cannot be trusted, which costs nothing"
        if not reason and untrusted and answers is not None:
            reason = self._unanswered(task, answers)
        if reason or answers is None:
            return _graded(task, "lost", reason)
        wrong = self._wrong(task, answers, evidence)
        if wrong and untrusted:
            return _graded(task, "unknown", untrusted)
        return _graded(task, "lost" if wrong else "earned", wrong)

    def _uncounted(self, run: str) -> str:
        """Why a run does not count; empty if it does, as does an emulated one in any case."""
        if self._journal_index(run) is None:
            return f"the run {run} was not made"
        missing = self._unpredicted(run)
        if missing:
            return f"the run {run} does not count: no prediction {missing[0]} before"
        if run in self._failed:
            return f"the run {run} ends with an error: {self._failed[run]}"
        if run in self._emulated_runs or self._summaries[run].verdict == "trusted":
            return ""
        # a simulated run is the same on every machine
        return f"the run {run} does not count: {self._untrusted(run)}"

    def _unanswered(self, task: Task, answers: Document) -> str:
        """Why a task has no answer that can be read, whatever its runs show; empty if it has."""
        try:
            result = checking.check(task, answers, Evidence(self._assignment, {}))
        except InputError as error:
            return self._said(error)
        if not result.answer and not task.is_score:
            return result.reason
        names = task.answer
        if isinstance(names, NamesAnswer):
            for name in result.answer.split(", "):
                if not names.has_form(name):
                    return f"{name}: expected {names.of}, such as {names.like}"
        return ""

    def _untrusted(self, run: str) -> str:
        """Why a simulated run cannot be trusted: by what the student's code does."""
        return " ".join(("it cannot be trusted", *self._summaries[run].reasons[:1]))

    def _wrong(self, task: Task, answers: Document, evidence: Evidence) -> str:
        """What is wrong with an answer, but not in which direction; empty if it is right."""
        try:
            return checking.check(task, answers, evidence, attempts=checking.DIRECTED).reason
        except InputError as error:
            return self._said(error)
        except RunFailedError as error:  # what the student's code did leaves no such figure
            return str(error).partition("\n")[0]

    def _prediction(self, task: Task) -> TaskGrade:
        run_index = self._journal_index(task.before)
        if run_index is None:
            return _graded(task, "lost", f"the run {task.before} was not made")
        if task.id in self._unpredicted(task.before):
            return _graded(task, "lost", f"no prediction before the run {task.before}")
        return _graded(task, "earned")


def _lab(name: str, labs: Path) -> Path:
    """The directory of a lab, of those that are graded: a submission may name no other.

    Raises:
        InputError: there is no such lab.
    """
    if name not in {path.name for path in lab_directories(labs)}:
        expected = "the name of a lab, as testbed lab list has it"
        raise InputError.of(f"{SUBMISSION}: lab", name, expected)
    return labs / name


def _graded(task: Task, status: Status, reason: str = "") -> TaskGrade:
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
