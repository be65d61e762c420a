"""Random schedules: how many a test is to draw, and how many it drew."""

import os
from collections.abc import Callable, Iterator

import pytest


def schedules(usually: int) -> int:
    """How many to draw: as many as usual, or as `TESTBED_SCHEDULES` says."""
    return int(os.environ.get("TESTBED_SCHEDULES", usually))


class Drawn:
    """Counts the schedules of a file's tests; `testbed bench robustness` adds them up."""

    def __init__(self) -> None:
        self._number = 0

    def one_more(self) -> None:
        self._number += 1

    def recorded(self) -> object:
        """A fixture, to be kept in the file: each test tells in its report how many it drew."""

        @pytest.fixture(autouse=True)
        def record(record_property: Callable[[str, object], None]) -> Iterator[None]:
            before = self._number
            yield
            record_property("schedules", self._number - before)

        return record
