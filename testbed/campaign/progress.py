"""How far a campaign is, and how long the rest will take at the pace so far."""

import math
import time
from collections.abc import Sequence

from testbed.campaign.plan import PlannedRun
from testbed.model.progress import Progress


class CampaignProgress:
    """Reports the progress of some runs of one form, with an estimate of the time left."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        slots: int,
        progress: Progress,
        what: str,
        made_before: int = 0,
    ) -> None:
        """Begin.

        Args:
            runs: those that are to be made.
            slots: how many are made at a time.
            progress: called with the run that was started last, and the share of time passed.
            what: what they are called: `simulated run`.
            made_before: how many others of the campaign are there already; they are counted.
        """
        self._progress, self._what = progress, what
        self._started = made_before
        self._count = made_before + len(runs)
        self._expected_s = sum(run.expected_s() for run in runs)
        self._slots = slots
        self._done_s = 0.0
        self._cut_short = 0
        self._text = ""
        self._began = self._last_end = time.monotonic()

    def note_start(self, planned: PlannedRun) -> None:
        """Take note of a run that is started."""
        self._started += 1
        state = f"about {in_words(self._left_s())} left"
        if self._cut_short:
            state += f"; {self._cut_short} ended early, too late"
        self._text = f"{self._what} {self._started}/{self._count} ({state}): {planned.job.name}"
        self.report()

    def note_end(self, planned: PlannedRun, cut_short: int) -> None:
        """Take note of a run that has ended, and of how many so far were ended early."""
        self._cut_short = cut_short
        self._done_s += planned.expected_s()
        self._last_end = time.monotonic()

    def report(self) -> None:
        """Report how far it is."""
        left_s, passed_s = self._left_s(), time.monotonic() - self._began
        self._progress(self._text, passed_s / (passed_s + left_s + 1e-9))

    def _left_s(self) -> float:
        return max(self._total_s() - (time.monotonic() - self._began), 0.0)

    def _total_s(self) -> float:
        """How long all of it takes: as estimated first, then more and more at the pace so far."""
        share, estimate_s = self._done_s / self._expected_s, self._expected_s / self._slots
        if not share:
            return estimate_s
        pace_s = (self._last_end - self._began) / share
        trust = math.sqrt(share)
        return trust * pace_s + (1 - trust) * estimate_s


def in_words(seconds: float) -> str:
    """A time as people say it."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"  # noqa: PLR2004 - taste
