"""One run of a scenario or several: repeats, sweeps, continued where they broke off."""

import gc
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.campaign.options import NO_FIGURES, REQUIRE_TRUSTED
from testbed.cli.fitting import capacities_of, keep_slower_out
from testbed.cli.options import writing
from testbed.cli.placing import executor_at, fetch_finished, keep_in_store, kept_in_store
from testbed.cli.run_options import Load, RunOptions
from testbed.cli.running import naming_shortage, new_run, reporting_how_to_resume, signals_stop
from testbed.cli.screen import print_error, print_json, showing_progress, stdout
from testbed.cli.summary import end_with, print_status
from testbed.model.errors import ExitStatus, InputError, exit_status_of, few
from testbed.rights import acting_for

if TYPE_CHECKING:
    from testbed.campaign import job
    from testbed.campaign.plan import PlannedRun
    from testbed.campaign.series import Series, SeriesPlan, SeriesRun
    from testbed.cli.fitting import Fitting
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory

Record = Callable[["Scenario", "RunDirectory", "Progress"], object]
"""Makes a run: its records are in its directory then."""

YOUNG_OBJECTS = 100_000
"""New objects from which on the garbage collector looks for cycles among them (Python: 700)."""

Around = Callable[["Scenario", "RunDirectory"], AbstractContextManager[object]]
"""Goes on while a run is made and analysed."""


def make_runs(
    options: RunOptions,
    load: Load,
    record: Record,
    further: Sequence[str] = (),
    *,
    around: Around = lambda *_: nullcontext(),
    fitting: "Fitting | None",
) -> NoReturn:
    """Make the run that the options ask for, or the series of runs; ends the command.

    Args:
        options: which runs are made.
        load: loads the scenario of a case.
        record: makes a single run.
        further: further options of `testbed run` for each run of a series.
        around: what goes on during a single run and its analysis.
        fitting: fits the scenarios of `load` to what emulates them; None: runs are simulated.

    Raises:
        InputError: a case is wrong, or the directory holds another series. Nothing was run then.
        MachineError: this machine cannot run it.
    """
    if options.several:
        flags = {NO_FIGURES: not options.drawn, REQUIRE_TRUSTED: options.require_trusted}
        for_each = (*(flag for flag, is_set in flags.items() if is_set), *further)
        with acting_for(options.into or options.results):
            _make_series(options, load, fitting, for_each)

    from testbed.results.analyse import analyse

    (name,), required = options.names, options.require_trusted
    if fitting is None:  # an emulated run's processes inherit it, whose pauses should be short
        _collect_seldom()
    scenario = load(name, {})
    with (
        new_run(scenario, options.results, options.folder) as (directory, progress),
        around(scenario, directory),
    ):
        record(scenario, directory, progress)
        progress("analysing", 1.0)
        _collect_seldom()
        summary = analyse(directory.path, drawn=options.drawn, require_trusted=required)
    end_with(
        summary,
        directory,
        drawn=options.drawn,
        as_json=options.as_json,
        require_trusted=required,
    )


def _collect_seldom() -> None:
    """Look for garbage less often: loading and drawing make many objects and few cycles."""
    gc.set_threshold(YOUNG_OBJECTS)


