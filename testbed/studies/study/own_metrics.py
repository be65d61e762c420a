"""Metrics of the user's own: functions of a run's result, named as `./mine.py:gap_rtt`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from numbers import Real
from typing import Any

from testbed.host.own_class import NO_ERROR, Code, describe_error, load, shown
from testbed.model.errors import InputError, RunFailedError
from testbed.model.own_code import OwnCode
from testbed.model.summary.unit import BYTES, COUNT, MS, NUMBER, RATE, RTT, SECONDS, SHARE, US, Unit
from testbed.results.comparison import Group
from testbed.runs.result import Result

_UNITS = {
    "bps": RATE,
    "bytes": BYTES,
    "count": COUNT,
    "fraction": SHARE,
    "ms": MS,
    "rtt": RTT,
    "s": SECONDS,
    "us": US,
}
"""By how a function's name ends, as those of the testbed's metrics do."""


def unit_of(name: str) -> Unit:
    """The unit of what a function returns."""
    return _UNITS.get(name.rpartition("_")[2], NUMBER)


def title_of(name: str) -> str:
    """What a function measures, in words: its name without the unit."""
    words = name.split("_")
    return " ".join(words[:-1] if words[1:] and words[-1] in _UNITS else words)


@dataclass(frozen=True)
class OwnMetric:
    """A function that takes the result of a run and returns a number.

    It may return infinity for what never happened, and None for what cannot be measured.
    """

    code: OwnCode
    function: Callable[[Result], Any]

    @classmethod
    def of(cls, code: OwnCode) -> "OwnMetric":
        """Execute a file that has such a function.

        Raises:
            InputError: its code raises an error.
        """
        try:
            return cls(code, load(Code(code.name, code.file, code.source, code.files)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code does
            raise _error_in(code, error, "") from None

    def __call__(self, run: Result) -> float | None:
        """Measure a run.

        Raises:
            InputError: the function raises an error, or returns no number.
        """
        try:
            value = self.function(run)
        except RunFailedError:  # the run shows nothing
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            raise _error_in(self.code, error, f", of the run {run.directory}") from None
        if value is None:
            return None
        try:
            number = float(value) if isinstance(value, Real) else nan
        except OverflowError:  # an int that is too large
            number = nan
        if isnan(number) or number == -inf:
            expected = "a number; infinity for what never happened, None for what was not measured"
            found = f"{shown(value)} returned, of the run {run.directory}"
            raise self.code.error(self.code.name, found, expected)
        return number


def _error_in(code: OwnCode, error: BaseException, where: str) -> InputError:
    text, line, remedy = describe_error(error, code.file, code.files)
    return code.error(code.name, f"{text}{where}", NO_ERROR, line, remedy)


def measured(
    group: Group, metrics: Mapping[str, OwnMetric], is_asked: Callable[[str], bool]
) -> Group:
    """A group with the numbers of metrics of the user's own; None of those that nobody asks for."""
    numbers: dict[str, list[float | None]] = {name: [] for name in metrics}
    for run in map(Result, group.runs):  # whose records are read once
        for name, metric in metrics.items():
            numbers[name].append(metric(run) if is_asked(name) else None)
    return replace(group, own=numbers)
