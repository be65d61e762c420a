"""Has runs made, each by `testbed run` or `testbed simulate` in a process of its own.

So a run that fails ends nothing but itself, and each is what a user gets who runs its scenario.
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from testbed.model.errors import ExitStatus
from testbed.model.progress import Progress
from testbed.paper.figure import FORMS, Form
from testbed.paper.runs import SLOWED, STATES, Order, verdict

_TESTBED = (sys.executable, "-c", "from testbed.cli import main; main()")

REPEAT_S = 30 * 60.0
"""What making the emulated runs of all figures once may take, with what is tried again."""

_STOP_S = 30.0
"""How long a run may take to end when it is told to."""

_PATIENCE, _LEAST_S = 8.0, 300.0
"""A run that takes so many times what was expected, and so long at least, is given up."""

_LAST_WORDS = 400
"""Characters of what a failed run said that are kept."""

_HOPELESS = frozenset((ExitStatus.WRONG_INPUT, ExitStatus.MACHINE_CANNOT))
"""Another attempt would end the same."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a run was not carried through."""

    status: int
    words: str

    def __str__(self) -> str:
        return f"exit status {self.status}: {self.words}"


def make(
    orders: Sequence[Order], progress: Progress, emulated_s: float = REPEAT_S
) -> dict[Path, str]:
    """Make runs, emulated ones one after the other, simulated ones one a CPU at a time.

    No run ends the others. Emulated ones that cannot be trusted, or broke off, are made again when
    all have been made once, slower, and slower still after that, in what is left of the time:
    first those that cannot be told of as they are. A run is ended as soon as the machine was too
    late for it, if it can be made again in that time; should it not be after all, it is made to its
    end at last.

    Args:
        orders: the runs.
        progress: told how far it is.
        emulated_s: how long the emulated ones may take. Each is made once all the same.

    Returns:
        What went wrong, by the scenarios' files of those that were not carried through.
    """
    failures: dict[Path, str] = {}

    def made(now: Sequence[Order], what: str, spare: _Spare) -> dict[Path, _Failure | None]:
        ended = _make_once(now, _Course(now, progress, what), spare)
        for file, failed in ended.items():
            failures.pop(file, None)
            if failed is not None:
                failures[file] = str(failed)
        return ended

    for form in FORMS:
        due = [one for one in orders if one.form == form]
        cut_short: set[Path] = set()
        until = time.monotonic() + emulated_s
        factors = SLOWED if form == "emulated" else SLOWED[:1]
        for times, slower in zip_longest(factors, factors[1:]):
            now = due
            if times > 1:
                fit = _worst_that_fit(due, until - time.monotonic(), times)
                now = [one.slowed(times) for one in fit]
            if not now:
                break
            said = f", {times:g} times slower" if times > 1 else ""
            spare = _Spare(now, until, slower and slower / times)
            ended = made(now, f"{form}{said}", spare)
            cut_short = (cut_short - ended.keys()) | spare.cut_short
            due = [
                one for one in due if one.file not in ended or _may_improve(one, ended[one.file])
            ]
        missing = [one for one in due if one.file in cut_short and one.finished() is None]
        if missing:
            made(missing, f"{form}, to the end", _Spare(missing, until, None))
    return failures


def _worst_that_fit(due: Sequence[Order], seconds: float, times: float) -> list[Order]:
    """The runs that can be made in a time if slowed down, those in the worst state first."""
    chosen = []
    for one in sorted(due, key=_state, reverse=True):
        takes_s = one.takes_s(times)
        if takes_s <= seconds:
            seconds -= takes_s
            chosen.append(one)
    return chosen


def _state(one: Order) -> int:
    """The better the less; a run that is not there is in the worst."""
    run = one.finished()
    return len(STATES) if run is None else STATES.index(verdict(one.variant, run.summary))


def estimate_s(orders: Sequence[Order]) -> dict[Form, float]:
    """How long runs will take, by their form, if each has to be made once."""
    return {
        form: sum(one.expected_s for one in orders if one.form == form) / _at_a_time(form)
        for form in FORMS
    }