def _make_series(
    options: RunOptions,
    load: Load,
    fitting: "Fitting | None",
    for_each: tuple[str, ...],
) -> NoReturn:
    """Make every run of a series that is missing, then compare all."""
    from testbed.campaign.budget import SeriesPolicy
    from testbed.campaign.engine import CampaignEngine
    from testbed.campaign.series import planned_runs, series_of
    from testbed.campaign.store import Store
    from testbed.results.run_directory import locked

    if fitting is None:
        plan, scenarios = options.plan(load, simulated=True)
    else:
        with fitting.collecting() as to_fit:
            plan, scenarios = options.plan(load, simulated=False)
        if options.on is None:
            fitting.choose(to_fit, _chosen_before(options.into))
            plan, scenarios = _fitted(options, load, fitting)
    directory = _directory(plan, options.results, options.into)
    store = Store(directory)

    def keep(planned: "PlannedRun", record: "job.JobRecord") -> None:
        of_several = None if options.on is None else store.record(planned)
        records[planned.job.key] = of_several or record
        series_of(plan, runs, records).write(directory)
        if record.failure:
            log = directory / planned.job.log
            print_error(f"{planned.job.name}: {record.failure}\n  its log: {log}")

    resuming = f"the same command with --into {directory} makes the remaining runs"
    with (
        locked(directory),
        reporting_how_to_resume(resuming),
        naming_shortage(directory),
        signals_stop(),
    ):
        wanted: dict[job.Form, str] = {"simulated" if fitting is None else "emulated": plan.first}
        with executor_at(options.on, directory, wanted, options.store) as executor:
            if fitting is not None and options.on is not None:
                # `auto` needs what each machine carries, whether forced or not
                fitting.machines = capacities_of(executor, force=fitting.force and not to_fit)
                known = _chosen_before(options.into) or _chosen_in_store(
                    executor,
                    partial(_planned_at, options, load, fitting),
                    partial(fitting.carries, to_fit),
                )
                fitting.choose(to_fit, known)
                plan, scenarios = _fitted(options, load, fitting)
            _begin_or_continue(plan, directory, executor)
            runs = planned_runs(plan, scenarios, for_each)
            keep_slower_out(executor, runs, force=fitting is not None and fitting.force)
            fetch_finished(executor, runs)
            made = {run.job.key: store.record(run) for run in runs}
            records = {key: record for key, record in made.items() if record is not None}
            series_of(plan, runs, records).write(directory)
            due = [run for run in runs if run.job.key not in records]
            policy = SeriesPolicy(factors=(1.0,)) if options.on is None else SeriesPolicy()
            again = [
                run
                for run in runs
                if run.job.key in records and policy.may_improve(run, None, store)
            ]
            with showing_progress() as progress:
                engine = CampaignEngine(store, executor, progress, policy, keep)
                engine.execute(due, again, made_before=len(records))
        series = series_of(plan, runs, records)
        _write_junit(series, directory, require_trusted=options.require_trusted)
        _report(series, directory, drawn=options.drawn, as_json=options.as_json)
    _end(series, directory, options)


def _end(series: "Series", directory: Path, options: RunOptions) -> NoReturn:
    """End the command with the exit status of the series."""
    statuses = _statuses(series, directory, require_trusted=options.require_trusted)
    status = worst(statuses.values())
    if not options.as_json:
        of_status = [name for name, value in statuses.items() if value is status]
        meaning = _MEANINGS.get(status, "")
        where = f"{len(of_status)} of {len(statuses)} runs: {few(of_status)}"
        print_status(status, f"{meaning} in {where}")
    raise typer.Exit(status)


def _directory(plan: "SeriesPlan", results: Path, into: Path | None) -> Path:
    """The directory of a new series, which is made, or of the one that is continued."""
    from testbed.campaign.cluster.files import is_of_start
    from testbed.campaign.series import INDEX, new_series

    if into is None:
        return new_series(plan, results)
    if (into / INDEX).is_file():
        return into
    there = into.iterdir() if into.is_dir() else ()
    if not all(is_of_start(path.name) for path in there):
        raise InputError.of("--into", str(into), "an empty directory or a series")
    with writing("--into", into, "a directory to write to"):
        into.mkdir(parents=True, exist_ok=True)
    return into


def _fitted(
    options: RunOptions, load: Load, fitting: "Fitting"
) -> "tuple[SeriesPlan, dict[int, Scenario]]":
    """The plan of a series, and its scenarios at the dilation that was chosen for `auto`."""
    plan, scenarios = options.plan(load, simulated=False)
    return plan.model_copy(update={"dilation": fitting.dilation}), scenarios


def _chosen_before(into: Path | None) -> float | None:
    """The dilation that was chosen for `auto` when the continued series began."""
    from testbed.campaign.series import INDEX, load_series

    if into is None or not (into / INDEX).is_file():
        return None
    return load_series(into).plan.dilation


def _planned_at(
    options: RunOptions, load: Load, fitting: "Fitting", dilation: float
) -> "SeriesPlan":
    """The plan of a series with a dilation for `auto`; it is not judged whether that is carried."""
    with fitting.collecting(dilation):
        plan, _ = options.plan(load, simulated=False)
    return plan.model_copy(update={"dilation": dilation})


