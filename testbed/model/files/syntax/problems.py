"""What is wrong with a file that is not YAML: the line that has to change, in plain words."""

import re
from collections.abc import Callable
from functools import partial

import yaml

from testbed.model.errors import Problem
from testbed.model.files.syntax.failure import (
    KEY,
    OUTDENT,
    REMARK,
    Failure,
    blank_remedy,
    entry_remedy,
)
from testbed.model.files.syntax.texts import (
    closed_early,
    goes_on,
    open_quote,
    quote_problem,
    short_entry,
    text_above,
    text_behind_remark,
    text_with_colon,
)

_GENERAL = "check indentation, colons and brackets there and on the line before"
_LONGEST_ENTRY = 4
"""Words of a line that may be meant as a key and a value."""

_OPENING = {"}": "{", "]": "["}


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
    failure = Failure(name, text.splitlines(), start, mark.line, mark.column, why)
    if problem := open_quote(failure):
        return problem
    for pattern, explain in _EXPLAINED.items():
        if re.search(pattern, why):
            return explain(failure)
    return Problem(failure.place, found, "YAML", _GENERAL)


def _no_colon(failure: Failure) -> Problem:
    return _no_colon_in(failure, failure.start)


def _no_colon_in(failure: Failure, line: int) -> Problem:
    """The problem of a line without a colon, which YAML takes for a text."""
    text, owner = failure.text(line), text_above(failure, line)
    if problem := _no_blank(failure, line) or _no_dash(failure, line):
        return problem
    if owner and (owner.is_open or len(text.split()) > _LONGEST_ENTRY):
        return goes_on(failure, line, owner, entry=short_entry(text))
    remedy = entry_remedy(text) or f"write {text}: and its value"
    if len(text.split()) > _LONGEST_ENTRY:
        remedy = REMARK
    return Problem(f"{failure.name}:{line + 1}", text, "a key, a colon and a value", remedy)


def _no_blank(failure: Failure, line: int) -> Problem | None:
    """The problem of a line of the form `key:value`; None if it has another form.

    YAML takes such a line for a text that goes on in the next line, and gives up there.
    """
    remedy = blank_remedy(failure.text(line))
    place = f"{failure.name}:{line + 1}"
    return Problem(place, failure.text(line), "a blank after the colon", remedy) if remedy else None


def _no_dash(failure: Failure, line: int) -> Problem | None:
    """The problem of a line in the column of the dash above it; None if there is none."""
    text, above = failure.text(line), failure.above_of(line)
    item = failure.text(above) if above >= 0 else ""
    is_item = item.startswith("- ") and not KEY.fullmatch(item)
    if not is_item or failure.indent(above) != failure.indent(line):
        return None
    other = entry_remedy(text) or (REMARK if len(text.split()) > _LONGEST_ENTRY else "")
    remedy = f"put - before it; if it is not of the list, {other}" if other else "put - before it"
    return Problem(f"{failure.name}:{line + 1}", text, "a dash before each entry of a list", remedy)


def _is_text_beside(failure: Failure, line: int) -> bool:
    """Whether a line has no colon, although it stands where an entry is expected."""
    text, indent = failure.text(line), failure.indent(line)
    return ":" not in text and not text.startswith("- ") and indent == failure.indent(failure.line)


def _second_colon(failure: Failure) -> Problem:
    text, above = failure.text(failure.line), failure.above
    if above >= 0 and (problem := _no_blank(failure, above)):
        return problem
    if problem := text_with_colon(failure):
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
        return Problem(place, text, expected, OUTDENT)
    expected = "one key and one value on a line"
    remedy = "put what follows the first colon on the next line, indented, or in quotes if text"
    return Problem(place, text, expected, remedy)


def _indentation(failure: Failure) -> Problem:
    if "'<scalar>'" in failure.why and (problem := closed_early(failure)):
        return problem
    if failure.above >= 0 and (problem := _no_blank(failure, failure.above)):
        return problem
    if problem := text_behind_remark(failure):
        return problem
    if failure.above >= 0 and _is_text_beside(failure, failure.above):
        return _no_colon_in(failure, failure.above)
    text = failure.text(failure.line)
    found = f"{text}, which is indented unlike the lines above it"
    expected = "the entries of a block in one column"
    if text.startswith("- "):
        expected += ", and a dash only below a key that holds a list"
    return Problem(failure.place, found, expected, "indent it as the entries it belongs to")


def _bracket(failure: Failure) -> Problem:
    closing = failure.why.split("'")[3]
    opener = f"{_OPENING.get(closing, '')} of line {failure.start + 1}"
    remedy = f"add the {closing}, or the comma"
    return Problem(failure.place, f"no {closing} for the {opener}", f"{closing} or a comma", remedy)


def _text_behind(failure: Failure) -> Problem:
    place, text = f"{failure.name}:{failure.line + 1}", failure.text(failure.line)
    remedy = "put the text on the next line, indented"
    return Problem(place, text, "nothing behind > or |", remedy)


def _list_behind(failure: Failure) -> Problem:
    remedy = "put each entry on a line of its own below the key; if it is text, put it in quotes"
    return Problem(failure.place, "- behind a colon", "a list on the lines below its key", remedy)


def _character(failure: Failure) -> Problem:
    character = failure.why.split("'")[1]
    if character == "\\t":
        remedy = "YAML indents with spaces: replace the tab by spaces"
        return Problem(failure.place, "a tab", "spaces", remedy)
    return _reserved(failure, character)


def _reserved(failure: Failure, character: str) -> Problem:
    expected = "a value that begins otherwise: this character is reserved in YAML"
    found = f"a value that begins with {character}"
    return Problem(failure.place, found, expected, "put it in quotes")


_EXPLAINED: dict[str, Callable[[Failure], Problem]] = {
    "could not find expected ':'": _no_colon,
    "mapping values are not allowed": _second_colon,
    "<block end>|'<document start>', but found '<": _indentation,
    "expected a comment or a line break|expected chomping": _text_behind,
    "found undefined alias|expected alphabetic or numeric": partial(_reserved, character="* or &"),
    "sequence entries are not allowed": _list_behind,
    r"expected ',' or '.'": _bracket,
    "unexpected end of stream": quote_problem,
    "mapping keys are not allowed": partial(_reserved, character="?"),
    "cannot start any token": _character,
}
"""By what PyYAML says."""
