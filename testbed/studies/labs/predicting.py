"""Predictions: answers that are written down before the run that they are about."""

from dataclasses import dataclass
from typing import Any

from testbed.model.errors import InputError, RefusedValueError
from testbed.studies.labs.answers import form_of, parse_answer, show_answer
from testbed.studies.labs.checking import unit_of
from testbed.studies.labs.evidence import Evidence
from testbed.studies.labs.lab import ChoiceAnswer, NumberAnswer, Task
from testbed.studies.labs.quantities import (
    Tolerance,
    example,
    parse_number,
    parse_tolerance,
    show_quantity,
)
from testbed.studies.labs.work import AGAIN, Entry, Work


def predict(work: Work, task: Task, text: str, within: str | None) -> Entry:
    """Write a prediction into the journal.

    Args:
        work: the student's.
        task: the prediction that the lab asks for.
        text: what the student expects.
        within: how far the figure may be from it for the student to call it right.

    Raises:
        InputError: it has not the form that was asked for, or comes too late.
    """
    made = work.last("run", run=task.before) or work.last("emulated", run=task.before)
    if made is not None:  # trusted or not: it has shown figures
        expected = f"a prediction before the run {task.before}, which was made"
        remedy = f"keep the one you made; {AGAIN}"
        raise InputError.of(task.id, text, expected, remedy)
    text, within = _with_blank(task, text, within)
    try:
        value = parse_answer(text, task.answer)
    except RefusedValueError as error:
        remedy = error.remedy or f"testbed lab predict {task.id} {_example(task)}"
        raise InputError.of(task.id, text, error.expected or form_of(task.answer), remedy) from None
    try:
        tolerance = _tolerance(task, within)
    except RefusedValueError as error:
        remedy = error.remedy or "such as --within 20%"
        raise InputError.of("--within", str(within), error.expected, remedy) from None
    content: dict[str, Any] = {"task": task.id, "value": value, "text": text}
    if tolerance is not None and isinstance(value, int | float):
        content["within"] = tolerance.around(value)
    return work.journal.append("prediction", **content)


def show_prediction(task: Task, entry: Entry) -> str:
    """A prediction as text: `1.5 RTT, within 0.5 RTT`."""
    value, within = entry.content["value"], entry.content.get("within")
    shown = show_answer(tuple(value) if isinstance(value, list) else value, task.answer)
    if not within or not isinstance(within, int | float):
        return shown
    return f"{shown}, within {show_quantity(within, unit_of(task))}"


def outcomes(work: Work, run: str) -> list[str]:
    """What a run says to each prediction that it was made for: of a student's code the first run.

    Later ones have other code than what the prediction is about.
    """
    lab = work.assignment.directory.lab
    made = [*work.entries("run", run=run, verdict="trusted")]
    if lab.runs[run].code and len(made) > 1:
        return []
    evidence, said = work.evidence(), []
    for task in lab.predictions(run):
        entry = work.last("prediction", task=task.id)
        if entry is not None and (text := outcome(task, entry, evidence)):
            why = f". {work.assignment.text(task.explanation)}" if task.explanation else ""
            said.append(f"{task.id}: {text}{why}")
    return said


def outcome(task: Task, entry: Entry, evidence: Evidence) -> str:
    """What a run says to a prediction of a number; empty if the task names no figure."""
    if task.figure is None:
        return ""
    value, shown = evidence.value(task.figure, unit_of(task)), show_prediction(task, entry)
    measured = evidence.show(task.figure, unit_of(task))
    predicted, within = entry.content["value"], entry.content.get("within")
    if all(isinstance(number, int | float) for number in (value, predicted, within)):
        right = abs(value - predicted) <= within
    else:
        right = str(predicted) == str(value)
    return f"you predicted {shown}; your run shows {measured}: {'right' if right else 'not so'}"


def _with_blank(task: Task, text: str, within: str | None) -> tuple[str, str | None]:
    """What is expected, and a tolerance that was given as two words: `3 RTT --within 0.5 RTT`.

    The command line takes the second one for a part of what is expected.
    """
    words = text.split()
    if within is None or not words or _is_right(task, text):
        return text, within
    for unit, others in ((words[-1], words[:-1]), (words[0], words[1:])):
        if not unit[0].isdecimal() and _is_right(task, " ".join(others)):
            return " ".join(others), f"{within} {unit}"
    return text, within


def _is_right(task: Task, text: str) -> bool:
    """Whether a text has the form that a task asks for."""
    try:
        parse_answer(text, task.answer)
    except RefusedValueError:
        return False
    return True


def _tolerance(task: Task, within: str | None) -> Tolerance | None:
    if not isinstance(task.answer, NumberAnswer):
        if within is not None:
            raise RefusedValueError("no tolerance: this is no number", remedy="leave it out")
        return None
    if within is None:
        return task.answer.within
    try:
        return parse_tolerance(within)
    except RefusedValueError as refused:
        return _in_unit(within, task.answer.unit, refused.expected)


def _in_unit(within: str, unit: str, expected: str) -> Tolerance:
    """A tolerance that is written as an answer is: `0.5 rtt`, `1 packet`.

    Raises:
        RefusedValueError: it is none; `expected` says what is.
    """
    try:
        return parse_tolerance(parse_number(within, unit))
    except RefusedValueError as error:
        raise RefusedValueError(expected, remedy=error.remedy) from None


def _example(task: Task) -> str:
    match task.answer:
        case NumberAnswer(unit=unit):
            return f'"{example(unit)}"'
        case ChoiceAnswer(options=options):
            return next(iter(options))
        case _:
            return "..."


# --------------------------------------------------------------------------------------------------
# Hints: one more after each attempt, all of them after success.


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
