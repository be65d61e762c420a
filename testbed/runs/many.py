"""Many runs: those that are missing are made, those again that cannot be trusted; how far it is."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from testbed.model.errors import ExitStatus
from testbed.model.progress import Progress
from testbed.model.summary import State
from testbed.model.units import show_wait
from testbed.rights import acting_for
from testbed.runs.job import (
    FORMS,
    SLOWED,
    STATES,
    Executor,
    Form,
    JobKey,
    JobRecord,
    PlannedRun,
    error_of,
)
from testbed.runs.process import LocalExecutor
from testbed.runs.result import Result
from testbed.runs.store import Store

OnEnd = Callable[[PlannedRun, JobRecord], None]
"""Called with each run that has ended, as it was made, and with what became of it."""

REPEAT_S = 30 * 60.0
"""What making the emulated runs of all figures once may take, with those that are made again."""

_REPORT_S = 1.0
"""How often progress is reported."""

_MOST = 0.99
"""The share of a campaign that time alone can complete."""


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


ONCE = RetryPolicy(factors=(1.0,))
"""Each run is made once, whatever it comes to."""


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


def many(
    runs: Sequence[PlannedRun],
    store: Store,
    *,
    pool: Executor,
    retry: RetryPolicy = ONCE,
    again: Sequence[PlannedRun] = (),
    progress: Progress = lambda *_: None,
    on_end: OnEnd = lambda _planned, _record: None,
    made_before: int = 0,
) -> dict[JobKey, JobRecord]:
    """Make runs, each in a process of its own; one that fails does not end the others.

    Emulated runs that cannot be trusted, or failed, are made again when all have been made once:
    slower, and slower still after that, in what is left of the time, the most urgent first. A run
    is ended as soon as the machine was too late for it, if it can be made again in that time. If
    the time is over before it is made again, it is made once more, to its end.

    Args:
        runs: those that are to be made, once at least.
        store: where they are found when they are made.
        pool: makes them.
        retry: which are made again.
        again: emulated runs that were made before, and may be made again.
        progress: called with what is being done, and the share done.
        on_end: called as runs end.
        made_before: how many runs of the campaign are there already, for the progress.

    Returns:
        What became of the runs that were not finished, by the keys of their jobs.
    """
    making = _Making(store, pool, progress, retry, on_end)
    store.clean((*runs, *again))
    for form in FORMS:
        due, retried = ([run for run in each if run.job.form == form] for each in (runs, again))
        making.make_form(form, due, retried, made_before)
    return making.failures


def made_here(
    runs: Sequence[PlannedRun],
    store: Store,
    *,
    retry: RetryPolicy = ONCE,
    progress: Progress = lambda *_: None,
    anew: bool = False,
) -> list[Result]:
    """Make those of some runs that are missing, on this machine; of each the one that counts.

    The arguments are those of `many`; `anew`: also those that are there.

    Raises:
        InputError: the scenario of one is wrong.
        MachineError: this machine cannot make one; the message says what is missing.
        RunFailedError: one was not finished.
    """
    due = [run for run in runs if anew or store.best(run) is None]
    pool, before = LocalExecutor(store.directory), len(runs) - len(due)
    with acting_for(store.directory):
        try:
            failures = many(
                due, store, pool=pool, retry=retry, progress=progress, made_before=before
            )
        finally:
            pool.stop()
    best = []
    for run in runs:
        if (made := store.best(run)) is None:
            raise error_of(failures.get(run.job.key), store.directory / run.job.log)
        best.append(made)
    return best


@dataclass
class _Making:
    """Runs that are being made by `many`."""

    store: Store
    pool: Executor
    progress: Progress
    policy: RetryPolicy
    on_end: OnEnd
    failures: dict[JobKey, JobRecord] = field(default_factory=dict, init=False)

    def make_form(
        self, form: Form, runs: Sequence[PlannedRun], again: Sequence[PlannedRun], made_before: int
    ) -> None:
        policy = self.policy
        factors = policy.factors if form == "emulated" else policy.factors[:1]
        until = time.monotonic() + policy.seconds
        batch, candidates = list(runs), {run.job.key: run for run in (*runs, *again)}
        cut_short: set[JobKey] = set()
        for attempt, factor in enumerate(factors):
            if attempt:
                due = [*candidates.values()]
                batch = policy.choose(due, until - time.monotonic(), factor, self.store)
            if not batch:
                if attempt:
                    break
                continue
            following = factors[attempt + 1] if attempt + 1 < len(factors) else None
            budget = _Budget(batch, until, following)
            what = f"{form}, {factor:g} times slower," if factor > 1 else form
            ended = dict(self._make(batch, budget, f"{what} run", 0 if attempt else made_before))
            cut_short = (cut_short - ended.keys()) | budget.cut_short
            for key, may_improve in ended.items():
                if not may_improve:
                    del candidates[key]
        missing = [
            run
            for run in candidates.values()
            if run.job.key in cut_short and self.store.best(run) is None
        ]
        if missing:
            dict(self._make(missing, _Budget(missing, until, None), f"{form}, to the end, run"))

    def _make(
        self, runs: Sequence[PlannedRun], budget: "_Budget", what: str, made_before: int = 0
    ) -> Iterator[tuple[JobKey, bool]]:
        """Make each of some runs of one form; yield its key, and whether it may be made again."""
        form = runs[0].job.form
        progress = _CampaignProgress(runs, self.pool.slots(form), self.progress, what, made_before)
        pending: dict[Future[JobRecord], tuple[PlannedRun, bool]] = {}
        waiting = iter(runs)
        try:
            while True:
                slots = progress.slots = self.pool.slots(form)  # workers come and go
                while len(pending) < slots and (planned := next(waiting, None)) is not None:
                    progress.note_start(planned)
                    early = self.policy.stop_if_late and budget.allows_retry(planned)
                    how = planned.job.how
                    how = replace(how, stop_if_late=how.stop_if_late or early)
                    pending[self.pool.submit(replace(planned.job, how=how))] = planned, early
                if not pending:
                    return
                done, _ = wait(pending, return_when=FIRST_COMPLETED, timeout=_REPORT_S)
                progress.report()
                for future in done:
                    planned, early = pending.pop(future)
                    record = future.result()
                    self._note_end(planned, record)
                    retry = form == "emulated" and self.policy.may_improve(
                        planned, record, self.store
                    )
                    budget.note_end(planned, record, retry=retry, stop_if_late=early)
                    state = self.store.state(planned, record)
                    progress.note_end(planned, state, len(budget.cut_short))
                    yield planned.job.key, retry
        except BaseException:
            self._stop([planned for planned, _ in pending.values()])
            raise

    def _stop(self, under_way: Sequence[PlannedRun]) -> None:
        """End the runs that are under way; keep those that were finished meanwhile."""
        self.pool.stop()
        self.store.clean(under_way)
        for planned in under_way:
            if (record := self.store.record(planned)) is not None:
                self._note_end(planned, record)

    def _note_end(self, planned: PlannedRun, record: JobRecord) -> None:
        self.failures.pop(planned.job.key, None)
        if record.failure:
            self.failures[planned.job.key] = record
        self.on_end(planned, record)


class _Budget:
    """What time is left to make runs again, while others are still to be made in turn.

    Attributes:
        cut_short: the keys of the runs that were ended early.
    """

    def __init__(self, runs: Sequence[PlannedRun], until: float, factor: float | None) -> None:
        """Plan the time of some runs.

        Args:
            runs: they.
            until: when it is over (`time.monotonic()`).
            factor: by how much those are slowed down that are made again; None if none are.
        """
        self.cut_short: set[JobKey] = set()
        self._remaining_s = sum(run.expected_s() for run in runs)
        self._until = until
        self._factor = factor

    def allows_retry(self, planned: PlannedRun) -> bool:
        """Whether the run that is next can be made again, even if it goes on to its end."""
        if self._factor is None:
            return False
        retry_s = planned.expected_s(self._factor)
        return self._remaining_s + retry_s <= self._until - time.monotonic()

    def note_end(
        self, planned: PlannedRun, record: JobRecord, *, retry: bool, stop_if_late: bool
    ) -> None:
        self._remaining_s -= planned.expected_s()
        if self._factor is not None and retry:
            self._remaining_s += planned.expected_s(self._factor)
        if stop_if_late and record.run is None and record.status == ExitStatus.UNTRUSTED:
            self.cut_short.add(planned.job.key)


@dataclass
class _CampaignProgress:
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


def estimate_s(runs: Sequence[PlannedRun], pool: Executor) -> dict[Form, float]:
    """How long runs will take, by their form, if each has to be made once."""
    return {
        form: sum(run.expected_s() for run in runs if run.job.form == form) / pool.slots(form)
        for form in FORMS
    }
