"""A series is begun, or continued where it broke off: every run of it that is missing is made."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from testbed.model.errors import InputError
from testbed.model.files.scenarios import Dilation, nominal
from testbed.model.run_files.layout import JUNIT
from testbed.model.scenario import Scenario
from testbed.results.run_directory import RunDirectory, locked
from testbed.results.whole_file import writing
from testbed.rights import acting_for
from testbed.runs.cluster.launch import is_of_start
from testbed.runs.fitting import Machines, Showing, silently, with_fitting_dilation
from testbed.runs.job import DRAWN, Executor, Form, How, JobKey, JobRecord, PlannedRun
from testbed.runs.making import Warn, naming_how_to_resume, naming_shortage
from testbed.runs.many import ONCE, RetryPolicy, SeriesPolicy, many
from testbed.runs.places import executor_at, keep_slower_out, know_finished, machines_of
from testbed.runs.result import Result
from testbed.runs.series import (
    INDEX,
    Series,
    SeriesPlan,
    load_series,
    new_series,
    planned_runs,
    series_of,
)
from testbed.runs.store import Store

Planned = Callable[[Dilation], tuple[SeriesPlan, dict[int, Scenario]]]
"""Plans a series with a dilation for `auto`: what it consists of, and its scenarios by case."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a series is made.

    Attributes:
        results: the directory of all results.
        into: that of the series; None for one that is named after the time.
        on: the value of `--on`; None: on this machine.
        grows: whether the series in the directory may have changed since it was begun: it then
            needs only the same name. What it has made of the runs that it has now is used.
    """

    results: Path
    into: Path | None = None
    on: str | None = None
    grows: bool = False

    @property
    def begun(self) -> Series | None:
        """The series that is continued; None: a new one begins."""
        if self.into is None or not (self.into / INDEX).is_file():
            return None
        return load_series(self.into)

    def directory(self, plan: SeriesPlan) -> Path:
        """The directory of a new series, which is made, or of the one that is continued.

        Raises:
            InputError: it is taken, or cannot be written to.
        """
        if self.into is None:
            return new_series(plan, self.results)
        if (self.into / INDEX).is_file():
            return self.into
        there = self.into.iterdir() if self.into.is_dir() else ()
        if not all(is_of_start(path.name) for path in there):
            raise InputError.of("--into", str(self.into), "an empty directory or a series")
        with writing("--into", self.into, "a directory to write to"):
            self.into.mkdir(parents=True, exist_ok=True)
        return self.into


@dataclass(frozen=True, slots=True)
class Front:
    """Who wants runs, and is told how they go: nobody by default.

    Attributes:
        showing: shows progress.
        fails: called with a run that failed.
        stopping: has signals stop a block.
        begins: called when all that decides the runs is known, before the first is made.
        resuming: how a series in the directory {} is continued; empty: nobody asks.
    """

    showing: Showing = silently
    fails: Warn = lambda _: None
    stopping: Callable[[], AbstractContextManager[object]] = nullcontext
    begins: Callable[[], object] = lambda: None
    resuming: str = ""


@dataclass(frozen=True, slots=True)
class MadeSeries:
    """A series all of whose runs have ended.

    Attributes:
        directory: its directory.
        series: its content.
        runs: its runs, in the order of its plan.
        records: what became of them, by the keys of their jobs: of several attempts the best.
    """

    directory: Path
    series: Series
    runs: list[PlannedRun]
    records: dict[JobKey, JobRecord]


@contextmanager
def series_made(
    planned: Planned,
    form: Form,
    place: Place,
    *,
    how: How = DRAWN,
    machines: Machines | None = None,
    retry: RetryPolicy | None = None,
    front: Front = Front(),
) -> Iterator[MadeSeries]:
    """Make every run of a series that is missing, for a block that reports what it came to.

    Args:
        planned: plans it.
        form: how its runs are made.
        place: where.
        how: how each is made, beside its scenario.
        machines: this machine; None: whether it carries a run is judged when it is made.
        retry: which runs are made again; None: on a cluster those that cannot be trusted.
        front: is told how it goes.

    Raises:
        InputError: a case is wrong, or the directory holds another series. Nothing was run then.
        MachineError: the machine, or all of a cluster, cannot make a run, or ran out of something.
        Stopped: a signal ended it.
    """
    judged = machines if form == "emulated" else None
    with acting_for(place.into or place.results):
        if judged is None or place.on is not None:
            plan, scenarios = planned(nominal)
        else:
            plan, scenarios = _fitted(planned, judged, judged, place)
        directory = place.directory(plan)
        with (
            locked(directory),
            naming_how_to_resume(front.resuming.format(directory)),
            naming_shortage(directory),
            front.stopping(),
            executor_at(place.on, directory, {form: plan.first}) as executor,
        ):
            if judged is not None and place.on is not None:
                # `auto` needs what each machine carries, whether forced or not.
                of_all = machines_of(executor, judged)
                known = machines_of(executor, judged, unmeasured=how.force)
                plan, scenarios = _fitted(planned, of_all, known, place)
            front.begins()
            _begin_or_continue(plan, directory, grows=place.grows)
            runs = planned_runs(plan, scenarios, how)
            keep_slower_out(executor, runs, force=how.force)
            know_finished(executor, runs)
            policy = retry or (ONCE if place.on is None else SeriesPolicy())
            yield _all_made(plan, runs, directory, executor, policy, front)


def _all_made(
    plan: SeriesPlan,
    runs: list[PlannedRun],
    directory: Path,
    executor: Executor,
    policy: RetryPolicy,
    front: Front,
) -> MadeSeries:
    """Make the runs that are missing, and those again that cannot be trusted."""
    store = Store(directory)
    there = {run.job.key: store.record(run) for run in runs}
    records = {key: record for key, record in there.items() if record is not None}

    def keep(run: PlannedRun, record: JobRecord) -> None:
        records[run.job.key] = store.record(run) or record
        series_of(plan, runs, records).write(directory)
        if record.failure:
            front.fails(f"{run.job.name}: {record.failure}\n  its log: {directory / run.job.log}")

    series_of(plan, runs, records).write(directory)
    due = [run for run in runs if run.job.key not in records]
    made = [run for run in runs if run.job.key in records]
    with front.showing() as progress:
        many(
            due,
            store,
            pool=executor,
            retry=policy,
            again=[run for run in made if policy.may_improve(run, None, store)],
            progress=progress,
            on_end=keep,
            made_before=len(made),
        )
    series = series_of(plan, runs, records)
    required = runs[0].job.how.require_trusted
    RunDirectory(directory).write(JUNIT, _junit(series, directory, require_trusted=required))
    return MadeSeries(directory, series, runs, records)


def _fitted(
    planned: Planned,
    machines: Machines,
    judging: Machines,
    place: Place,
) -> tuple[SeriesPlan, dict[int, Scenario]]:
    """The plan of a series, and its scenarios at one dilation for `auto`, which machines carry.

    Args:
        planned: plans it.
        machines: what carries it.
        judging: the load is judged by these.
        place: where it is made. If it was begun, it keeps its dilation.
    """
    begun = place.begun
    known = None if begun is None else begun.plan.dilation
    (plan, scenarios), dilation = with_fitting_dilation(planned, machines, known)
    for scenario in scenarios.values():
        judging.require(scenario)
    return plan.model_copy(update={"dilation": dilation}), scenarios


def _begin_or_continue(plan: SeriesPlan, directory: Path, *, grows: bool) -> None:
    """Write the index of a new series; require that one that is there is the same.

    One that grows is the same if it has the same name.

    Raises:
        InputError: it is another one.
    """
    if not (directory / INDEX).is_file():
        Series(plan=plan).write(directory)
        return
    begun = load_series(directory).plan
    if grows and plan.name != begun.name:
        raise InputError.of("--into", str(directory), f"that of {plan.name}, not of {begun.name}")
    if not grows and (different := plan.differences(begun)):
        expected = f"the series that it holds (different here: {', '.join(different)})"
        raise InputError.of("--into", str(directory), expected, "another directory")


def _junit(series: Series, directory: Path, *, require_trusted: bool) -> str:
    """The expectations of all runs in one file, each run as a suite."""
    from testbed.results.report.junit import junit_of_series, suite_of, suite_of_failed

    return junit_of_series(
        [
            suite_of(Result(directory / run.run).summary, name, require_trusted=require_trusted)
            if run.error is None
            else suite_of_failed(name, run.error)
            for name, run in series.called
        ]
    )
