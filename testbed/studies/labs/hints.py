"""Hints: one more after each attempt, all of them after success."""

from dataclasses import dataclass

from testbed.studies.labs.lab import Task
from testbed.studies.labs.work import Work


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of a task.

    Attributes:
        shown: those that the student may read.
        total: how many there are.
        attempts: the different wrong answers so far.
        passed: whether the task is done, so that all are shown.
    """

    shown: tuple[str, ...]
    total: int
    attempts: int
    passed: bool


def attempts(work: Work, task: Task) -> int:
    """How many different wrong answers a student has had checked."""
    entries = work.entries("attempt", task=task.id, passed=False)
    return len({str(entry.content["answer"]) for entry in entries})


def hints(work: Work, task: Task) -> Hints:
    """The hints that a student may read: as many as there were attempts."""
    attempted, passed = attempts(work, task), work.passed(task)
    count = len(task.hints) if passed else min(attempted, len(task.hints))
    texts = tuple(work.assignment.text(hint) for hint in task.hints[:count])
    return Hints(texts, len(task.hints), attempted, passed)


def hints_read(work: Work, task: Task) -> int:
    """How many hints of a task a student read before it was done."""
    read = (int(entry.content["number"]) for entry in work.entries("hint", task=task.id))
    return max(read, default=0)
