"""Connection matrices in the format of htsim: lists of transfers with sender, receiver and start.

    Nodes 8
    Connections 2
    0->4 id 1 start 0 size 2000000
    1->5 id 2 start 1000000 size 2000000

Node n is host n of the fabric, `start` is in picoseconds (also as `2.5e6`), `size` in bytes; a
transfer of size 0 has no end. What follows `#` is a comment. Ids, priorities and `msg` change
nothing here. Transfers started by a trigger are refused, and so are failing links: faults belong in
the scenario. Source: `connection_matrix.cpp` of uet-htsim and csg-htsim.
"""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError, Problem, raise_any
from testbed.model.units import NEVER_NS, show_size
from testbed.model.workload import MAX_TRANSFER, MAX_TRANSFERS

MAX_BYTES = 64 << 20
"""Most bytes of a file."""

_PS_PER_NS = 1000
_HEADER = re.compile(r"(Nodes|Connections)\s+(\d{1,9})", re.ASCII)
_ENDS = re.compile(r"(\d{1,9})->(\d{1,9})", re.ASCII)
_WHOLE = re.compile(r"\d{1,30}", re.ASCII)
_NUMBER = re.compile(r"\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?", re.ASCII)
_NONE_OF = re.compile(r"(Triggers|Failures)\s+0", re.ASCII)
"""Counts of 0 of what is not supported."""

_VALUES = {"start": _NUMBER, "size": _WHOLE, "id": _WHOLE, "prio": _WHOLE, "msg": _WHOLE}
"""The form of what follows each word of a transfer; `msg` may be without."""

_KNOWN = f"one of {', '.join(_VALUES)}"

_TRIGGER = "transfers that all begin at a time (start): triggers are not supported"
_FAILURE = "no failures: faults are set in the scenario, in timeline"
_REFUSED = {"trigger": _TRIGGER, "addon": _TRIGGER, "failure": _FAILURE}
"""What is expected instead of what htsim supports and this does not, by a part of its word."""

_EXPECTED = "a line such as 0->4 start 0 size 2000000"
_LONGEST = 80
"""Characters of a line that a message shows."""


@dataclass(frozen=True, slots=True)
class ConnectionMatrix:
    """The transfers of a file.

    Attributes:
        transfers: each as a mapping as in a scenario's `workload.matrix`.
        places: the file and the line of each.
    """

    transfers: list[dict[str, Any]]
    places: list[str]


