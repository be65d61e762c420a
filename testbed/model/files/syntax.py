"""What is wrong with a file that is not YAML: the line that has to change, in plain words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import yaml

from testbed.model.errors import Problem

# --------------------------------------------------------------------------------------------------
# Where a file is not YAML, and what its lines are meant as.


_NO_BLANK = re.compile(r"\s*(?:- )?([\w.-]+):([^\s:/].*)")
_KEY_AND_VALUE = re.compile(r"([A-Za-z][\w.-]*)\s*[= ]\s*([\w.%/-]+(?: \w+)?)")
KEY = re.compile(r"(?:- )?([\w.-]+):(?:\s+(.*))?")
"""An entry: its key, and what is behind the colon."""

LONGEST_VALUE = 2
"""Words of a value that is no text, such as a number and its unit."""

REMARK = "put # before it if it is a remark"
OUTDENT = "remove the blanks that indent it further"


@dataclass(frozen=True, slots=True)
class Failure:
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
        """Where YAML gave up: file, line and column, from 1 on."""
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


def blank_remedy(text: str) -> str:
    """What to write in place of `key:value`; empty if a text is not of this form."""
    match = _NO_BLANK.fullmatch(text)
    return f"put a blank after the colon: {match[1]}: {match[2].strip()}" if match else ""


def entry_remedy(text: str) -> str:
    """What to write in place of a text that may be meant as an entry, such as `key=value`."""
    entry = _KEY_AND_VALUE.fullmatch(text)
    return blank_remedy(text) or (f"write {entry[1]}: {entry[2]}" if entry else "")


# --------------------------------------------------------------------------------------------------
# Texts that YAML cuts or refuses: of several lines, in quotes, or with a colon or # in them.


_OPEN_QUOTE = re.compile(r"""\s*(?:- )?[\w.-]+:\s+(["'])((?!\1).)*""")
_ENTRY = r"\s*[\w.-]+:\s*"
_REMARK_IN_TEXT = re.compile(r"(?:^|\s)#")
_BLOCK = ">|"
"""How a text begins that has its lines below its key."""

_NO_TEXT = "[{&*!\"'"
"""How a value begins that is not a text of several lines without quotes."""


@dataclass(frozen=True, slots=True)
class TextOwner:
    """The key above a line, whose text that line may go on with.

    Attributes:
        key: the key.
        line: the number of its line.
        value: what is behind its colon.
        is_cut: whether `#` begins a remark in the text.
    """

    key: str
    line: int
    value: str
    is_cut: bool

    @property
    def is_open(self) -> bool:
        """Whether its value has several words, or none yet: no number or name."""
        return self.value[:1] in {"", *_BLOCK} or len(self.value.split()) > LONGEST_VALUE


def text_above(failure: Failure, line: int) -> TextOwner | None:
    """The nearest key above a line; None if there is none, or if it holds a list or a mapping."""
    above, is_list = failure.above_of(line), False
    while above >= 0 and not (entry := KEY.fullmatch(failure.text(above))):
        is_list = is_list or failure.text(above).startswith("- ")
        above = failure.above_of(above)
    if above < 0 or entry is None:
        return None
    value = (entry[2] or "").partition("#")[0].strip()
    if value[0] in _NO_TEXT if value else is_list:
        return None
    indent = failure.indent(above)
    inside = (i for i in range(above, line) if i == above or failure.indent(i) > indent)
    is_text = value[:1] not in {*_BLOCK}
    is_cut = is_text and any(_REMARK_IN_TEXT.search(failure.lines[i]) for i in inside)
    return TextOwner(entry[1], above, value, is_cut)


def goes_on(failure: Failure, line: int, owner: TextOwner, *, entry: str) -> Problem:
    """The problem of a line that goes on with the text of a key.

    YAML takes it only below `key: >`, if it has a colon or is not indented.

    Args:
        failure: of the file.
        line: the number of the line.
        owner: the key above, with the text.
        entry: what to do with the line if it is an entry; empty if it is none.
    """
    key = owner.key
    remedy = f"write {key}: > and put its whole text below, with blanks before each line"
    if owner.is_cut:
        remedy = f"{remedy}: otherwise # begins a remark in it"
    if entry:
        remedy = f"{entry}; if it is text, {remedy}"
    elif not owner.is_open and not owner.is_cut:
        remedy = f"{remedy}; {REMARK}"
    return Problem(
        f"{failure.name}:{line + 1}",
        f"{failure.text(line)}, after the text of {key}",
        f"{key}: > before a text of several lines, or an entry in the column of {key}",
        remedy,
    )


def short_entry(text: str) -> str:
    """What to write in place of a line that is a key and a value rather than words of a text."""
    words = text.split()
    if len(words) == 1:
        return f"write {text}: and its value"
    is_entry = "=" in text or len(words) == LONGEST_VALUE or words[1][0].isdecimal()
    return entry_remedy(text) if is_entry else ""


def text_with_colon(failure: Failure) -> Problem | None:
    """The problem of a line with a colon that goes on with a text; None if it does not."""
    entry, owner = KEY.fullmatch(failure.text(failure.line)), text_above(failure, failure.line)
    value = (entry[2] or "") if entry else ""
    is_long = len(value.split()) > LONGEST_VALUE and value[0] not in _NO_TEXT
    if owner is None or not owner.value or not (owner.is_open or is_long):
        return None
    if entry and failure.indent(failure.line) <= failure.indent(owner.line):
        return None
    is_text = owner.is_open and (is_long or not entry)
    return goes_on(failure, failure.line, owner, entry="" if is_text else OUTDENT)


def text_behind_remark(failure: Failure) -> Problem | None:
    """The problem of a text that goes on behind a remark in it; None if it does not."""
    line, owner = failure.line, text_above(failure, failure.line)
    if owner is None or not owner.is_cut or failure.indent(line) <= failure.indent(owner.line):
        return None
    is_entry = KEY.fullmatch(failure.text(line))
    return goes_on(failure, line, owner, entry=OUTDENT if is_entry else "")


def open_quote(failure: Failure) -> Problem | None:
    """The problem of a quote that the next entry closes by accident; None if there is none.

    YAML gives up behind it, at an entry that is right.
    """
    for line, text in enumerate(failure.lines[: failure.line]):
        opening = _OPEN_QUOTE.fullmatch(text)
        if opening is None:
            continue
        closing = next((other for other in failure.lines[line + 1 :] if opening[1] in other), "")
        if re.match(_ENTRY + opening[1], closing):
            return quote_problem(replace(failure, start=line))
    return None


def closed_early(failure: Failure) -> Problem | None:
    """The problem of a value that goes on behind its quotes or brackets; None if it does not."""
    text, place = failure.lines[failure.line], f"{failure.name}:{failure.line + 1}"
    remedy = "put > behind the colon, and the text on the next lines, indented"
    match text[: failure.column].rstrip()[-1:]:
        case ("'" | '"') as quote:
            found = f"{text.strip()}, in which the quote {quote} closes before the end"
            expected = "a text in quotes without the same quote inside"
            return Problem(place, found, expected, f"{remedy} and without these quotes")
        case ("]" | "}") as bracket:
            found = f"{text.strip()}, which goes on behind {bracket}"
            expected = "a text that does not begin with a bracket, or nothing behind the last one"
            return Problem(place, found, expected, f"if it is text, {remedy}")
    return None


def quote_problem(failure: Failure) -> Problem:
    """The problem of a quote that is not closed, in the line at which YAML began to read."""
    place = f"{failure.name}:{failure.start + 1}"
    return Problem(place, "a quote that is not closed", "a quote at both ends", "close the quote")


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
