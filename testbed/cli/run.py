"""`testbed run` and `testbed simulate`: one run or a series, from its file to its report."""

import os
import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.live import (
    Watch,
    ending_on_ctrl_c,
    print_address,
    watch_options,
    watching_emulated,
)
from testbed.cli.options import Pcap, RunOptions, run_options
from testbed.cli.screen import (
    ending_in_words,
    print_error,
    print_json,
    print_warning,
    showing_progress,
    stdout,
)
from testbed.cli.summary import end_with, print_status
from testbed.command_options import with_options
from testbed.model.errors import ExitStatus, InputError, RefusedValueError, exit_status_of, few

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.emulation.experiment.experiment import Hold
    from testbed.live.observing import SimulationWatcher
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.runs.fitting import Machines
    from testbed.runs.job import Form, How
    from testbed.runs.making import Watch as Watching
    from testbed.runs.series import Series, SeriesRun
    from testbed.sim.run import Observer


@with_options(run_options, "options")
@with_options(watch_options, "watch")
def run(
    *,
    options: RunOptions,
    pcap: Pcap = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep the fabric up after the end, until Ctrl-C.")
    ] = False,
    hold_for: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Like --hold, but at most TIME, such as 5min."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run even if the load is far too high for this machine.")
    ] = False,
    stop_if_late: Annotated[
        bool,
        typer.Option(
            "--stop-if-late",
            help="End the run as soon as it can no longer be trusted; keep nothing.",
        ),
    ] = False,
    print_output: Annotated[
        bool,
        typer.Option("--print-output", help="Print what programs print, after their hosts' names."),
    ] = False,
    watch: Watch,
) -> None:
    """Run a scenario and write its report (root).

    Several scenarios, --repeat and --sweep make several runs and compare them in one report. With
    --hold the fabric and its traffic stay up for faults by hand (testbed fault) until Ctrl-C; then
    the report is written. --live does the same, and shows the run in a browser. Exit status: 0 as
    expected, 1 data was lost or corrupted, a program failed or an expectation is not met, 2 wrong
    input, 3 this machine cannot run it, 4 the run cannot be trusted, 130 interrupted.
    """
    from testbed.runs.job import How

    how = How(options.drawn, options.require_trusted, force, stop_if_late, tuple(pcap or ()))
    holding = _hold(hold=hold or watch.where is not None, limit=hold_for, several=options.several)

    @contextmanager
    def watched(scenario: "Scenario", directory: "RunDirectory") -> "Iterator[Hold | None]":
        with ExitStack() as stack:
            if holding is not None and watch.where is not None:
                page = watching_emulated(scenario, directory, watch.where, holding, watch.packets)
                stack.enter_context(page)
            if holding is not None:
                print_fault_help(directory.path, scenario.topology)
            yield holding

    def held(progress: "Progress") -> "Progress":
        return _ending_hold_by_ctrl_c(holding, progress)

    if print_output and options.several:
        remedy = "what programs print is in programs/ of each run"
        raise InputError.of("--print-output", "several runs", "one run", remedy)
    screen = os.dup(sys.stderr.fileno()) if print_output else None
    make_runs(options, "emulated", how, watch, watched, held, screen)


def _hold(*, hold: bool, limit: str | None, several: bool) -> "Hold | None":
    """The hold that `--hold` and `--hold-for` select; the limit alone is enough.

    Raises:
        InputError: the limit is not a time, or there are several runs.
    """
    from testbed.emulation.experiment.experiment import Hold
    from testbed.model.units import parse_duration

    if not hold and limit is None:
        return None
    if several:
        found = "with --repeat, --sweep or --into"
        raise InputError.of("--hold", found, "one run", "a series plays its timeline only")
    if limit is None:
        return Hold()
    try:
        limit_ns = parse_duration(limit)
    except RefusedValueError as error:
        raise InputError.of("--hold-for", limit, error.expected, error.remedy) from None
    if limit_ns <= 0:
        raise InputError.of("--hold-for", limit, "a time above 0, such as 5min")
    return Hold(limit_ns)


def _ending_hold_by_ctrl_c(hold: "Hold | None", progress: "Progress") -> "Progress":
    """Let the first SIGINT while a run is held end the hold; any other SIGINT stops the run.

    Returns the callback to which the run reports its progress, and so the start of the hold.
    """
    from testbed.emulation.experiment.experiment import HELD

    while_held = ExitStack()
    holding = False

    def report(what: str, done: float) -> None:
        nonlocal holding
        if (what == HELD) is not holding:
            holding = not holding
            while_held.close()
            if hold is not None and holding:
                while_held.enter_context(ending_on_ctrl_c(hold.end))
        progress("held; Ctrl-C ends it and writes the report" if what == HELD else what, done)

    return report


@with_options(run_options, "options")
@with_options(watch_options, "watch")
def simulate(*, options: RunOptions, watch: Watch) -> None:
    """Simulate a scenario and write its report.

    The transport is that of testbed run; the fabric is a model in virtual time. It needs no root,
    and equal seeds give equal results. With --live virtual time goes as fast as the wall clock,
    faults can be injected from the page, and the run ends there or by Ctrl-C. Several scenarios,
    --repeat and --sweep make several runs and compare them in one report. Exit status: 0 as
    expected, 1 data was lost or corrupted or an expectation is not met, 2 wrong input, 4 the run
    cannot be trusted.
    """
    from testbed.runs.job import How

    how = How(options.drawn, options.require_trusted)
    make_runs(options, "simulated", how, watch, partial(watching_simulated, watch))


@contextmanager
def watching_simulated(
    watch: Watch, scenario: "Scenario", directory: "RunDirectory"
) -> "Iterator[SimulationWatcher | None]":
    """Watch a run on a simulated fabric during a block, if the options say so."""
    if watch.where is None:
        yield None
        return
    from testbed.live.observing import SimulationWatcher
    from testbed.live.serving import serving
    from testbed.live.stream.measures import flow_in_slow_motion
    from testbed.live.stream.writer import STREAM

    stream = directory.path / STREAM
    stream.touch()
    with serving(stream, watch.where) as site:
        print_address(site.address, site.port)
        slow_flow = flow_in_slow_motion(scenario, watch.packets, live=True)
        observer = SimulationWatcher(scenario, directory.path, site, slow_flow)
        try:
            with ending_on_ctrl_c(observer.end):
                yield observer
        finally:
            observer.finish()


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
    end_with(result, how, as_json=options.as_json)


def _make_series(options: "RunOptions", form: "Form", how: "How", machines: "Machines") -> NoReturn:
    """Make every run of a series that is missing, then compare all."""
    from testbed.runs.making import signals_stop
    from testbed.runs.series import Front, Place, series_made

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
    from testbed.runs.series import groups_of

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
