"""GOAL schedules: what each rank of a parallel program sends, receives and computes.

    num_ranks 2
    rank 0 {
    l1: calc 100 cpu 0
    l2: send 10b to 1 tag 3
    l2 requires l1
    }
    rank 1 {
    recv 10b from 0 tag 3
    }

Rank n is host n of the fabric. Operations begin at once, unless they require others: `requires`
waits for their end, `irequires` for their beginning. Computations of one rank with the same `cpu`
follow one another. A receipt takes a message of its tag; -1 is any sender or tag. A message of 0
bytes has 1 here. `nic` is read and changes nothing: a rank is one host.

Source: `txt2bin.re` of LogGOPSim (T. Hoefler, T. Schneider, A. Lumsdaine).
"""

import re
from array import array
from collections.abc import Callable
from pathlib import Path

from testbed.model.errors import InputError
from testbed.model.files.reading import text_lines
from testbed.model.graph import (
    ANY,
    BEGUN,
    COMPUTE,
    DONE,
    MAX_AMOUNT,
    RECEIVE,
    SEND,
    Graph,
    TooLargeError,
)

MAX_RANKS = 1 << 18
"""Most ranks: as many as the largest fabric has hosts."""

_NAME = r"[a-zA-Z][a-zA-Z0-9_]*"
_STATEMENT = re.compile(
    rf"(?:({_NAME})\s*:\s*)?(?:"
    r"(send|recv)\s*(\d{1,30})\s*b\s*(to|from)\s*(-1|\d{1,9})"
    r"(?:\s*tag\s*(-1|\d{1,10}))?(?:\s*cpu\s*\d{1,9})?(?:\s*nic\s*\d{1,9})?"
    r"|calc\s*(\d{1,30})(?:\s*cpu\s*(\d{1,9}))?)"
    rf"|({_NAME})\s+(requires|irequires)\s+({_NAME})",
    re.ASCII,
)
_RANKS = re.compile(r"num_ranks\s*(\d{1,30})(?!\S)", re.ASCII)
_RANK = re.compile(r"rank\s*(\d{1,9})\s*\{", re.ASCII)

_EXAMPLES = (
    "send 10b to 1 tag 0, recv 10b from 0, calc 100, or a requires b; numbers are whole, in digits"
)
_LONGEST = 80
"""Characters of a line that a message shows."""


def read_goal(file: Path) -> Graph:
    """Read a file; rank n is called `h`n.

    Raises:
        InputError: it cannot be read, is no GOAL schedule, or has operations that wait for one
            another for ever.
    """
    schedule = _Schedule(file)
    inside_comment, began = False, 0
    for number, line in enumerate(text_lines(file, "a GOAL schedule"), 1):
        text = line
        if inside_comment or "/" in line:
            is_new = not inside_comment or "*/" in line
            text, inside_comment = _without_comments(line, inside=inside_comment)
            began = number if is_new else began
        schedule.read(text.strip())
    if inside_comment:
        raise InputError.of(f"{file}:{began}", "a comment without an end", "*/ at its end")
    return schedule.finished()


def _without_comments(line: str, *, inside: bool) -> tuple[str, bool]:
    """What of a line is no comment, and whether one goes on after it."""
    kept = ""
    while line:
        if inside:
            _, end, line = line.partition("*/")
            inside = not end
            continue
        starts = [at for at in (line.find("//"), line.find("/*")) if at >= 0]
        if not starts:
            return kept + line, False
        at = min(starts)
        kept += line[:at]
        if line.startswith("//", at):
            return kept, False
        inside, line = True, line[at + 2 :]
    return kept, inside