class _Refusal(Exception):  # noqa: N818 - it is no error of the program
    """A line is wrong; the message is what was expected, `word` the part that is wrong."""

    def __init__(self, expected: str, word: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.word = word


class _Causes:
    """What is wrong with a file: one problem for each cause, at its first line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._problems: dict[str, Problem] = {}
        self._lines: dict[str, int] = {}

    def add(self, number: int, line: str, refusal: _Refusal) -> None:
        """Note what is wrong with a line."""
        cause = refusal.expected  # whatever the word: each line may have another
        shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
        found = f"{refusal.word[:_LONGEST]} in {shown}" if refusal.word else shown
        where = f"{self._file}:{number}"
        self._problems.setdefault(cause, Problem(where, found, refusal.expected))
        self._lines[cause] = self._lines.get(cause, 0) + 1

    def problems(self) -> list[Problem]:
        """All of them; each says in how many lines it is."""
        return [
            replace(problem, found=f"{problem.found} (and {lines - 1:,} more such lines)")
            if (lines := self._lines[cause]) > 1
            else problem
            for cause, problem in self._problems.items()
        ]


def read_matrix(file: Path) -> ConnectionMatrix:
    """Read a file.

    Raises:
        InputError: it cannot be read, or is not a connection matrix.
    """
    counts: dict[str, int] = {}
    transfers: list[dict[str, Any]] = []
    places: list[str] = []
    causes = _Causes(file)
    for number, line in enumerate(_lines(file), 1):
        text = line.partition("#")[0].strip()
        try:
            if header := _HEADER.fullmatch(text):
                _require_new(header[1], counts, has_transfers=bool(transfers))
                counts[header[1]] = int(header[2])
            elif text and not _NONE_OF.fullmatch(text):
                transfers.append(_transfer(text.split(), counts.get("Nodes")))
                places.append(f"{file}:{number}")
        except _Refusal as refusal:
            causes.add(number, text, refusal)
    problems = causes.problems() or [
        Problem(str(file), "", f"a line {name} with the number of them")
        for name in ("Nodes", "Connections")
        if name not in counts
    ]
    if not problems and counts["Connections"] != len(transfers):
        found = f"Connections {counts['Connections']}"
        expected = f"the number of transfers, {len(transfers)}"
        problems.append(Problem(str(file), found, expected))
    if not problems and len(transfers) > MAX_TRANSFERS:
        expected = f"{MAX_TRANSFERS:,} transfers at most"
        problems.append(Problem(str(file), f"{len(transfers):,}", expected))
    raise_any(problems)
    return ConnectionMatrix(transfers, places)


def _lines(file: Path) -> Iterable[str]:
    """The lines of a file; bytes that are no UTF-8 may stand in comments."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise InputError.of(str(file), found, "a connection matrix") from None
    if len(content) > MAX_BYTES:
        expected = f"a connection matrix of {show_size(MAX_BYTES)} at most"
        raise InputError.of(str(file), "a larger file", expected)
    return io.StringIO(content.decode("utf-8-sig", "replace"), newline=None)


def _require_new(name: str, counts: dict[str, int], *, has_transfers: bool) -> None:
    """Check that a line Nodes or Connections is the only one, and that what it bounds comes later.

    Raises:
        _Refusal: it is not.
    """
    if name in counts:
        raise _Refusal(f"one line {name}")
    if name == "Nodes" and has_transfers:
        raise _Refusal("the line Nodes before the first transfer")


def _transfer(words: list[str], nodes: int | None) -> dict[str, Any]:
    """The transfer of a line; `nodes` is the number of the line Nodes, if there was one.

    Raises:
        _Refusal: it is none.
    """
    ends = _ENDS.fullmatch(words[0])
    if ends is None:
        first = words[0].lower()
        raise _Refusal(next((_REFUSED[key] for key in _REFUSED if key in first), _EXPECTED))
    if nodes is not None and max(int(ends[1]), int(ends[2])) >= nodes:
        raise _Refusal(f"nodes below {nodes}, the number of the line Nodes")
    values = _values(words[1:])
    size = int(values.get("size", 0))
    if "size" not in values:
        raise _Refusal(_EXPECTED)
    if size > MAX_TRANSFER:
        raise _Refusal(f"a size of {show_size(MAX_TRANSFER)} at most")
    start_ns = round(Decimal(values.get("start", "0")) / _PS_PER_NS)
    if start_ns >= NEVER_NS:
        raise _Refusal(f"a start before {NEVER_NS * _PS_PER_NS:.1e} ps")
    ends_named = {"src": f"h{int(ends[1])}", "dst": f"h{int(ends[2])}"}
    return {**ends_named, "start": f"{start_ns} ns", "size": size}


def _values(words: list[str]) -> dict[str, str]:
    """What follows each word of a transfer.

    Raises:
        _Refusal: a word is unknown or there twice, or what follows it is no number.
    """
    values: dict[str, str] = {}
    found = set[str]()
    left = iter(words)
    word = next(left, None)
    while word is not None:
        form, value = _VALUES.get(word), next(left, None)
        if form is None:
            raise _Refusal(next((_REFUSED[key] for key in _REFUSED if key in word), _KNOWN), word)
        if word in found:
            raise _Refusal("each word once", word)
        found.add(word)
        if value is not None and form.fullmatch(value):
            values[word] = value
            value = next(left, None)
        elif word != "msg":
            raise _Refusal(_EXPECTED, f"{word} {value or ''}".strip())
        word = value
    return values
