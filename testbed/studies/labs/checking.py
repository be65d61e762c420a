"""Whether an answer is right, and if not, the first thing that is wrong, in the student's terms."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.model.errors import InputError
from testbed.model.files.reading import Document
from testbed.studies.labs.answers import ANSWERS, Value, parsed, remark_remedy, show_answer
from testbed.studies.labs.evidence import Evidence, canonical
from testbed.studies.labs.lab import (
    ChoiceAnswer,
    Mistake,
    NamesAnswer,
    NumberAnswer,
    ScoreAnswer,
    Task,
    TextAnswer,
)
from testbed.studies.labs.quantities import Tolerance, names_a_thing, show_apart, show_quantity

QUOTED = Tolerance(0.02, relative=True)
"""How far a number in a text may be from the figure that it quotes: rounding."""

_ROUNDED = ((1, 0.1), (2, 0.01))
"""Decimals with which a text may quote a figure, and the least such figure: a 0 quotes none."""

DIRECTED = 5
"""After so many different wrong answers a student no longer hears more or less: who halves the
range each time would find any number without a look at the run."""

_IN_TEXT = re.compile(r"\d+(?:\.\d+)?")
_NAME_IN_TEXT = re.compile(r"(?<!\w)(?!x\d)[a-z]\w*", re.IGNORECASE)
"""A word or a name such as p0_t1_2, whose digits are no numbers; in x4 the 4 is one."""

_DECIMAL_COMMA = re.compile(r"(\d+),(\d+)")
_GROUPING_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came of checking a task.

    Attributes:
        task: the task.
        answer: the answer as text; empty if there is none.
        passed: whether it is right.
        missing: whether there is no answer, or the run for it was not made.
        reason: what is wrong; empty if it is right.
    """

    task: Task
    answer: str
    passed: bool
    missing: bool = False
    reason: str = ""


def check(task: Task, document: Document, evidence: Evidence, *, attempts: int = 0) -> CheckResult:
    """Check an answer; `attempts` is how many different wrong ones were checked before.

    Raises:
        InputError: the answer has not the form that was asked for.
        RunFailedError: a run has no such figure.
    """
    if isinstance(task.answer, ScoreAnswer):
        return _scored(task, task.answer, document, evidence)
    answer = parsed(document, task)
    missing = _missing_run(task, evidence)
    if answer is None and missing and not remark_remedy(document, task):
        return CheckResult(task, "", passed=False, missing=True, reason=missing)
    if answer is None:
        reason = f"no answer yet: write it behind {task.id}: in {ANSWERS}"
        if remedy := remark_remedy(document, task):
            reason = f"{reason}. Look: {remedy}."
        return CheckResult(task, "", passed=False, missing=True, reason=reason)
    shown = show_answer(answer, task.answer)
    if missing:
        return CheckResult(task, shown, passed=False, missing=True, reason=missing)
    if isinstance(task.answer, NamesAnswer) and isinstance(answer, tuple):
        _refuse_misspelt(task.id, document, answer, _listed(right_answer(task, evidence)))
        _refuse_other_form(task.id, document, answer, task.answer)
    reason = _wrong(task, answer, evidence, directed=attempts < DIRECTED)
    if reason and (remedy := remark_remedy(document, task)):
        reason = f"{reason} Look: {remedy}."
    return CheckResult(task, shown, passed=not reason, reason=reason)


_NUMBER = re.compile(r"\d+")


def _refuse_misspelt(
    where: str, document: Document, given: Sequence[str], right: Iterable[object]
) -> None:
    """Refuse a name that has other characters between its numbers than such names have.

    Raises:
        InputError: there is one: `p2_t1_1` where `p0/t1_0` is a path.
    """
    forms = {_letters(str(name)): str(name) for name in right}
    for name in given:
        form = forms.get(_letters(name), "")
        spelt = _with_numbers_of(name, form)
        if form and spelt != name:
            remedy = f"did you mean {spelt}?"
            raise InputError.of(document.where(where), name, "a name as the tables have it", remedy)


