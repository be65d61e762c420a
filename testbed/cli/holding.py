"""`testbed run --hold`: a run that stays up until its user ends it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.model.errors import InputError
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from types import FrameType

    from testbed.experiment.hold import Hold


def hold_of(*, hold: bool, limit: str | None, several: bool) -> "Hold | None":
    """What `--hold` and `--hold-for` ask for; a limit alone says both.

    Raises:
        InputError: the limit is no time, or several runs were to be held.
    """
    from testbed.experiment.hold import Hold
    from testbed.model.units import parse_duration

    if not hold and limit is None:
        return None
    if several:
        found = "with --repeat, --sweep or --into"
        raise InputError.of("--hold", found, "one run", "a series plays its timeline only")
    if limit is None:
        return Hold()
    try:
        limit_ns = parse_duration(limit)
    except ValueError as error:
        raise InputError.of("--hold-for", limit, str(error)) from None
    if limit_ns <= 0:
        raise InputError.of("--hold-for", limit, "a time above 0, such as 5min")
    return Hold(limit_ns)


@contextmanager
def ended_by_ctrl_c(hold: "Hold | None", progress: Progress) -> Iterator[Progress]:
    """Have the first SIGINT while a run is held end that in order; any other interrupts the run.

    Yields what is to be told how far the run is: so it hears that the hold begins, and ends.
    """
    from testbed.experiment.hold import HELD

    usual = signal.getsignal(signal.SIGINT)
    heard = False

    def end(_number: int, _frame: "FrameType | None") -> None:
        if hold is not None:
            hold.end()
        signal.signal(signal.SIGINT, usual)

    def told(what: str, done: float) -> None:
        nonlocal heard
        if (what == HELD) is not heard:
            heard = not heard
            signal.signal(signal.SIGINT, end if heard else usual)
        progress("held; Ctrl-C ends it and writes the report" if what == HELD else what, done)

    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, usual)
