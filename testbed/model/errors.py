"""Errors that a user can act on, each with its exit status."""

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import ClassVar, Self


class ExitStatus(IntEnum):
    """Exit statuses of the command line."""

    AS_EXPECTED = 0
    FAILED = 1
    WRONG_INPUT = 2
    MACHINE_CANNOT = 3
    UNTRUSTED = 4
    CRASHED = 5
    """The program has a bug. Another attempt would end in the same way."""


SIGNALLED = 128
"""A process that signal N killed has the exit status 128 + N, as in shells."""

_CRASH_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS")
    if hasattr(signal, name)
)
"""Signals that kill a process because of a bug in its own code."""


def exit_status_of(exit_code: int) -> ExitStatus:
    """The meaning of the exit status of a command that ended without a result.

    Args:
        exit_code: its exit status, or minus the number of the signal that killed it.
    """
    number = -exit_code if exit_code < 0 else exit_code - SIGNALLED
    if number > 0:  # killed by somebody, or because of a bug
        return ExitStatus.CRASHED if number in _CRASH_SIGNALS else ExitStatus.UNTRUSTED
    known = exit_code in set(ExitStatus) - {ExitStatus.AS_EXPECTED}
    return ExitStatus(exit_code) if known else ExitStatus.CRASHED


def is_crash(exit_code: int) -> bool:
    """Whether a bug ended a process; the argument is that of `exit_status_of`."""
    return exit_code == ExitStatus.CRASHED or (
        not 0 <= exit_code <= SIGNALLED and exit_status_of(exit_code) is ExitStatus.CRASHED
    )


class TestbedError(Exception):
    """Base of all errors that are shown as a message, without a traceback.

    Attributes:
        kept: what is kept of the run that it ended, in words; empty if it ended none.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.FAILED
    kept = ""
    __test__ = False  # keeps pytest from collecting it for its name


_LONGEST, _MOST_ALIKE = 500, 10
"""Characters of a value that a message shows; lines about the same mistake in several places."""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in an input.

    Attributes:
        where: file, line and key path, such as `scenarios/x.yaml:14: timeline[0].at`, or an option.
        found: the value, as the user wrote it; empty if it is missing.
        expected: what would have been right.
        remedy: what to do about it; empty if `expected` is enough.
    """

    where: str
    found: str
    expected: str
    remedy: str = ""

    def __str__(self) -> str:
        found = f"found {_cut(self.found)}, " if self.found else ""
        remedy = f"\n  remedy: {_cut(self.remedy)}" if self.remedy else ""
        return f"{self.where}: {found}expected {self.expected}{remedy}"


def as_answer(*problems: Problem) -> dict[str, list[dict[str, str]]]:
    """Problems as data: the answer to a request or a command that is refused."""
    return {"errors": [asdict(problem) for problem in problems]}


class RefusedValueError(ValueError):
    """A model refuses a value.

    Attributes:
        expected: what would have been right.
        remedy: what to do about it; empty if `expected` is enough.
        key: the key of the value within the model; empty if it is the model's input itself.
    """

    def __init__(self, expected: str, *, remedy: str = "", key: str = "") -> None:
        super().__init__(": ".join(filter(None, (key, expected, remedy))))
        self.expected = expected
        self.remedy = remedy
        self.key = key


_SYNONYMS = {
    "down": "cut",
    "drop": "loss",
    "grey": "loss",
    "latency": "delay",
    "link_down": "cut",
    "matrix": "connections",
    "max": "at_most",
    "min": "at_least",
    "ring": "allreduce",
    "silent": "blackhole",
    "slow": "degrade",
}
"""What people call kinds of faults, workloads and bounds elsewhere."""


def similar_word(word: str, known: Sequence[str]) -> str | None:
    """The known word that is most like a misspelt one; None if none is like it."""
    by_lower = {name.lower(): name for name in known}
    words = sorted(word.lower().split("_"))
    for lower, name in by_lower.items():
        if len(words) > 1 and sorted(lower.split("_")) == words:
            return name
    similar = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    completed = [name for name in by_lower if word and name.startswith(word.lower())]
    if len(completed) == 1:
        similar = completed
    return by_lower.get(similar[0] if similar else _SYNONYMS.get(word.lower(), ""))


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A remedy that names the known word most like a misspelt one; empty if none is like it."""
    similar = similar_word(word, known)
    return f"did you mean {similar}?" if similar else ""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something in a valid scenario that its author may not intend.

    Attributes:
        where: its key path.
        what: its consequence.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def printable(text: str) -> str:
    """A text that moves no cursor and hides nothing when it is printed.

    Lines stay; other white space becomes a blank. What cannot be printed becomes its code in
    Python, such as the ESC that begins a command to a terminal.
    """
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    if character.isspace() and character >= " ":
        return " "
    return " " if character == "\t" else character.encode("unicode_escape").decode()


def few(names: Sequence[str]) -> str:
    """The first three names of a list, and the number of the others."""
    shown = 3
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@dataclass(eq=False)
class InputError(TestbedError):
    """A topology, scenario or option that cannot be used."""

    problems: list[Problem] = field(default_factory=list)
    exit_status: ClassVar[ExitStatus] = ExitStatus.WRONG_INPUT

    @classmethod
    def of(cls, where: str, found: str, expected: str, remedy: str = "") -> Self:
        """The error of one problem; the arguments are the fields of `Problem`."""
        return cls([Problem(where, found, expected, remedy)])

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """A text for each problem; of many that are alike for the first ones, and how many."""
        alike: dict[tuple[str, str], list[Problem]] = {}
        lines = []
        for problem in self.problems:
            kind = re.sub(r"\d+", "", problem.where), problem.expected
            of_kind = alike.setdefault(kind, [])
            of_kind.append(problem)
            if len(of_kind) <= _MOST_ALIKE:
                lines.append(str(problem))
        lines += [
            f"{more:,} more like this, to {of_kind[-1].where}: expected {of_kind[-1].expected}"
            for of_kind in alike.values()
            if (more := len(of_kind) - _MOST_ALIKE) > 0
        ]
        return lines


def raise_any(problems: Iterable[Problem | None]) -> None:
    """Raise an error with all problems that are not None, if there are any.

    Raises:
        InputError: at least one of them is not None.
    """
    existing = [problem for problem in problems if problem is not None]
    if existing:
        raise InputError(existing)


@dataclass(eq=False)
class MachineError(TestbedError):
    """Something that this machine cannot do, with what to install or change."""

    what: str
    remedy: str
    exit_status: ClassVar[ExitStatus] = ExitStatus.MACHINE_CANNOT

    def __str__(self) -> str:
        return f"{self.what}\n  remedy: {self.remedy}" if self.remedy else self.what


@dataclass(eq=False)
class ClusterLostError(MachineError):
    """The cluster that makes runs has lost its scheduler, or all workers that can make them.

    What is finished is kept. Commands that can make the rest say how (`reporting_how_to_resume`).
    """

    remedy: str = "give the command again"


class RunFailedError(TestbedError):
    """A process of the run died or a fault did not take effect: its result cannot be trusted."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.UNTRUSTED


class CrashError(RunFailedError):
    """The program has a bug: it raised an unexpected exception, or a signal for a bug killed it."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.CRASHED


class LateError(RunFailedError):
    """The machine was too late for the run to be trusted, and `--stop-if-late` ended it."""
