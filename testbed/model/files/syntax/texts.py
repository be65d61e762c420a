"""Texts that YAML cuts or refuses: of several lines, in quotes, or with a colon or # in them."""

import re
from dataclasses import dataclass, replace

from testbed.model.errors import Problem
from testbed.model.files.syntax.failure import (
    KEY,
    LONGEST_VALUE,
    OUTDENT,
    REMARK,
    Failure,
    entry_remedy,
)

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
