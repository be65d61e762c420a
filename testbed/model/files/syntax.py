"""What is wrong with a file that is not YAML: the line that has to change, in plain words.

PyYAML says where it gave up, which is often a line below the one that is wrong. The slips that
people make most are named by the line and by what to write; for others its own words do.
"""

import re

import yaml

from testbed.model.errors import Problem

_NO_BLANK = re.compile(r"\s*(?:- )?([\w.-]+):([^\s:/].*)")
_KEY_AND_VALUE = re.compile(r"([A-Za-z][\w.-]*)\s*[= ]\s*([\w.%/-]+(?: \w+)?)")

_GENERAL = "check indentation, colons and brackets there and on the line before"
_LONG_TEXT = "write the key, a colon and >, and its whole text below, with blanks before each line"
_OPENING = {"}": "{", "]": "["}
_RESERVED = (
    "cannot start any token|undefined alias|alphabetic or numeric|comment or a line break"
    "|expected chomping|(sequence entries|mapping keys) are"
)
"""What PyYAML says of a value that begins with a character that means something to it."""


def blank_remedy(text: str) -> str:
    """What to write in place of `key:value`; empty if a text is not of this form."""
    match = _NO_BLANK.fullmatch(text)
    return f"put a blank after the colon: {match[1]}: {match[2].strip()}" if match else ""


def entry_remedy(text: str) -> str:
    """What to write in place of a text that may be meant as an entry, such as `key=value`."""
    entry = _KEY_AND_VALUE.fullmatch(text)
    return blank_remedy(text) or (f"write {entry[1]}: {entry[2]}" if entry else "")


def syntax_problem(name: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    found = f"invalid YAML ({' '.join(filter(None, (error.context, error.problem)))})"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(name, found, "YAML", _GENERAL)
    lines, why, begun = text.splitlines(), str(error.problem), (error.context_mark or mark).line
    if "could not find expected ':'" in why:
        return _no_entry(name, lines, begun)
    if re.search("mapping values are not allowed|<block end>|<document start>', but found '<", why):
        return _misplaced(name, lines, mark)
    place, expected, remedy = f"{name}:{mark.line + 1}:{mark.column + 1}", "YAML", _GENERAL
    if "unexpected end of stream" in why:
        place, found = f"{name}:{begun + 1}", "a quote that is not closed"
        expected, remedy = "a quote at both ends", "close it, or one on a line above"
    elif bracket := re.search(r"expected ',' or '(.)'", why):
        closing = bracket[1]
        found = f"no {closing} for the {_OPENING.get(closing, '')} of line {begun + 1}"
        expected, remedy = f"{closing} or a comma", f"add the {closing}, or the comma"
    elif r"'\t'" in why:
        found, expected = "a tab", "spaces"
        remedy = "YAML indents with spaces: replace the tab by spaces"
    elif re.search(_RESERVED, why):
        found = f"{lines[mark.line].strip()}, with a character that YAML reserves"
        expected = "a value that does not begin with one of * & ? - > | @ % `"
        remedy = f"put it in quotes; if it is a longer text, {_LONG_TEXT}"
    return Problem(place, found, expected, remedy)


def _no_entry(name: str, lines: list[str], line: int) -> Problem:
    """The problem of a line without a colon and a blank, which YAML takes for a text."""
    text, expected = (
        lines[line].strip(),
        "a key, a colon and a value, or - before an entry of a list",
    )
    if remedy := blank_remedy(text):
        return Problem(f"{name}:{line + 1}", text, "a blank after the colon", remedy)
    is_remark = (
        "put # before it if it is a remark" if " " in text else f"write {text}: and its value"
    )
    remedy = f"{entry_remedy(text) or is_remark}; if it is text, {_LONG_TEXT}"
    return Problem(f"{name}:{line + 1}", text, expected, remedy)


def _misplaced(name: str, lines: list[str], mark: yaml.Mark) -> Problem:
    """The problem of an entry where YAML expects none: of its column, or of the line above it."""
    line, text = mark.line, lines[mark.line].strip()
    numbers = [i for i in range(line) if lines[i].strip() and lines[i].strip()[0] != "#"]
    above = numbers[-1] if numbers else line
    if blank_remedy(lines[above].strip()) or (above < line and ":" not in lines[above]):
        return _no_entry(name, lines, above)
    where = f"{name}:{line + 1}"
    before = lines[line][: mark.column].rstrip()
    if before[-1:] in {"'", '"', "]", "}"}:
        found = f"{text}, which goes on behind {before[-1]}"
        expected = "nothing behind the end of a value in quotes or brackets"
        return Problem(where, found, expected, f"if it is text, {_LONG_TEXT}, without these quotes")
    if ": " in before.strip():
        expected = "one key and one value on a line"
        remedy = "put what follows the first colon on the next line, indented, or in quotes if text"
        return Problem(where, text, expected, remedy)
    found, expected = (
        f"{text}, which is indented unlike the lines above it",
        "entries in one column",
    )
    remedy = f"indent it as the entries it belongs to; if it is text, {_LONG_TEXT}"
    return Problem(where, found, expected, remedy)
