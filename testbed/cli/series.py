"""One run of a scenario or a series of runs, as `run` and `simulate` make them, and its end."""

from collections.abc import Callable, Collection
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.cli.screen import (
    ending_in_words,
    print_error,
    print_json,
    print_warning,
    showing_progress,
    stdout,
)
from testbed.cli.summary import end_with, print_status
from testbed.model.errors import ExitStatus, exit_status_of, few

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.cli.live import Watch
    from testbed.cli.run_options import RunOptions
    from testbed.emulation.experiment.experiment import Hold
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.runs.fitting import Machines
    from testbed.runs.job import Form, How
    from testbed.runs.making import Watch as Watching
    from testbed.runs.series import Series, SeriesRun
    from testbed.sim.run import Observer


def make_runs(
    options: "RunOptions",
    form: "Form",
    how: "How",
    watch: "Watch",
    watched: "Watching",
    held: "Callable[[Progress], Progress]" = lambda progress: progress,
    screen: int | None = None,
) -> NoReturn:
    """Make the run that the options ask for, or the series of runs; ends the command.

    Args:
        options: which runs are made.
        form: how.
        how: the same, beside the scenario.
        watch: how a single run is watched.
        watched: what goes on during a single run and its analysis.
        held: what is done with the progress of a single run.
        screen: a descriptor to which what its programs print goes, too.

    Raises:
        InputError: a case is wrong, or the directory holds another series. Nothing was run then.
        MachineError: this machine cannot run it.
    """
    from testbed.runs import fitting

    watch.require_single(several=options.several)
    machines = fitting.Machines.here(force=how.force, showing=showing_progress, warn=print_warning)
    with ending_in_words():
        if options.several:
            _make_series(options, form, how, machines)
        _make_one(options, form, how, machines, watch, watched, held, screen)


def _make_one(
    options: "RunOptions",
    form: "Form",
    how: "How",
    machines: "Machines",
    watch: "Watch",
    watched: "Watching",
    held: "Callable[[Progress], Progress]",
    screen: int | None,
) -> NoReturn:
    from testbed.model.files.scenarios import Dilation, nominal
    from testbed.results.run_directory import RunDirectory
    from testbed.runs.fitting import with_fitting_dilation
    from testbed.runs.making import make, signals_stop

    (name,) = options.names

    def load(dilation: Dilation) -> "Scenario":
        return options.scenario(name, form, how, dilation, {})

    @contextmanager
    def stoppable(
        scenario: "Scenario", directory: "RunDirectory"
    ) -> "Iterator[Hold | Observer | None]":
        with signals_stop(), watched(scenario, directory) as onlooker:
            yield onlooker

    is_emulated = form == "emulated"
    scenario = with_fitting_dilation(load, machines)[0] if is_emulated else load(nominal)
    watch.check_packets(scenario)
    options.tell()
    if is_emulated:
        machines.require(scenario, name)
    with showing_progress() as progress:
        result = make(
            scenario,
            form,
            options.results,
            how=how,
            progress=held(progress),
            watch=stoppable,
            warn=print_warning,
            screen=screen,
        )
    end_with(
        result.summary,
        RunDirectory(result.directory),
        drawn=how.drawn,
        as_json=options.as_json,
        require_trusted=how.require_trusted,
    )


def _make_series(options: "RunOptions", form: "Form", how: "How", machines: "Machines") -> NoReturn:
    """Make every run of a series that is missing, then compare all."""
    from testbed.runs.campaign import Front, Place, series_made
    from testbed.runs.making import signals_stop

    with series_made(
        lambda dilation: options.plan(form, how, dilation),
        form,
        Place(options.results, options.into, options.on),
        how=how,
        machines=machines,
        front=Front(
            showing_progress,
            print_error,
            signals_stop,
            options.tell,
            "the same command with --into {} makes the remaining runs",
        ),
    ) as made:
        _report(made.series, made.directory, drawn=how.drawn, as_json=options.as_json)
    statuses = _statuses(made.series, made.directory, require_trusted=how.require_trusted)
    status = worst(statuses.values())
    if not options.as_json:
        of_status = [name for name, value in statuses.items() if value is status]
        meaning = _MEANINGS.get(status, "")
        where = f"{len(of_status)} of {len(statuses)} runs: {few(of_status)}"
        print_status(status, f"{meaning} in {where}")
    raise typer.Exit(status)


_MEANINGS = {
    ExitStatus.CRASHED: "the program crashed",
    ExitStatus.FAILED: "a bound is not met, data was lost, a program failed, or it did not end,",
    ExitStatus.WRONG_INPUT: "something cannot be used",
    ExitStatus.MACHINE_CANNOT: "the machine lacked something",
    ExitStatus.UNTRUSTED: "no figure can be trusted",
}
"""What an exit status says of a run of a series; the worst comes first."""


def _report(series: "Series", directory: "Path", *, drawn: bool, as_json: bool) -> None:
    from testbed.cli.comparison import comparison_data, print_comparison
    from testbed.model.run_files.layout import REPORT
    from testbed.results.comparison import compare
    from testbed.results.report.comparison_report import write_comparison
    from testbed.runs.finding import groups_of

    failed = [run for run in series.done if run.error is not None]
    if len(failed) == len(series.done):
        print_error(f"none of {len(failed)} runs came to its end: {failed[0].error}")
        return
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


def _statuses(
    series: "Series", directory: "Path", *, require_trusted: bool
) -> dict[str, ExitStatus]:
    """What the exit status of each run would be, by its name."""
    from testbed.runs.result import Result

    return {
        name: _unfinished(run)
        if run.error
        else Result(directory / run.run).summary.exit_status(require_trusted=require_trusted)
        for name, run in series.called
    }


def worst(statuses: Collection[ExitStatus]) -> ExitStatus:
    """The exit status of a series: the worst of its runs."""
    return next((status for status in _MEANINGS if status in statuses), ExitStatus.AS_EXPECTED)


def _unfinished(run: "SeriesRun") -> ExitStatus:
    """The exit status of a series one of whose runs failed."""
    return ExitStatus.UNTRUSTED if run.status is None else exit_status_of(run.status)