def _refuse_other_form(
    where: str, document: Document, given: Sequence[str], names: NamesAnswer
) -> None:
    """Refuse a name that is none of the kind that is asked for: no attempt was made yet.

    Raises:
        InputError: there is one: `t1_0` where paths such as `p0/t1_2` are asked for.
    """
    for name in given:
        if not names.has_form(name):
            expected = f"{names.of}, such as {names.like}"
            raise InputError.of(document.where(where), name, expected)


def _letters(name: str) -> str:
    """What names have in common that differ by their numbers and by what stands between these."""
    return re.sub(r"[^a-z0-9]", "", _NUMBER.sub("0", name).lower())


def _with_numbers_of(name: str, form: str) -> str:
    """A form in which the numbers are those of a name."""
    numbers = iter(_NUMBER.findall(name))
    return _NUMBER.sub(lambda _: next(numbers), form)


def _missing_run(task: Task, evidence: Evidence) -> str:
    """What a task still needs before it can be checked; empty if nothing."""
    for run in task.after:
        if run not in evidence.runs:
            files = ", ".join(evidence.assignment.directory.lab.runs[run].code_files)
            present = f", made with {files} as it is now" if files else ""
            return f"it needs the run {run}{present}: testbed lab run {run}"
    return ""


def _scored(task: Task, bound: ScoreAnswer, document: Document, evidence: Evidence) -> CheckResult:
    """Check a figure of the runs of the student's code against its bound."""
    missing = _missing_run(task, evidence)
    if missing or task.figure is None:
        return CheckResult(task, "", passed=False, missing=True, reason=missing)
    value = evidence.value(task.figure, bound.unit)
    number = float("inf") if value is None else float(value)
    shown = "never" if number == float("inf") else show_quantity(number, bound.unit)
    if bound.at_most is not None:
        passed, side, limit = number <= bound.at_most, "at most", bound.at_most
    else:
        limit = float(bound.at_least or 0)
        passed, side = number >= limit, "at least"
    for name in task.together if passed else ():
        other = evidence.assignment.directory.lab.task(name)
        result = None if other is None else check(other, document, evidence)
        if result is not None and not result.passed:
            reason = f"{evidence.called(task.figure)} is {shown}, but {name} has to pass, too."
            return CheckResult(task, shown, passed=False, reason=f"{reason} {result.reason}")
    if passed:
        return CheckResult(task, shown, passed=True)
    look = f" {evidence.assignment.text(task.look)}" if task.look else ""
    shown, wanted = show_apart(number, limit, bound.unit)
    reason = f"{evidence.called(task.figure)} is {shown}; {side} {wanted} passes.{look}"
    return CheckResult(task, shown, passed=False, reason=reason)


def right_answer(task: Task, evidence: Evidence) -> Any:
    """The answer of a task that is not a text."""
    if task.figure is not None:
        return evidence.value(task.figure, unit_of(task))
    expected = task.expected
    return evidence.assignment.text(expected) if isinstance(expected, str) else expected


def unit_of(task: Task) -> str:
    """The unit of a task's number; empty if it is none."""
    return task.answer.unit if isinstance(task.answer, NumberAnswer) else ""


def _wrong(task: Task, answer: Value, evidence: Evidence, *, directed: bool) -> str:
    """What is wrong with an answer, also in which direction; empty if nothing is."""
    if isinstance(task.answer, TextAnswer):
        return _unquoted(task, str(answer), evidence)
    right = right_answer(task, evidence)
    if _equal(task, answer, right):
        return ""
    for mistake in task.mistakes:
        if (mistake.above or mistake.below) and not directed:
            continue
        text = _explanation(task, mistake, answer, evidence)
        if text:
            return text
    look = f" {evidence.assignment.text(task.look)}" if task.look else ""
    return f"{_difference(task, answer, right, directed=directed)}{look}"


def _equal(task: Task, answer: Value, right: Any) -> bool:
    match task.answer:
        case NumberAnswer() as number:
            return number.within.allows(float(str(answer)), float(right))
        case NamesAnswer() as names:
            return bool(answer == canonical(_listed(right), ordered=names.ordered))
        case _:
            return str(answer).lower() == str(right).lower()


def _listed(right: Any) -> Any:
    return [right] if isinstance(right, str) else right