def in_words(seconds: float) -> str:
    """A time as people say it."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"  # noqa: PLR2004 - taste


def _at_a_time(form: Form) -> int:
    return (os.cpu_count() or 1) if form == "simulated" else 1


def _may_improve(one: Order, failure: _Failure | None) -> bool:
    if failure is not None:
        return failure.status not in _HOPELESS
    run = one.finished()
    return run is not None and verdict(one.variant, run.summary) != "trusted"


class _Spare:
    """What time is left to make runs again that are not trusted, while others are made.

    Attributes:
        cut_short: the files of those that were ended early.
    """

    def __init__(self, orders: Sequence[Order], until: float, times: float | None) -> None:
        """For runs that are to be made in turn until a time, and again so many times slower."""
        self.cut_short: set[Path] = set()
        self._rest_s = sum(one.expected_s for one in orders)
        self._until = until
        self._times = times

    def covers(self, one: Order) -> bool:
        """Whether the run that is next can be made again, even if it goes on to its end."""
        if self._times is None:
            return False
        return time.monotonic() + self._rest_s + one.takes_s(self._times) <= self._until

    def ended(self, one: Order, failure: _Failure | None, *, covered: bool) -> None:
        """Take note of a run that has ended, and of the time that it takes again."""
        self._rest_s -= one.expected_s
        if self._times is not None and _may_improve(one, failure):
            self._rest_s += one.takes_s(self._times)
        if covered and failure is not None and failure.status == ExitStatus.UNTRUSTED:
            self.cut_short.add(one.file)


def _make_once(
    due: Sequence[Order], course: "_Course", spare: _Spare
) -> dict[Path, _Failure | None]:
    """Make each of some runs; what became of it, by its file."""
    ended: dict[Path, _Failure | None] = {}
    workers = _at_a_time(due[0].form)
    with ThreadPoolExecutor(workers) as pool, _running() as running:
        pending: dict[Future[_Failure | None], tuple[Order, bool]] = {}
        left = iter(due)
        while True:
            while len(pending) < workers and (one := next(left, None)) is not None:
                course.began(one)
                covered = spare.covers(one)
                pending[pool.submit(_run, one, running, stop_if_late=covered)] = one, covered
            if not pending:
                return ended
            done, _ = wait(pending, return_when=FIRST_COMPLETED, timeout=_TELL_S)
            course.told()
            for future in done:
                one, covered = pending.pop(future)
                ended[one.file] = failure = future.result()
                spare.ended(one, failure, covered=covered)
                course.ended(one, len(spare.cut_short))


_TELL_S = 1.0
"""So often is told how far it is."""


class _Course:
    """How far it is, and how long the rest will take at the pace so far."""

    def __init__(self, orders: Sequence[Order], progress: Progress, what: str) -> None:
        self._count, self._what = len(orders), what
        self._progress = progress
        self._total = sum(one.expected_s for one in orders)
        self._at_a_time = _at_a_time(orders[0].form)
        self._done = 0.0
        self._begun = self._cut_short = 0
        self._now = ""
        self._began = self._ended = time.monotonic()

    def began(self, one: Order) -> None:
        self._begun += 1
        how = f"about {in_words(self._left_s())} left"
        if self._cut_short:
            how += f"; {self._cut_short} ended early, too late"
        self._now = f"{self._what} {self._begun}/{self._count}: {one.name} ({how})"
        self.told()

    def ended(self, one: Order, cut_short: int) -> None:
        """Take note of one that has ended, and of how many so far were ended early."""
        self._cut_short = cut_short
        self._done += one.expected_s
        self._ended = time.monotonic()

    def told(self) -> None:
        """Tell how far it is."""
        left_s, passed_s = self._left_s(), time.monotonic() - self._began
        self._progress(self._now, passed_s / (passed_s + left_s + 1e-9))

    def _left_s(self) -> float:
        return max(self._expected_s() - (time.monotonic() - self._began), 0.0)

    def _expected_s(self) -> float:
        """How long all of it takes: as estimated first, then more and more at the pace so far."""
        share, estimated = self._done / self._total, self._total / self._at_a_time
        if not share:
            return estimated
        pace = (self._ended - self._began) / share
        trust = math.sqrt(share)
        return trust * pace + (1 - trust) * estimated


_Running = set["subprocess.Popen[bytes]"]


@contextmanager
def _running() -> Iterator[_Running]:
    """Processes that do not outlive this block: when it is left early they are told to stop."""
    running: _Running = set()
    try:
        yield running
    except BaseException:
        for process in tuple(running):
            process.send_signal(signal.SIGTERM)
        for process in tuple(running):
            _stop(process)
        raise


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Have a run end in order, or end it."""
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _run(one: Order, running: _Running, *, stop_if_late: bool) -> _Failure | None:
    """Run one; returns what went wrong, None if it was carried through."""
    before = len(one.attempts())
    command = "simulate" if one.form == "simulated" else "run"
    arguments = [*_TESTBED, command, str(one.file), "--no-figures", "--results", str(one.results)]
    if stop_if_late:
        arguments.append("--stop-if-late")
    with one.log.open("wb") as log:
        # In a session of its own: the terminal's Ctrl-C reaches it by us, once.
        process = subprocess.Popen(  # noqa: S603 - our own command
            arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        running.add(process)
        patience_s = max(_PATIENCE * one.expected_s, _LEAST_S)
        try:
            status = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            return _Failure(ExitStatus.FAILED, f"not done after {in_words(patience_s)}")
        finally:
            running.discard(process)
    if len(one.attempts()) > before:
        return None
    said = one.log.read_text(errors="replace").strip()
    return _Failure(status, said[-_LAST_WORDS:])
