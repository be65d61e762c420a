"""`testbed run` and `testbed simulate`: one experiment from its file to its report."""

import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.live import (
    Watch,
    ending_on_ctrl_c,
    print_address,
    watch_options,
    watching_emulated,
)
from testbed.cli.options import Pcap
from testbed.cli.run_options import RunOptions, run_options
from testbed.cli.series import make_runs
from testbed.command_options import with_options
from testbed.model.errors import InputError, RefusedValueError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from testbed.emulation.experiment.experiment import Hold
    from testbed.live.observing import SimulatedRun
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory


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

    usual = signal.getsignal(signal.SIGINT)
    holding = False

    def end(_number: int, _frame: "FrameType | None") -> None:
        if hold is not None:
            hold.end()
        signal.signal(signal.SIGINT, usual)

    def report(what: str, done: float) -> None:
        nonlocal holding, usual
        if (what == HELD) is not holding:
            holding = not holding
            if holding:
                usual = signal.signal(signal.SIGINT, end)
            else:
                signal.signal(signal.SIGINT, usual)
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
) -> "Iterator[SimulatedRun | None]":
    """Watch a run on a simulated fabric during a block, if the options say so."""
    if watch.where is None:
        yield None
        return
    from testbed.live.observing import SimulatedRun
    from testbed.live.serving import serving
    from testbed.live.stream.packets import flow_in_slow_motion
    from testbed.live.stream.writer import STREAM

    stream = directory.path / STREAM
    stream.touch()
    with serving(stream, watch.where) as site:
        print_address(site.address, site.port)
        slow_flow = flow_in_slow_motion(scenario, watch.packets, live=True)
        observer = SimulatedRun(scenario, directory.path, site, slow_flow)
        try:
            with ending_on_ctrl_c(observer.end):
                yield observer
        finally:
            observer.finish()
