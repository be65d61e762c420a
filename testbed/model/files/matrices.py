"""Connection matrices in the format of htsim: lists of transfers with sender, receiver and start.

    Nodes 8
    Connections 2
    Triggers 1
    Failures 1
    0->4 id 1 start 0 size 2000000 send_done_trigger 1
    0->5 id 2 trigger 1 size 2000000
    trigger id 1 oneshot
    failure switch_type TOR switch_id 0 link_id 1

Node n is host n of the fabric, `start` is in picoseconds (also as `2.5e6`), `size` in bytes; a
transfer of size 0 has no end. What follows `#` is a comment. Ids, priorities and `msg` change
nothing here. A failure is a link that is cut from the start to the end of the run: of plane 0, as
in htsim, between a T0 (TOR) or a T1 (AGG) and the switch of the other tier with the number
`link_id`. Source: `connection_matrix.cpp` of uet-htsim and csg-htsim.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from testbed.model.errors import InputError, Problem, raise_any
from testbed.model.files.reading import text_lines
from testbed.model.units import NEVER_NS, show_size
from testbed.model.workload import MAX_TRANSFER, MAX_TRANSFERS

_PS_PER_NS = 1000
_MOST_WRONG = 100_000
"""Wrong lines after which a file is not read further: it is no matrix."""

_HEADERS = ("Nodes", "Connections", "Triggers", "Failures")
_HEADER = re.compile(rf"({'|'.join(_HEADERS)})\s+(\d{{1,9}})", re.ASCII)
_ENDS = re.compile(r"(\d{1,9})->(\d{1,9})", re.ASCII)


class _Value(NamedTuple):
    """What follows a word: its form, and the form in words."""

    form: re.Pattern[str]
    what: str


_SMALL = _Value(re.compile(r"\d{1,9}", re.ASCII), "a whole number of 9 digits at most")
_WHOLE = _Value(re.compile(r"\d{1,30}", re.ASCII), "a whole number of 30 digits at most")
_NUMBER = _Value(
    re.compile(r"\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?", re.ASCII),
    "a number such as 2500000 or 2.5e6",
)
_TRIGGER = _Value(re.compile(r"[1-9]\d{0,8}", re.ASCII), "a number from 1 to 999,999,999")
_TYPE = _Value(re.compile(r"\w+"), "TOR or AGG")
_FLAG = _Value(re.compile(""), "")


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of line: what follows each of its words, and an example."""

    words: Mapping[str, _Value]
    example: str

    @property
    def expected(self) -> str:
        return f"a line such as {self.example}"


_ENDS_OF_TRANSFERS = ("send_done_trigger", "recv_done_trigger")
_TRANSFER_LINE = _Form(
    {
        "start": _NUMBER,
        **dict.fromkeys(("size", "id", "prio", "msg"), _WHOLE),
        **dict.fromkeys(("trigger", *_ENDS_OF_TRANSFERS), _TRIGGER),
    },
    "0->4 start 0 size 2000000",
)
_KINDS = ("oneshot", "multishot", "barrier")
_TRIGGER_LINE = _Form(
    {"id": _TRIGGER, "count": _SMALL, **dict.fromkeys(_KINDS, _FLAG)}, "trigger id 1 oneshot"
)
_FAILURE_LINE = _Form(
    {"switch_type": _TYPE, "switch_id": _SMALL, "link_id": _SMALL},
    "failure switch_type TOR switch_id 0 link_id 1",
)

_OF_TWO_TIERS = {
    "TOR": "p0_t0_{switch_id}--p0_t1_{link_id}",
    "AGG": "p0_t0_{link_id}--p0_t1_{switch_id}",
}
"""The link of a failure, by the type of its switch."""
_LONGEST = 80
"""Characters of a line that a message shows."""


