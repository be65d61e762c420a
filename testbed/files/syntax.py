"""What is wrong with a file that is not YAML: the line that has to change, in plain words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import yaml

from testbed.model.errors import Problem

_NO_BLANK = re.compile(r"\s*(?:- )?([\w.-]+):([^\s:/].*)")
_GENERAL = "check indentation, colons and brackets there and on the line before"
_OPENING = {"}": "{", "]": "["}


@dataclass(frozen=True, slots=True)
class _Failure:
    """Where and why PyYAML gave up.

    Attributes:
        name: the file's name.
        lines: its content.
        start: the number of the line, from 0 on, at which what it was reading begins.
        line: the number of the line at which it gave up.
        column: the place in this line.
        why: its reason.
    """

    name: str
    lines: Sequence[str]
    start: int
    line: int
    column: int
    why: str

    @property
    def place(self) -> str:
        return f"{self.name}:{self.line + 1}:{self.column + 1}"

    def text(self, line: int) -> str:
        """A line without the blanks around it."""
        return self.lines[line].strip() if line < len(self.lines) else ""

    @property
    def above(self) -> int:
        """The number of the last line above that is neither empty nor a comment; -1 if none is."""
        return self.above_of(self.line)

    def above_of(self, line: int) -> int:
        """The same for any line."""
        numbers = range(min(line, len(self.lines)) - 1, -1, -1)
        return next((i for i in numbers if self.text(i) and self.text(i)[0] != "#"), -1)

    def indent(self, line: int) -> int:
        """The number of blanks before a line."""
        return len(self.lines[line]) - len(self.lines[line].lstrip(" "))


def syntax_problem(name: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    """The problem of a text that PyYAML cannot parse.

    Args:
        name: the file's name, for the place.
        text: its content.
        error: PyYAML's error.
    """
    mark, why = error.problem_mark or error.context_mark, str(error.problem)
    found = f"invalid YAML ({' '.join(filter(None, (error.context, error.problem)))})"
    if mark is None:
        return Problem(name, found, "YAML", _GENERAL)
    start = (error.context_mark or mark).line
    failure = _Failure(name, text.splitlines(), start, mark.line, mark.column, why)
    for pattern, explain in _EXPLAINED.items():
        if re.search(pattern, why):
            return explain(failure)
    return Problem(failure.place, found, "YAML", _GENERAL)


def blank_remedy(text: str) -> str:
    """What to write in place of `key:value`; empty if a text is not of this form."""
    match = _NO_BLANK.fullmatch(text)
    return f"put a blank after the colon: {match[1]}: {match[2].strip()}" if match else ""


def _no_colon(failure: _Failure) -> Problem:
    text, place = failure.text(failure.start), f"{failure.name}:{failure.start + 1}"
    if problem := _no_blank(failure, failure.start):
        return problem
    return Problem(place, text, "a key, a colon and a value", f"write {text}: and its value")


def _no_blank(failure: _Failure, line: int) -> Problem | None:
    """The problem of a line of the form `key:value`; None if it has another form.

    YAML takes such a line for a text that goes on in the next line, and gives up there.
    """
    remedy = blank_remedy(failure.text(line))
    place = f"{failure.name}:{line + 1}"
    return Problem(place, failure.text(line), "a blank after the colon", remedy) if remedy else None


def _second_colon(failure: _Failure) -> Problem:
    text, above = failure.text(failure.line), failure.above
    if above >= 0 and (problem := _no_blank(failure, above)):
        return problem
    place = f"{failure.name}:{failure.line + 1}"
    if above >= 0 and failure.indent(above) < failure.indent(failure.line):
        block = failure.above_of(above)
        beside = block >= 0 and failure.indent(block) == failure.indent(above)
        if beside and failure.text(block).endswith(":"):
            line, owner = failure.text(above), failure.text(block).rstrip(":")
            return Problem(
                f"{failure.name}:{above + 1}",
                f"{line} in the column of {owner}:",
                f"it further right, as the entries of {owner} are on line {failure.line + 1}",
                f"put blanks before {line}",
            )
        expected = (
            f"it in the column of line {above + 1} ({failure.text(above)}), which has a value"
        )
        return Problem(place, text, expected, "remove the blanks that indent it further")
    expected = "one key and one value on a line"
    remedy = "put what follows the first colon on the next line, indented, or in quotes if text"
    return Problem(place, text, expected, remedy)


def _indentation(failure: _Failure) -> Problem:
    if failure.above >= 0 and (problem := _no_blank(failure, failure.above)):
        return problem
    text = failure.text(failure.line)
    found = f"{text}, which is indented unlike the lines above it"
    expected = "the entries of a block in one column"
    if text.startswith("- "):
        expected += ", and a dash only below a key that holds a list"
    return Problem(failure.place, found, expected, "indent it as the entries it belongs to")


def _bracket(failure: _Failure) -> Problem:
    closing = failure.why.split("'")[3]
    opener = f"{_OPENING.get(closing, '')} of line {failure.start + 1}"
    remedy = f"add the {closing}, or the comma"
    return Problem(failure.place, f"no {closing} for the {opener}", f"{closing} or a comma", remedy)


def _quote(failure: _Failure) -> Problem:
    place = f"{failure.name}:{failure.start + 1}"
    return Problem(place, "a quote that is not closed", "a quote at both ends", "close the quote")


def _character(failure: _Failure) -> Problem:
    character = failure.why.split("'")[1]
    if character == "\\t":
        remedy = "YAML indents with spaces: replace the tab by spaces"
        return Problem(failure.place, "a tab", "spaces", remedy)
    expected = "a value that begins otherwise: this character is reserved in YAML"
    return Problem(
        failure.place, f"a value that begins with {character}", expected, "put it in quotes"
    )


_EXPLAINED: dict[str, Callable[[_Failure], Problem]] = {
    "could not find expected ':'": _no_colon,
    "mapping values are not allowed": _second_colon,
    "<block end>|'<document start>', but found '<block": _indentation,
    r"expected ',' or '.'": _bracket,
    "unexpected end of stream": _quote,
    "cannot start any token": _character,
}
"""By what PyYAML says."""