def _chosen_in_store(
    executor: "job.Executor",
    planned_at: Callable[[float], "SeriesPlan"],
    carried: Callable[[float], bool],
) -> float | None:
    """The dilation that was chosen for `auto` by a series of which only the store is left.

    Args:
        executor: of a cluster.
        planned_at: the plan of the series with a dilation for `auto`. Another one may have used the
            store before, or its scenarios may have changed.
        carried: whether the machines carry it at that dilation.
    """
    from pydantic import ValidationError

    from testbed.campaign.series import INDEX, Series

    try:
        begun = Series.model_validate_json(kept_in_store(executor, INDEX) or "").plan
    except ValidationError:  # there is none, or it is of another version
        return None
    dilation = begun.dilation
    if dilation is None or planned_at(dilation).differences(begun) or not carried(dilation):
        return None
    return dilation


def _begin_or_continue(plan: "SeriesPlan", directory: Path, executor: "job.Executor") -> None:
    """Write the index of a new series; require that one that is there is the same.

    Raises:
        InputError: it is another one.
        MachineError: the store of a cluster cannot be used.
    """
    from testbed.campaign.series import INDEX, Series, load_series

    if not (directory / INDEX).is_file():
        Series(plan=plan).write(directory)
    elif different := plan.differences(load_series(directory).plan):
        expected = f"the series that it holds (different here: {', '.join(different)})"
        raise InputError.of("--into", str(directory), expected, "another directory")
    keep_in_store(executor, directory / INDEX)


_MEANINGS = {
    ExitStatus.CRASHED: "the program crashed",
    ExitStatus.FAILED: "a bound is not met, data was lost, a program failed, or it did not end,",
    ExitStatus.WRONG_INPUT: "something cannot be used",
    ExitStatus.MACHINE_CANNOT: "the machine lacked something",
    ExitStatus.UNTRUSTED: "no figure can be trusted",
}
"""What an exit status says of a run of a series; the worst comes first."""


def _write_junit(series: "Series", directory: Path, *, require_trusted: bool) -> None:
    """Write the expectations of all runs into one file, each run as a suite."""
    from testbed.campaign.store import Run
    from testbed.model.run_files.layout import JUNIT
    from testbed.results.report.junit import junit_of_series, suite_of, suite_of_failed
    from testbed.results.run_directory import RunDirectory

    suites = []
    for name, run in series.called:
        if run.error is not None:
            suites.append(suite_of_failed(name, run.error))
        else:
            summary = Run(directory / run.run).summary
            suites.append(suite_of(summary, name, require_trusted=require_trusted))
    RunDirectory(directory).write(JUNIT, junit_of_series(suites))


def _report(series: "Series", directory: Path, *, drawn: bool, as_json: bool) -> None:
    from testbed.campaign.series import groups_of
    from testbed.cli.comparison import comparison_data, print_comparison
    from testbed.model.run_files.layout import REPORT
    from testbed.results.comparison import compare
    from testbed.results.report.comparison_report import write_comparison

    failed = [run for run in series.done if run.error is not None]
    if len(failed) == len(series.done):
        print_error(f"none of {len(failed)} runs came to its end: {failed[0].error}")
        raise typer.Exit(worst([_unfinished(run) for run in failed]))
    groups = groups_of([directory])
    report = directory / REPORT
    simulated = " (simulated)" if series.plan.simulated else ""
    title = f"{series.plan.name}{simulated}"
    rows = write_comparison(title, groups, report) if drawn else compare(groups)
    if as_json:
        places = {"series": str(directory)} | ({"report": str(report)} if drawn else {})
        print_json(places | series.model_dump() | comparison_data(groups, rows))
        return
    print_comparison(groups, rows, stdout())
    if failed:
        stdout().print(f"{len(failed)} of {len(series.done)} runs failed")
    later = f"neither report nor figures: testbed compare {directory} -o REPORT makes them"
    stdout().print(f"report: {report}" if drawn else later)


def _statuses(series: "Series", directory: Path, *, require_trusted: bool) -> dict[str, ExitStatus]:
    """What the exit status of each run would be, by its name."""
    from testbed.campaign.store import Run

    return {
        name: _unfinished(run)
        if run.error
        else Run(directory / run.run).summary.exit_status(require_trusted=require_trusted)
        for name, run in series.called
    }


def worst(statuses: Collection[ExitStatus]) -> ExitStatus:
    """The exit status of a series: the worst of its runs."""
    return next((status for status in _MEANINGS if status in statuses), ExitStatus.AS_EXPECTED)


def _unfinished(run: "SeriesRun") -> ExitStatus:
    """The exit status of a series one of whose runs failed."""
    return ExitStatus.UNTRUSTED if run.status is None else exit_status_of(run.status)
