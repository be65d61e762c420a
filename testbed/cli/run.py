"""`testbed run`: one experiment from its file to its report."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.campaign.options import STOP_IF_LATE
from testbed.cli.fault import print_fault_help
from testbed.cli.fitting import Fitting
from testbed.cli.live import Watch, watch_options, watching_emulated
from testbed.cli.options import Pcap, links_named, located_in
from testbed.cli.run_options import RunOptions, run_options
from testbed.cli.screen import print_warning
from testbed.cli.series import make_runs
from testbed.command_options import with_options
from testbed.installation import not_linux, require_emulation
from testbed.model.errors import InputError, MachineError, RefusedValueError
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from types import FrameType

    from testbed.campaign.series import Settings
    from testbed.emulation.experiment.experiment import Hold
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory


_UNDER_WAY = "\0mrc-testbed-run"


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
            STOP_IF_LATE,
            help="End the run as soon as it can no longer be trusted; keep nothing.",
        ),
    ] = False,
    end_with_stdin: Annotated[
        bool,
        typer.Option("--end-with-stdin", help="End the run when its input, a pipe, is closed."),
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
    if end_with_stdin:
        from testbed.sandbox.system_calls import end_with_input

        end_with_input()
    captured = pcap or []
    watch.require_single(several=options.several)
    holding = _hold(hold=hold or watch.where is not None, limit=hold_for, several=options.several)

    fitting = Fitting(force)

    def load(name: str, case: "Settings") -> "Scenario":
        scenario = _checked(options, name, case, captured, fitting)
        watch.check_packets(scenario)
        return scenario

    def record(scenario: "Scenario", directory: "RunDirectory", progress: Progress) -> None:
        from testbed.emulation.experiment.experiment import Experiment
        from testbed.emulation.experiment.outside import run_experiment

        if holding is not None:
            print_fault_help(directory.path, scenario.topology)
        experiment = Experiment(
            scenario,
            directory.path,
            links_named(scenario.topology, captured),
            holding,
            stop_if_late,
            os.dup(sys.stderr.fileno()) if print_output else None,
        )
        with _telling_of_another(), _ending_hold_by_ctrl_c(holding, progress) as report:
            run_experiment(experiment, report)

    def watched(scenario: "Scenario", directory: "RunDirectory") -> AbstractContextManager[object]:
        if watch.where is None or holding is None:
            return nullcontext()
        return watching_emulated(scenario, directory, watch.where, holding, watch.packets)

    flags = {"--force": force, STOP_IF_LATE: stop_if_late}
    further = [flag for flag, is_set in flags.items() if is_set]
    further += [option for place in captured for option in ("--pcap", place)]
    make_runs(options, load, record, further, around=watched, fitting=fitting)


def _checked(
    options: RunOptions, name: str, swept: "Settings", pcap: list[str], fitting: Fitting
) -> "Scenario":
    """Load a scenario, and check all that can be checked before the fabric is built."""
    from testbed.emulation.experiment.footprint import require_room
    from testbed.emulation.experiment.programs import require_programs

    here = options.on is None
    if here:
        if (elsewhere := not_linux()) is not None:
            raise MachineError(*elsewhere)
        require_emulation()
    remarks = not fitting.is_collecting
    scenario = options.scenario(name, fitting.dilation_of, swept, remarks=remarks)
    _require_no_pause(scenario)
    if here:
        require_room(scenario)
        with located_in(name):
            require_programs(scenario)
    links_named(scenario.topology, pcap)
    fitting.require(name, scenario)
    return scenario


def _require_no_pause(scenario: "Scenario") -> None:
    if scenario.topology.pause is not None:
        raise InputError.of(
            "topology.pause",
            str(scenario.topology.pause),
            "null: Linux has no priority flow control",
            "use testbed simulate, which has it",
        )


@contextmanager
def _telling_of_another() -> Iterator[None]:
    """Warn if another run is under way on this machine: each makes the other late.

    The sign is a name among the sockets of the host's network namespace, which is no file.
    """
    with socket.socket(socket.AF_UNIX) as sign:
        try:
            sign.bind(_UNDER_WAY)
        except OSError:
            print_warning("another run is under way on this machine: both may not be trusted")
        yield


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


@contextmanager
def _ending_hold_by_ctrl_c(hold: "Hold | None", progress: Progress) -> Iterator[Progress]:
    """Let the first SIGINT while a run is held end the hold; any other SIGINT stops the run.

    Yields the callback to which the run reports its progress, and so the start of the hold.
    """
    from testbed.emulation.experiment.experiment import HELD

    usual = signal.getsignal(signal.SIGINT)
    holding = False

    def end(_number: int, _frame: "FrameType | None") -> None:
        if hold is not None:
            hold.end()
        signal.signal(signal.SIGINT, usual)

    def report(what: str, done: float) -> None:
        nonlocal holding
        if (what == HELD) is not holding:
            holding = not holding
            signal.signal(signal.SIGINT, end if holding else usual)
        progress("held; Ctrl-C ends it and writes the report" if what == HELD else what, done)

    try:
        yield report
    finally:
        signal.signal(signal.SIGINT, usual)
