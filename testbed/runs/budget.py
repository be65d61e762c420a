"""Which emulated runs that cannot be trusted are made again, and how much time that may take."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from testbed.model.errors import ExitStatus
from testbed.runs.job import JobKey, JobRecord
from testbed.runs.plan import SLOWED, STATES, PlannedRun
from testbed.runs.store import Store

REPEAT_S = 30 * 60.0
"""What making the emulated runs of all figures once may take, with those that are made again."""


@dataclass(frozen=True)
class RetryPolicy:
    """Which emulated runs are made again, how slowed down, and for how long.

    Attributes:
        seconds: how long all emulated runs of a campaign may take. Each is made once even so.
        factors: by how much each attempt at a run is slowed down, the first one included.
        stop_if_late: whether a run is ended as soon as the machine was too late for it, if it can
            be made again in that time.
    """

    seconds: float = REPEAT_S
    factors: tuple[float, ...] = SLOWED
    stop_if_late: bool = True

    def may_improve(self, planned: PlannedRun, record: JobRecord | None, store: Store) -> bool:
        """Whether a run should be made again: it failed, or cannot be trusted."""
        if record is not None and record.run is None:
            return not record.must_not_repeat
        run = store.best(planned)
        return run is not None and planned.verdict(run.summary) != "trusted"

    def urgency(self, planned: PlannedRun, store: Store) -> float:
        """Which run is made again first: that in the worst state, above all one that is missing."""
        run = store.best(planned)
        return len(STATES) if run is None else STATES.index(planned.verdict(run.summary))

    def choose(
        self, candidates: Sequence[PlannedRun], seconds: float, factor: float, store: Store
    ) -> list[PlannedRun]:
        """The runs that can be made in a time if slowed down by a factor, most urgent first."""
        chosen = []
        for planned in sorted(candidates, key=lambda run: -self.urgency(run, store)):
            expected_s = planned.expected_s(factor)
            if expected_s <= seconds:
                seconds -= expected_s
                chosen.append(planned.slowed(factor))
        return chosen


@dataclass(frozen=True)
class SeriesPolicy(RetryPolicy):
    """Of a series on a cluster: emulated runs that cannot be trusted are made again elsewhere.

    At the same dilation, which all runs of a case have; each as often as there are factors, its
    first attempt included, however often the series is continued. Runs that fail are results.
    """

    seconds: float = inf
    factors: tuple[float, ...] = (1.0, 1.0, 1.0)
    stop_if_late: bool = False

    def may_improve(self, planned: PlannedRun, record: JobRecord | None, store: Store) -> bool:
        """Whether a run should be made again: it is finished, and cannot be trusted."""
        attempts = len(store.attempts(planned))
        fails = record is not None and record.run is None
        left = not fails and 0 < attempts < len(self.factors)
        return left and super().may_improve(planned, record, store)


class Deadline:
    """The time until which emulated runs that cannot be trusted are made again.

    The time that was spent on lost workers is not subtracted: it has a budget of its own.
    """

    def __init__(self, seconds: float) -> None:
        """Begin a time of so many seconds."""
        self._until = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """How much of it is left, in seconds; negative if it is over."""
        return self._until - time.monotonic()

    def note_end(self, record: JobRecord, slots: int) -> None:
        """Take note of a run that has ended, one of so many that are made at a time."""
        self._until += record.lost_s / slots


class TimeBudget:
    """What time is left to make runs again, while others are still to be made.

    Attributes:
        cut_short: the keys of the runs that were ended early.
        deadline: when the time is over.
    """

    def __init__(
        self, runs: Sequence[PlannedRun], deadline: Deadline, factor: float | None
    ) -> None:
        """Plan the time of some runs.

        Args:
            runs: they are made in turn.
            deadline: when the time is over.
            factor: by how much runs are slowed down that are made again; None if none are.
        """
        self.cut_short: set[JobKey] = set()
        self._remaining_s = sum(run.expected_s() for run in runs)
        self.deadline = deadline
        self._factor = factor

    def allows_retry(self, planned: PlannedRun) -> bool:
        """Whether the run that is next can be made again, even if it goes on to its end."""
        if self._factor is None:
            return False
        retry_s = planned.expected_s(self._factor)
        return self._remaining_s + retry_s <= self.deadline.left_s

    def note_end(
        self, planned: PlannedRun, record: JobRecord, *, retry: bool, stop_if_late: bool
    ) -> None:
        """Take note of a run that has ended.

        Args:
            planned: the run.
            record: what became of it.
            retry: whether it should be made again.
            stop_if_late: whether it was to be ended if the machine was too late for it.
        """
        self._remaining_s -= planned.expected_s()
        if self._factor is not None and retry:
            self._remaining_s += planned.expected_s(self._factor)
        if stop_if_late and record.run is None and record.status == ExitStatus.UNTRUSTED:
            self.cut_short.add(planned.job.key)
