"""Where a file is not YAML, and what its lines are meant as."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