class _Schedule:
    """A file as far as it has been read."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._line = 0
        self._graph = Graph({SEND: "send", RECEIVE: "recv", COMPUTE: "calc"})
        self._lines = array("q")  # by operation
        self._ranks: int | None = None
        self._rank: int | None = None
        self._begun = set[int]()
        self._labels: dict[str, int] = {}

    def _error(self, found: str, expected: str, remedy: str = "") -> InputError:
        shown = found if len(found) <= _LONGEST else f"{found[:_LONGEST]}..."
        return InputError.of(f"{self._file}:{self._line}", shown, expected, remedy)

    def read(self, text: str) -> None:
        """Take a line without its comments.

        Raises:
            InputError: it is wrong.
        """
        self._line += 1
        try:
            while text:
                if self._rank is None:
                    text = self._read_outside(text)
                    continue
                body, closed, text = text.partition("}")
                if closed:
                    body, text = body.strip(), text.strip()
                if body:
                    self._read_inside(body, self._rank)
                if closed:
                    self._rank = None
        except TooLargeError as error:
            raise self._error("one more", str(error)) from None

    def _read_outside(self, text: str) -> str:
        """Take `num_ranks`, or the beginning of a rank; returns what follows."""
        if found := _RANKS.match(text):
            if self._ranks is not None:
                raise self._error(text, "one line num_ranks")
            self._ranks = int(found[1])
            if not 1 <= self._ranks <= MAX_RANKS:
                raise self._error(text, f"1 to {MAX_RANKS:,} ranks")
            self._graph.name_hosts(f"h{rank}" for rank in range(self._ranks))
        elif self._ranks is None:
            raise self._error(text, "a line such as num_ranks 8 before all else")
        elif found := _RANK.match(text):
            rank = self._checked(int(found[1]))
            if rank in self._begun:
                raise self._error(text, "each rank once")
            self._begun.add(rank)
            self._rank = rank
            self._labels = {}
        else:
            raise self._error(text, "the beginning of a rank, such as rank 0 {")
        return text[found.end() :].strip()

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < (self._ranks or 0):
            raise self._error(f"rank {rank}", f"ranks below {self._ranks}, as num_ranks says")
        return rank

    def _read_inside(self, text: str, rank: int) -> None:
        found = _STATEMENT.fullmatch(text)
        if found is None:
            raise self._error(text, _EXAMPLES)
        label, verb, size, way, peer, tag, time, cpu, later, how, earlier = found.groups()
        if how:
            self._depend(later, earlier, DONE if how == "requires" else BEGUN)
            return
        if label in self._labels:
            raise self._error(f"{label} a second time", "each label of a rank once")
        amount = int(size or time)
        if amount > MAX_AMOUNT:
            raise self._error(text, f"a size or time of {MAX_AMOUNT:,} at most")
        if verb:
            number = self._message(text, rank, verb, way, int(peer), max(amount, 1), int(tag or 0))
        else:
            number = self._graph.append(COMPUTE, rank, ANY, amount, stream=int(cpu or 0))
        self._lines.append(self._line)
        if label:
            self._labels[label] = number

    def _depend(self, later: str, earlier: str, event: int) -> None:
        for label in (later, earlier):
            if label not in self._labels:
                expected = "a label of an operation above, in its rank"
                raise self._error(f"the label {label}", expected)
        self._graph.after(self._labels[later], self._labels[earlier], event)

    def _message(
        self, text: str, rank: int, verb: str, way: str, peer: int, size: int, tag: int
    ) -> int:
        sends = verb == "send"
        if sends != (way == "to"):
            raise self._error(text, "send ... to, or recv ... from")
        if sends and ANY in (peer, tag):
            raise self._error(text, "a rank and a tag: -1 is for receipts")
        if peer != ANY and self._checked(peer) == rank:
            raise self._error(text, "another rank")
        return self._graph.append(SEND if sends else RECEIVE, rank, peer, size, tag=tag)

    def finished(self) -> Graph:
        """The operations of all ranks, when the file is read.

        Raises:
            InputError: something is missing, or operations wait for one another for ever.
        """
        if self._rank is not None:
            raise self._error("the end of the file", f"a closing bracket of rank {self._rank}")
        if not len(self._graph):
            raise InputError.of(str(self._file), "no operation", "a GOAL schedule")
        require_end(self._graph, lambda number: f"{self._file}:{self._lines[number]}")
        return self._graph


def require_end(graph: Graph, place: Callable[[int], str]) -> None:
    """Check that all operations of a graph can end; `place` says where one stands.

    Raises:
        InputError: some never do.
    """
    stuck = graph.stuck()
    if stuck:
        others = f" (and {len(stuck) - 1:,} more)" if stuck[1:] else ""
        first = graph[stuck[0]]
        what = {
            SEND: f"a message from {first.host} to {first.peer}",
            RECEIVE: f"a receipt at {first.host} from {first.peer}",
        }.get(first.kind, f"a computation of {first.host}")
        raise InputError.of(
            place(stuck[0]),
            f"{what} that never ends{others}",
            "operations that all end",
            "look for some that wait for one another, or for a receipt without its message",
        )
