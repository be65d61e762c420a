"""The levels of trust in a run, and reasons for them."""

from collections.abc import Iterator
from enum import IntEnum


class Level(IntEnum):
    """How far a run can be trusted."""

    TRUSTED = 0
    DEGRADED = 1
    INVALID = 2


Reason = tuple[Level, str]
"""A level, and a sentence that says why the run is no better than that."""

Reasons = Iterator[Reason]


def degraded(sentence: str) -> Reason:
    """A reason to take a run's metrics with care."""
    return Level.DEGRADED, sentence


def graded(sentence: str, value: float, degraded_above: float, invalid_above: float) -> Reasons:
    """A reason, if a value is above a limit."""
    if value > degraded_above or value > invalid_above:
        yield Level.INVALID if value > invalid_above else Level.DEGRADED, sentence
