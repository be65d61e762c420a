"""Makes the runs of a campaign that are missing, and those again that cannot be trusted."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

from testbed.model.progress import Progress
from testbed.runs.budget import Deadline, RetryPolicy, TimeBudget
from testbed.runs.job import FORMS, Executor, Form, JobKey, JobRecord
from testbed.runs.options import STOP_IF_LATE
from testbed.runs.plan import PlannedRun
from testbed.runs.progress import CampaignProgress
from testbed.runs.store import Store

OnEnd = Callable[[PlannedRun, JobRecord], None]
"""Called with each run that has ended, as it was made, and with what became of it."""

_REPORT_S = 1.0
"""How often progress is reported."""


@dataclass
class CampaignEngine:
    """Makes runs by an executor.

    Emulated runs that cannot be trusted, or failed, are made again when all have been made once:
    slower, and slower still after that, in what is left of the time, the most urgent first. A run
    is ended as soon as the machine was too late for it, if it can be made again in that time. If
    the time is over before it is made again, it is made once more, to its end.

    Attributes:
        store: where runs are found when they are made.
        executor: makes them.
        progress: called with what is being done, and the share done.
        policy: which are made again.
        on_end: called as runs end.
        failures: the records of runs that were not finished, by the keys of their jobs.
    """

    store: Store
    executor: Executor
    progress: Progress
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    on_end: OnEnd = lambda _planned, _record: None
    failures: dict[JobKey, JobRecord] = field(default_factory=dict, init=False)

    def execute(
        self, runs: Sequence[PlannedRun], retry: Sequence[PlannedRun] = (), made_before: int = 0
    ) -> None:
        """Make runs; one that fails does not end the others.

        Args:
            runs: those that are to be made, once at least.
            retry: emulated runs that were made before, and may be made again.
            made_before: how many runs of the campaign are there already, for the progress.
        """
        self.store.clean((*runs, *retry))
        for form in FORMS:
            due, retried = ([run for run in each if run.job.form == form] for each in (runs, retry))
            self._execute_form(form, due, retried, made_before)

    def _execute_form(
        self, form: Form, runs: Sequence[PlannedRun], retry: Sequence[PlannedRun], made_before: int
    ) -> None:
        policy = self.policy
        factors = policy.factors if form == "emulated" else policy.factors[:1]
        deadline = Deadline(policy.seconds)
        batch, candidates = list(runs), {run.job.key: run for run in (*runs, *retry)}
        cut_short: set[JobKey] = set()
        for attempt, factor in enumerate(factors):
            if attempt:
                due = [*candidates.values()]
                batch = policy.choose(due, deadline.left_s, factor, self.store)
            if not batch:
                if attempt:
                    break
                continue
            following = factors[attempt + 1] if attempt + 1 < len(factors) else None
            budget = TimeBudget(batch, deadline, following)
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
            dict(
                self._make(missing, TimeBudget(missing, deadline, None), f"{form}, to the end, run")
            )

    def _make(
        self, runs: Sequence[PlannedRun], budget: TimeBudget, what: str, made_before: int = 0
    ) -> Iterator[tuple[JobKey, bool]]:
        """Make each of some runs of one form; yield its key, and whether it may be made again."""
        form = runs[0].job.form
        progress = CampaignProgress(
            runs, self.executor.slots(form), self.progress, what, made_before
        )
        pending: dict[Future[JobRecord], tuple[PlannedRun, bool]] = {}
        waiting = iter(runs)
        try:
            while True:
                slots = progress.slots = self.executor.slots(form)  # workers come and go
                while len(pending) < slots and (planned := next(waiting, None)) is not None:
                    progress.note_start(planned)
                    stop_if_late = self.policy.stop_if_late and budget.allows_retry(planned)
                    future = self._submit(planned, stop_if_late=stop_if_late)
                    pending[future] = planned, stop_if_late
                if not pending:
                    return
                done, _ = wait(pending, return_when=FIRST_COMPLETED, timeout=_REPORT_S)
                progress.report()
                for future in done:
                    planned, stop_if_late = pending.pop(future)
                    record = future.result()
                    self._note_end(planned, record)
                    retry = form == "emulated" and self.policy.may_improve(
                        planned, record, self.store
                    )
                    budget.deadline.note_end(record, slots)
                    budget.note_end(planned, record, retry=retry, stop_if_late=stop_if_late)
                    state = self.store.state(planned, record)
                    progress.note_end(planned, state, len(budget.cut_short))
                    yield planned.job.key, retry
        except BaseException:
            self._stop([planned for planned, _ in pending.values()])
            raise

    def _submit(self, planned: PlannedRun, *, stop_if_late: bool) -> Future[JobRecord]:
        options = (*planned.job.options, *([STOP_IF_LATE] if stop_if_late else []))
        return self.executor.submit(replace(planned.job, options=options))

    def _stop(self, under_way: Sequence[PlannedRun]) -> None:
        """End the runs that are under way; keep those that were finished meanwhile."""
        self.executor.stop()
        self.store.clean(under_way)
        for planned in under_way:
            if (record := self.store.record(planned)) is not None:
                self._note_end(planned, record)

    def _note_end(self, planned: PlannedRun, record: JobRecord) -> None:
        self.failures.pop(planned.job.key, None)
        if record.failure:
            self.failures[planned.job.key] = record
        self.on_end(planned, record)


def estimate_s(runs: Sequence[PlannedRun], executor: Executor) -> dict[Form, float]:
    """How long runs will take, by their form, if each has to be made once."""
    return {
        form: sum(run.expected_s() for run in runs if run.job.form == form) / executor.slots(form)
        for form in FORMS
    }
