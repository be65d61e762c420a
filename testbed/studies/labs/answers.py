"""Answers: the file `answers.yaml` that a student fills in, and each answer as a value."""

import hashlib
import re
import textwrap
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.model.errors import InputError, Problem, RefusedValueError, did_you_mean, raise_any
from testbed.model.files.reading import Document, read_document
from testbed.rights import reading_for
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.lab import (
    AddressAnswer,
    Answer,
    ChoiceAnswer,
    NamesAnswer,
    NumberAnswer,
    ScoreAnswer,
    Task,
    TextAnswer,
)
from testbed.studies.labs.quantities import (
    counted,
    counts_things,
    example,
    parse_number,
    show_quantity,
)
from testbed.studies.labs.students import may_read

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWERS = "answers.yaml"

_WIDTH = 96
_MAX_TEXT = 20_000
_MAX_BYTES = 200_000
"""Of all answers: a grader reads them twice, and YAML of 1 MB takes 20 s."""

_LEAST_DIFFERENT = 0.4
"""Different words of a text, as a share of the words that it has to have."""

_NEW = "cd .. and testbed lab start LAB --reset makes a new one, and keeps what you have"
_NO_ANSWER = "remove it, or put # before it"

_BETWEEN = re.compile(r",|;|->|\N{RIGHTWARDS ARROW}")
"""What people write between names, beside blanks."""

Value = float | str | tuple[str, ...] | IPv6Address
"""An answer: a number in its task's unit, an option or a text, names, an address."""


def template(assignment: Assignment) -> str:
    """The file as a student gets it: each question as a comment, each answer empty."""
    lab = assignment.directory.lab
    parts = [f"# {lab.title}: your answers. testbed lab check looks at them.\n"]
    for task in lab.questions:
        if task.is_score:
            continue
        lines = [f"{task.title} ({counted(task.points, 'point')})", assignment.question(task)]
        lines += ["", f"Answer: {form_of(task.answer)}."]
        if isinstance(task.answer, ChoiceAnswer):
            lines += [f"  {key}: {text}" for key, text in task.answer.options.items()]
        wrapped = (_wrapped(line) for line in lines)
        comment = [f"# {line}".rstrip() for part in wrapped for line in part]
        # YAML would take the :: at the end of an address for the colon behind a key.
        empty = ' ""' if isinstance(task.answer, AddressAnswer) else ""
        parts.append("\n".join([*comment, f"{task.id}:{empty}"]) + "\n")
    return "\n".join(parts)


def questions_digest(assignment: Assignment) -> str:
    """A digest of all questions as a student gets them: it differs where the lab was changed."""
    asked = [assignment.question(task) for task in assignment.directory.lab.tasks]
    return hashlib.sha256("\n".join([template(assignment), *asked]).encode()).hexdigest()[:16]


