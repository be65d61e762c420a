"""How far a campaign is, and how long the rest will take at the pace so far."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.model.progress import Progress
from testbed.model.summary import State
from testbed.model.units import show_wait
from testbed.runs.job import PlannedRun

_MOST = 0.99
"""The share of a campaign that time alone can complete."""


@dataclass
class CampaignProgress:
    """Reports the progress of some runs of one form, with an estimate of the time left.

    Attributes:
        runs: those that are to be made.
        slots: how many are made at a time now.
        progress: called with the run that was started last, and the share of time passed.
        what: what they are called: `simulated run`.
        made_before: how many others of the campaign are there already; they are counted.
    """

    runs: Sequence[PlannedRun]
    slots: int
    progress: Progress
    what: str
    made_before: int = 0
    _started: int = 0
    _done_s: float = 0.0
    _ended: int = 0
    _trusted: int = 0
    _failed: int = 0
    _cut_short: int = 0
    _name: str = ""
    _share: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _last_end: float = 0.0

    def note_start(self, planned: PlannedRun) -> None:
        """Take note of a run that is started."""
        self._started += 1
        self._name = planned.job.name
        self.report()

    def note_end(self, planned: PlannedRun, state: State | None, cut_short: int) -> None:
        """Take note of a run that has ended.

        Args:
            planned: the run.
            state: whether it can be trusted; None if it was not finished.
            cut_short: how many so far were ended early, as they were too late.
        """
        self._ended += 1
        self._trusted += state == "trusted"
        self._failed += state is None
        self._cut_short = cut_short
        self._done_s += planned.expected_s()
        self._last_end = time.monotonic()

    def report(self) -> None:
        """Report how far it is."""
        left_s, passed_s = self._left_s(), time.monotonic() - self._began
        late = left_s <= 0  # the machine is slower than estimated
        state = "longer than estimated" if late else f"about {show_wait(left_s)} left"
        if self._ended:
            state += f"; {self._ended} done, {self._trusted} trusted"
        if failed := self._failed - self._cut_short:
            state += f", {failed} failed"
        if self._cut_short:
            state += f"; {self._cut_short} ended early, too late"
        number, count = (self.made_before + runs for runs in (self._started, len(self.runs)))
        text = f"{self.what} {number}/{count} ({state}): {self._name}"
        share = min(passed_s / (passed_s + left_s + 1e-9), _MOST)
        self._share = max(self._share, share, self._done_s / self._expected_s)
        self.progress(text, self._share)

    @cached_property
    def _expected_s(self) -> float:
        return sum(run.expected_s() for run in self.runs)

    def _left_s(self) -> float:
        return max(self._total_s() - (time.monotonic() - self._began), 0.0)

    def _total_s(self) -> float:
        """How long all of it takes: as estimated first, then more and more at the pace so far."""
        share, estimate_s = self._done_s / self._expected_s, self._expected_s / self.slots
        if not share:
            return estimate_s
        pace_s = (self._last_end - self._began) / share
        trust = math.sqrt(share)
        return trust * pace_s + (1 - trust) * estimate_s
