"""Has runs made, each by `testbed run` or `testbed simulate` in a process of its own.

So a run that fails ends nothing but itself, and each is what a user gets who runs its scenario.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from testbed.paper.runs import Order

Progress = Callable[[str, float], None]

_TESTBED = (sys.executable, "-c", "from testbed.cli import main; main()")
_OVERHEAD_S = 8.0
"""What a run takes beside its duration: to build the fabric, to end and to analyse. For estimates
only, which then follow what runs really take."""

_STOP_S = 30.0
"""How long a run may take to end when it is told to."""

_LAST_WORDS = 400
"""Characters of what a failed run said that are kept."""


def make(orders: Sequence[Order], progress: Progress) -> dict[str, str]:
    """Make runs, emulated ones one after the other, simulated ones one a CPU at a time.

    Returns what went wrong, by the names of those that were not carried through.
    """
    failures: dict[str, str] = {}
    course = _Course(orders, progress)
    for simulated in (False, True):
        own = [one for one in orders if one.simulated is simulated]
        workers = (os.cpu_count() or 1) if simulated else 1
        with ThreadPoolExecutor(workers) as pool, _running() as running:
            pending: dict[Future[str | None], Order] = {}
            left = iter(own)
            while True:
                while len(pending) < workers and (one := next(left, None)) is not None:
                    course.began(one)
                    pending[pool.submit(_run, one, running)] = one
                if not pending:
                    break
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    one = pending.pop(future)
                    course.ended(one)
                    failure = future.result()
                    if failure is not None:
                        failures[one.name] = failure
    return failures


class _Course:
    """How far it is, and how long the rest will take at the pace so far."""

    def __init__(self, orders: Sequence[Order], progress: Progress) -> None:
        self._orders = orders
        self._progress = progress
        self._total = sum(_expected_s(one) for one in orders)
        self._done = 0.0
        self._count = 0
        self._began = time.monotonic()

    def began(self, one: Order) -> None:
        self._count += 1
        left = "" if not self._done else f", {_words(self._left_s())} left"
        what = f"{self._count}/{len(self._orders)} {one.name}{left}"
        self._progress(what, self._done / self._total)

    def ended(self, one: Order) -> None:
        self._done += _expected_s(one)

    def _left_s(self) -> float:
        return (time.monotonic() - self._began) * (self._total / self._done - 1)


def _expected_s(one: Order) -> float:
    return one.scenario.duration / 1e9 + _OVERHEAD_S


def _words(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"  # noqa: PLR2004 - taste


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
            process.wait(_STOP_S)
        raise


def _run(one: Order, running: _Running) -> str | None:
    """Run one; returns what went wrong, None if it was carried through."""
    command = "simulate" if one.simulated else "run"
    arguments = [*_TESTBED, command, str(one.file), "--results", str(one.results)]
    with one.log.open("wb") as log:
        # In a session of its own: the terminal's Ctrl-C reaches it by us, once.
        process = subprocess.Popen(  # noqa: S603 - our own command
            arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
        running.add(process)
        status = process.wait()
        running.discard(process)
    if one.finished() is not None:
        return None
    said = one.log.read_text(errors="replace").strip()
    return f"exit status {status}: {said[-_LAST_WORDS:]}"
