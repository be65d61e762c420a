"""What is wrong with a file that is not YAML: the line that has to change, in plain words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import yaml

from testbed.model.errors import Problem

_NO_BLANK = re.compile(r"\s*(?:- )?([\w.-]+):([^\s:/].*)")
_OPEN_QUOTE = re.compile(r"""\s*(?:- )?[\w.-]+:\s+(["'])((?!\1).)*""")
_ENTRY = r"\s*[\w.-]+:\s*"
_KEY = re.compile(r"(?:- )?([\w.-]+):(?:\s+(.*))?")
_KEY_AND_VALUE = re.compile(r"([A-Za-z][\w.-]*)\s*[= ]\s*([\w.%/-]+(?: \w+)?)")
_GENERAL = "check indentation, colons and brackets there and on the line before"
_LONGEST_ENTRY = 4
"""Words of a line that may be meant as a key and a value."""

_LONGEST_VALUE = 2
"""Words of a value that is no text, such as a number and its unit."""

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
    if problem := _open_quote(failure):
        return problem
    for pattern, explain in _EXPLAINED.items():
        if re.search(pattern, why):
            return explain(failure)
    return Problem(failure.place, found, "YAML", _GENERAL)


def blank_remedy(text: str) -> str:
    """What to write in place of `key:value`; empty if a text is not of this form."""
    match = _NO_BLANK.fullmatch(text)
    return f"put a blank after the colon: {match[1]}: {match[2].strip()}" if match else ""


def entry_remedy(text: str) -> str:
    """What to write in place of a text that may be meant as an entry, such as `key=value`."""
    entry = _KEY_AND_VALUE.fullmatch(text)
    return blank_remedy(text) or (f"write {entry[1]}: {entry[2]}" if entry else "")


def _open_quote(failure: _Failure) -> Problem | None:
    """The problem of a quote that the next entry closes by accident; None if there is none.

    YAML gives up behind it, at an entry that is right.
    """
    for line, text in enumerate(failure.lines[: failure.line]):
        opening = _OPEN_QUOTE.fullmatch(text)
        if opening is None:
            continue
        closing = next((other for other in failure.lines[line + 1 :] if opening[1] in other), "")
        if re.match(_ENTRY + opening[1], closing):
            return _quote(replace(failure, start=line))
    return None


def _no_colon(failure: _Failure) -> Problem:
    return _no_colon_in(failure, failure.start)


def _no_colon_in(failure: _Failure, line: int) -> Problem:
    """The problem of a line without a colon, which YAML takes for a text."""
    text, place = failure.text(line), f"{failure.name}:{line + 1}"
    if problem := _no_blank(failure, line) or _text_that_goes_on(failure, line):
        return problem
    above = failure.above_of(line)
    if above >= 0 and failure.text(above).endswith((": >", ": |")):
        key = failure.text(above).partition(":")[0]
        return Problem(place, text, f"the text of {key}, indented", "put blanks before each line")
    remedy = entry_remedy(text) or f"write {text}: and its value"
    if len(text.split()) > _LONGEST_ENTRY:
        remedy = "put # before it if it is a remark"
    return Problem(place, text, "a key, a colon and a value", remedy)


def _no_blank(failure: _Failure, line: int) -> Problem | None:
    """The problem of a line of the form `key:value`; None if it has another form.

    YAML takes such a line for a text that goes on in the next line, and gives up there.
    """
    remedy = blank_remedy(failure.text(line))
    place = f"{failure.name}:{line + 1}"
    return Problem(place, failure.text(line), "a blank after the colon", remedy) if remedy else None


def _text_that_goes_on(failure: _Failure, line: int) -> Problem | None:
    """The problem of a line that goes on with the text of the key above; None if it does not.

    YAML takes it only below `key: >`, if it has a colon or is not indented.
    """
    text, above = failure.text(line), failure.above_of(line)
    while above >= 0 and not _KEY.fullmatch(failure.text(above)):
        above = failure.above_of(above)
    entry = _KEY.fullmatch(failure.text(above)) if above >= 0 else None
    if entry is None or not _is_prose(entry[2] or ""):
        return None
    if _KEY.fullmatch(text) and failure.indent(line) <= failure.indent(above):
        return None
    return Problem(
        f"{failure.name}:{line + 1}",
        f"{text}, after the text of {entry[1]}",
        f"{entry[1]}: > before a text of several lines, or an entry in the column of {entry[1]}",
        f"write {entry[1]}: > and its whole text on the next lines, indented",
    )


def _is_prose(value: str) -> bool:
    """Whether a value is a text of several words, without quotes."""
    words = value.partition(" #")[0].split()
    return len(words) > _LONGEST_VALUE and value[0] not in "[{|>&*!#\"'"


def _is_text_beside(failure: _Failure, line: int) -> bool:
    """Whether a line has no colon, although it stands where an entry is expected."""
    text, indent = failure.text(line), failure.indent(line)
    return ":" not in text and not text.startswith("- ") and indent == failure.indent(failure.line)


def _second_colon(failure: _Failure) -> Problem:
    text, above = failure.text(failure.line), failure.above
    if above >= 0 and (problem := _no_blank(failure, above)):
        return problem
    if problem := _text_that_goes_on(failure, failure.line):
        return problem
    if above >= 0 and _is_text_beside(failure, above):
        return _no_colon_in(failure, above)
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
    if "'<scalar>'" in failure.why and (problem := _closed_early(failure)):
        return problem
    if failure.above >= 0 and (problem := _no_blank(failure, failure.above)):
        return problem
    if failure.above >= 0 and _is_text_beside(failure, failure.above):
        return _no_colon_in(failure, failure.above)
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


def _closed_early(failure: _Failure) -> Problem | None:
    """The problem of a text that goes on behind its closing quote; None if there is none."""
    text = failure.lines[failure.line]
    quote = text[: failure.column].rstrip()[-1:]
    if quote not in {"'", '"'}:
        return None
    return Problem(
        f"{failure.name}:{failure.line + 1}",
        f"{text.strip()}, in which the quote {quote} closes before the end",
        "a text in quotes without the same quote inside",
        "put > behind the colon, and the text on the next lines, indented and without these quotes",
    )


def _text_behind(failure: _Failure) -> Problem:
    place, text = f"{failure.name}:{failure.line + 1}", failure.text(failure.line)
    remedy = "put the text on the next line, indented"
    return Problem(place, text, "nothing behind > or |", remedy)


def _alias(failure: _Failure) -> Problem:
    return Problem(failure.place, "a value that begins with *", "another value", "put it in quotes")


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
    "<block end>|'<document start>', but found '<": _indentation,
    "expected a comment or a line break": _text_behind,
    "found undefined alias": _alias,
    r"expected ',' or '.'": _bracket,
    "unexpected end of stream": _quote,
    "cannot start any token": _character,
}
"""By what PyYAML says."""