def _wrapped(line: str) -> list[str]:
    """A line as several; names such as h0--p0_t0_0 stay whole, and an option stays indented."""
    indent = " " * 5 if line.startswith(" ") else ""
    wrapped = textwrap.wrap(
        line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return wrapped or [""]


def form_of(answer: Answer) -> str:
    """What an answer looks like, in words."""
    match answer:
        case NumberAnswer(unit=unit) if counts_things(unit):
            return f"a number ({unit})"
        case NumberAnswer(unit=unit):
            return f"a number with its unit, such as {example(unit)}"
        case ChoiceAnswer():
            return f"one of {', '.join(answer.options)}"
        case NamesAnswer():
            order = ", in order" if answer.ordered else ""
            like = f", such as {answer.like}" if answer.like else ""
            return f"{answer.of}{like}{order}; several as a list: [first, second]"
        case TextAnswer():
            where = "write > behind the colon, and the text below it, indented"
            return f"{answer.words} words or more; {where}"
        case AddressAnswer():
            form = "an IPv6 address, between the quotes"
        case ScoreAnswer():
            form = "none: testbed lab check looks at the runs of your code"
    return form


def read_answers(file: Path, assignment: Assignment) -> Document:
    """Read a student's answers.

    Raises:
        InputError: the file is missing, is not YAML, or has a key that is no task.
    """
    with reading_for(file.parent), may_read():
        if not file.is_file():
            similar = [other.name for other in sorted(file.parent.glob("answer*")) if other != file]
            remedy = f"rename {similar[0]} to {ANSWERS}" if similar else _NEW
            found = "no plain file" if file.exists() else "no such file"
            raise InputError.of(str(file), found, "your answers", remedy)
        size = file.stat().st_size
        if size > _MAX_BYTES:
            raise InputError.of(str(file), f"{size} bytes", f"{_MAX_BYTES} bytes at most", _NEW)
        document = read_document(file, as_text=True, remedy=_NEW)
    raise_any(document.problems)
    lab = assignment.directory.lab
    known = tuple(task.id for task in lab.questions if not task.is_score)
    predicted = {task.id for task in lab.tasks if task.is_prediction}
    unknown = [key for key in document.data if key not in known]
    if unknown:
        remedies = {key: f"a prediction: testbed lab predict {key} ..." for key in predicted}
        for task in lab.questions:
            if task.is_score:
                remedies[task.id] = (
                    f"needs no answer; testbed lab check {task.id} looks at runs of your code"
                )
        raise InputError(
            [
                Problem(
                    document.where(key),
                    key,
                    f"the id of a question: {', '.join(known)}",
                    remedies.get(key) or did_you_mean(key, known) or _NO_ANSWER,
                )
                for key in unknown
            ]
        )
    return document


def is_empty(value: object) -> bool:
    """Whether nothing was answered; a key without a value is read as an empty text."""
    return value in (None, "", [])


def parse_answer(value: object, answer: Answer) -> Value:
    """An answer as a value.

    Raises:
        RefusedValueError: it has not the form that was asked for.
    """
    match answer:
        case NumberAnswer():
            if not isinstance(value, str):
                raise RefusedValueError(form_of(answer))
            return parse_number(value, answer.unit)
        case ChoiceAnswer():
            key = str(value).strip().lower()
            by_lower = {option.lower(): option for option in answer.options}
            if key not in by_lower:
                remedy = did_you_mean(key, tuple(answer.options))
                raise RefusedValueError(form_of(answer), remedy=remedy)
            return by_lower[key]
        case NamesAnswer():
            return _names(value, answer)
        case AddressAnswer():
            try:
                return IPv6Address(str(value).strip().partition("/")[0])
            except AddressValueError:
                remedy = "eight groups, or fewer with :: where those that are 0 are left out"
                raise RefusedValueError(
                    "an IPv6 address, such as 5f00:0:1000::", remedy=remedy
                ) from None
        case TextAnswer():
            return _text(value, answer)
        case ScoreAnswer():
            raise RefusedValueError(form_of(answer))


def _names(value: object, answer: NamesAnswer) -> tuple[str, ...]:
    items = _BETWEEN.sub(" ", value).split() if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise RefusedValueError(form_of(answer))
    names = tuple(item.strip().removeprefix("0x") for item in items)
    return names if answer.ordered else tuple(sorted(set(names)))


def _text(value: object, answer: TextAnswer) -> str:
    if not isinstance(value, str):
        raise RefusedValueError(form_of(answer))
    if len(value) > _MAX_TEXT:
        raise RefusedValueError(f"a text of {_MAX_TEXT} characters at most")
    words = value.lower().split()
    if len(words) < answer.words:
        raise RefusedValueError(f"{answer.words} words or more, not {len(words)}")
    if len({*words}) < answer.words * _LEAST_DIFFERENT:
        raise RefusedValueError("sentences, not the same few words again")
    return value


def show_answer(value: Value, answer: Answer) -> str:
    if isinstance(answer, NumberAnswer) and isinstance(value, int | float):
        return show_quantity(value, answer.unit)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def remark_remedy(document: Document, task: Task) -> str:
    """What to do about a text of which YAML takes a part for a remark; empty if it takes none."""
    if not isinstance(task.answer, TextAnswer) or task.id not in document.remarked:
        return ""
    return (
        "the text ends where # begins a remark: write > behind the colon, and the whole text "
        "below it, indented"
    )


def parsed(document: Document, task: Task) -> Value | None:
    """The answer to a task; None if there is none yet.

    Raises:
        InputError: it has not the form that was asked for.
    """
    data: Mapping[str, Any] = document.data
    raise_any(cut for path, cut in document.cut.items() if path.partition("[")[0] == task.id)
    if is_empty(data.get(task.id)):
        return None
    try:
        return parse_answer(data[task.id], task.answer)
    except RefusedValueError as error:
        found = document.texts.get(task.id, "")
        where = document.where(task.id)
        remedy = error.remedy or remark_remedy(document, task)
        raise InputError.of(where, found, error.expected, remedy) from None