@dataclass(frozen=True, slots=True)
class ConnectionMatrix:
    """The transfers of a file.

    Attributes:
        transfers: each as a mapping as in a scenario's `workload.matrix`.
        triggers: each as in `workload.triggers`.
        places: the file and the line of each of them, by its key below `workload`.
        cut: the links that have failed, by file and line.
        nodes: how many nodes it says that there are.
    """

    transfers: list[dict[str, Any]] = field(default_factory=list)
    triggers: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)
    nodes: int = 0


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
        self.is_full = False

    def add(self, number: int, line: str, refusal: _Refusal) -> None:
        """Note what is wrong with a line."""
        cause = refusal.expected  # whatever the word: each line may have another
        shown = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
        found = f"{refusal.word[:_LONGEST]} in {shown}" if refusal.word else shown
        where = f"{self._file}:{number}"
        self._problems.setdefault(cause, Problem(where, found, refusal.expected))
        self._lines[cause] = self._lines.get(cause, 0) + 1
        self.is_full = self._lines[cause] == _MOST_WRONG

    def problems(self) -> list[Problem]:
        """All of them; each says in how many lines it is."""
        least = "at least " if self.is_full else ""
        return [
            replace(problem, found=f"{problem.found} (and {least}{lines - 1:,} more such lines)")
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
    matrix = ConnectionMatrix()
    causes = _Causes(file)
    for number, line in enumerate(text_lines(file, "a connection matrix"), 1):
        text = line.partition("#")[0].strip()
        try:
            if header := _HEADER.fullmatch(text):
                _require_new(header[1], counts, has_transfers=bool(matrix.transfers))
                counts[header[1]] = int(header[2])
            elif text:
                _add(matrix, text.split(), f"{file}:{number}", counts.get("Nodes"))
        except _Refusal as refusal:
            causes.add(number, text, refusal)
            if causes.is_full:
                break
    problems = causes.problems() or [
        Problem(str(file), "", f"a line {name} with the number of them")
        for name in ("Nodes", "Connections")
        if name not in counts
    ]
    for name, what, count in (
        ("Connections", "transfers", len(matrix.transfers)),
        ("Triggers", "triggers", len(matrix.triggers)),
        ("Failures", "failures", len(matrix.cut)),
    ):
        if not problems and counts.get(name, 0) != count:
            expected = f"the number of {what}, {count}"
            problems.append(Problem(str(file), f"{name} {counts.get(name, 0)}", expected))
    if not problems and len(matrix.transfers) > MAX_TRANSFERS:
        expected = f"{MAX_TRANSFERS:,} transfers at most"
        problems.append(Problem(str(file), f"{len(matrix.transfers):,}", expected))
    if not problems and not matrix.transfers:
        problems.append(Problem(str(file), "no transfer", "a connection matrix with one or more"))
    raise_any(problems)
    return replace(matrix, nodes=counts["Nodes"])


def _add(matrix: ConnectionMatrix, words: list[str], place: str, nodes: int | None) -> None:
    """Add what a line has to a matrix.

    Raises:
        _Refusal: it is none of the lines of a matrix.
        InputError: it is one too many.
    """
    if words[0] in _HEADERS:
        raise _Refusal(f"{words[0]} and {_SMALL.what}")
    if words[0] == "failure":
        matrix.cut[place] = _cut_link(_values(words[1:], _FAILURE_LINE))
    elif words[0] == "trigger":
        trigger = _trigger(_values(words[1:], _TRIGGER_LINE))
        matrix.places[f"triggers[{len(matrix.triggers)}]"] = place
        matrix.triggers.append(trigger)
    else:
        transfer = _transfer(words, nodes)
        matrix.places[f"matrix[{len(matrix.transfers)}]"] = place
        matrix.transfers.append(transfer)
    if len(matrix.places) + len(matrix.cut) > 2 * MAX_TRANSFERS:
        raise InputError.of(place, "one line more", f"{2 * MAX_TRANSFERS:,} lines at most")


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
        known = f"{_TRANSFER_LINE.expected}, {_TRIGGER_LINE.example} or {_FAILURE_LINE.example}"
        raise _Refusal(known)
    if nodes is not None and max(int(ends[1]), int(ends[2])) >= nodes:
        raise _Refusal(f"nodes below {nodes}, the number of the line Nodes")
    values = _values(words[1:], _TRANSFER_LINE)
    if "size" not in values:
        raise _Refusal(_TRANSFER_LINE.expected)
    size = int(values["size"])
    if size > MAX_TRANSFER:
        raise _Refusal(f"a size of {show_size(MAX_TRANSFER)} at most")
    start_ns = round(Decimal(values.get("start", "0")) / _PS_PER_NS)
    if start_ns >= NEVER_NS:
        raise _Refusal(f"a start before {NEVER_NS * _PS_PER_NS:.1e} ps")
    if "trigger" in values and "start" in values:
        raise _Refusal("a start or a trigger, not both")
    transfer = {"src": f"h{int(ends[1])}", "dst": f"h{int(ends[2])}", "size": size}
    for key in ("trigger", *_ENDS_OF_TRANSFERS):
        if key in values:
            transfer[key] = int(values[key])
    return transfer if "trigger" in values else {**transfer, "start": f"{start_ns} ns"}


def _trigger(values: Mapping[str, str]) -> dict[str, Any]:
    """The trigger of a line.

    Raises:
        _Refusal: it has no number, or not one kind.
    """
    kinds = [kind for kind in _KINDS if kind in values]
    if "id" not in values or len(kinds) != 1:
        raise _Refusal(f"an id and one of {', '.join(_KINDS)}, as in {_TRIGGER_LINE.example}")
    return {"id": int(values["id"]), "kind": kinds[0], "count": int(values.get("count", 0))}


def _cut_link(values: Mapping[str, str]) -> str:
    """The link of a failure.

    Raises:
        _Refusal: a word is missing, or it is a link of a third tier.
    """
    if len(values) < len(_FAILURE_LINE.words):
        raise _Refusal(_FAILURE_LINE.expected)
    link = _OF_TWO_TIERS.get(values["switch_type"])
    if link is None:
        expected = f"{' or '.join(_OF_TWO_TIERS)}: the fabric has two tiers of switches"
        raise _Refusal(expected, values["switch_type"])
    numbers = {key: int(values[key]) for key in ("switch_id", "link_id")}
    return link.format(**numbers)


def _values(words: list[str], line: _Form) -> dict[str, str]:
    """What follows each word of a line.

    Raises:
        _Refusal: a word is unknown or there twice, or what follows it has another form.
    """
    values: dict[str, str] = {}
    left = iter(words)
    word = next(left, None)
    while word is not None:
        wanted, value = line.words.get(word), next(left, None)
        if wanted is None:
            raise _Refusal(f"one of {', '.join(line.words)}", word)
        if word in values:
            raise _Refusal("each word once", word)
        values[word] = ""
        if value is not None and wanted is not _FLAG and wanted.form.fullmatch(value):
            values[word] = value
            value = next(left, None)
        elif word != "msg" and wanted is not _FLAG:
            expected = f"{word} and {wanted.what}, in {line.expected}"
            raise _Refusal(expected, f"{word} {value or ''}".strip())
        word = value
    return values
