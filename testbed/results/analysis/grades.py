"""How bad what was found about a run is, and the sentence that says so."""

from collections.abc import Iterable
from enum import IntEnum


class Level(IntEnum):
    """What it makes of the run."""

    TRUSTED = 0
    DEGRADED = 1
    INVALID = 2


Found = Iterable[tuple[Level, str]]
"""What was found: how bad each point is, and the sentence that tells it."""


def grade(value: float, degraded: float, invalid: float) -> Level:
    """The level of a value, of which so much is degraded, and so much invalid."""
    if value > invalid:
        return Level.INVALID
    return Level.DEGRADED if value > degraded else Level.TRUSTED