def _explanation(task: Task, mistake: Mistake, answer: Value, evidence: Evidence) -> str:
    """What to say to an answer if this mistake was made; empty if it was not."""
    figure = mistake.figure or mistake.above or mistake.below
    if figure is None:
        is_mistake = str(answer).lower() == str(mistake.equals).lower()
    else:
        is_mistake = _compares(task, mistake, answer, evidence.value(figure, unit_of(task)))
    if not is_mistake:
        return ""
    shown = "" if figure is None else evidence.show(figure, unit_of(task))
    text = evidence.assignment.text(mistake.because)
    return text.replace("{answer}", show_answer(answer, task.answer)).replace("{figure}", shown)


def _compares(task: Task, mistake: Mistake, answer: Value, value: Any) -> bool:
    if mistake.figure is not None:
        return _equal(task, answer, value)
    number = float(str(answer))
    return number > float(value) if mistake.above is not None else number < float(value)


def _difference(task: Task, answer: Value, right: Any, *, directed: bool) -> str:
    """How a wrong answer differs, without the right one."""
    shown = show_answer(answer, task.answer)
    match task.answer:
        case NumberAnswer(unit=unit) if names_a_thing(unit) or (task.after and not directed):
            return f"{shown} is not what your run shows."
        case NumberAnswer():
            side = "more" if float(str(answer)) > float(right) else "less"
            return (
                f"{shown} is {side} than your run shows." if task.after else f"{shown} is not it."
            )
        case NamesAnswer() as names:
            answered = answer if isinstance(answer, tuple) else ()
            return _names_difference(names, answered, tuple(map(str, _listed(right))))
        case ChoiceAnswer() as choice:
            return f"{shown} ({choice.options[shown]}) is not what your run shows."
        case _:
            return f"{shown} is not it."


def _names_difference(names: NamesAnswer, given: tuple[str, ...], right: tuple[str, ...]) -> str:
    wrong = [name for name in given if name not in right]
    if wrong:
        return f"{wrong[0]} is not one of the {names.of} that are asked for."
    if names.ordered and len(given) != len(right):
        number = "more" if len(given) < len(right) else "fewer"
        return f"Your list has {len(given)} {names.of}; there are {number}: one can occur twice."
    if len({*given}) < len({*right}):
        return f"{len({*given})} of the {len({*right})} {names.of}: some are missing."
    return f"These are the {names.of}, but their order is another."


def _unquoted(task: Task, text: str, evidence: Evidence) -> str:
    """The first figure that a text should quote and does not; empty if there is none."""
    numbers = _numbers_in(text)
    for figure in task.quotes:
        value = evidence.value(figure)
        if not isinstance(value, int | float):
            names = canonical(_listed(value))
            missing = [name for name in names if str(name) not in text]
            if missing:
                return f"The text does not name {evidence.called(figure)}."
            continue
        size = abs(float(value))
        if not any(_quotes(number, size) for number in numbers):
            reason = f"The text does not quote {evidence.called(figure)}."
            return f"{reason}{_decimal_point(text, size)}"
    return ""


def _decimal_point(text: str, value: float) -> str:
    """What to write where a text quotes a figure with a decimal comma; empty if it does not."""
    found = _DECIMAL_COMMA.findall(_NAME_IN_TEXT.sub(" ", text))
    meant = (f"{whole}.{decimals}" for whole, decimals in found)
    quoted = next((number for number in meant if _quotes(float(number), value)), "")
    return f" Write {quoted}, with a decimal point." if quoted else ""


def _numbers_in(text: str) -> list[float]:
    """The numbers of a text, without those that are part of a name such as h0 or p0_t1_2."""
    without_names = _GROUPING_COMMA.sub("", _NAME_IN_TEXT.sub(" ", text))
    return [float(number) for number in _IN_TEXT.findall(without_names)]


def _quotes(number: float, value: float) -> bool:
    """Whether a number is a figure, as such, in percent, or in thousands; also if rounded.

    Both are without sign: a text says that something is less, or lost.
    """
    if any(QUOTED.allows(number, value * scale) for scale in (1, 100, 1e-3, 1e-6)):
        return True
    return any(
        form >= least and round(form, decimals) == number
        for form in (value, value * 100)
        for decimals, least in _ROUNDED
    )
