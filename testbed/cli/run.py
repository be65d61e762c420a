"""`testbed run`: one experiment from its file to its report."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.options import Folder, Json, NoFigures, Pcap, Results
from testbed.cli.running import machine_capacity, reporting_kept_files, scenario_given, signals_stop
from testbed.cli.screen import print_warning, showing_progress
from testbed.cli.series import (
    Into,
    Repeat,
    Set,
    Sweep,
    plan_of,
    run_series,
    settings_of,
    sweep_of,
)
from testbed.cli.summary import end_with
from testbed.model.errors import InputError, MachineError
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from types import FrameType

    from testbed.campaign.series import Settings
    from testbed.experiment.hold import Hold
    from testbed.model.scenario import Scenario
    from testbed.model.summary import Summary
    from testbed.results.run_directory import RunDirectory


def run(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or file.")],
    results: Results = Path("results"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of the scenario's.")
    ] = None,
    repeat: Repeat = 1,
    sweep: Sweep = None,
    set_: Set = None,
    into: Into = None,
    pcap: Pcap = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Stay up after the timeline, until Ctrl-C.")
    ] = False,
    hold_for: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stay up for so long at most: 5min.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is far too much for this machine.")
    ] = False,
    stop_if_late: Annotated[
        bool,
        typer.Option(
            "--stop-if-late",
            help="End once the machine was so late that the run cannot be trusted; keep nothing.",
        ),
    ] = False,
    folder: Folder = None,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> None:
    """Run a scenario and write its report (root).

    With --repeat or --sweep several runs, compared in one report. With --hold the fabric and its
    traffic stay up for faults by hand (testbed fault), and Ctrl-C brings the report. Exit status:
    0 as expected, 1 data was lost or corrupted or an expectation not met, 2 wrong input, 3 this
    machine cannot run it, 4 the run cannot be trusted, 130 interrupted.
    """
    from testbed.results.run_directory import RunDirectory, locked

    settings, swept, links = settings_of(set_), sweep_of(sweep), pcap or []
    several = repeat > 1 or bool(swept) or into is not None
    held_up = hold_of(hold=hold, limit=hold_for, several=several)

    def load(case: "Settings") -> "Scenario":
        return _checked(name, settings, case, seed, links, force=force)

    def execute(
        scenario: "Scenario",
        directory: "RunDirectory",
        progress: Progress,
        hold: "Hold | None" = None,
    ) -> "Summary":
        from testbed.experiment import run_experiment
        from testbed.results.analyse import analyse

        captured = dict.fromkeys(links)
        run_experiment(
            scenario, directory.path, progress, captured, hold, stop_if_late=stop_if_late
        )
        progress("analysing", 1.0)
        return analyse(directory.path, drawn=not no_figures)

    if several:
        plan = plan_of(load({}), simulated=False, settings=settings, sweep=swept, repeat=repeat)
        given = {"--no-figures": no_figures, "--force": force, "--stop-if-late": stop_if_late}
        options = (*(name for name, is_set in given.items() if is_set), *_pcap_options(links))
        run_series(plan, load, options, results=results, into=into, as_json=as_json)
    scenario = load({})
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, folder or scenario.name, scenario.seed, started)
    with (
        signals_stop(),
        locked(directory.path),
        reporting_kept_files(directory),
        showing_progress() as progress,
        ended_by_ctrl_c(held_up, progress) as told,
    ):
        if held_up is not None:
            print_fault_help(directory.path, scenario.topology)
        summary = execute(scenario, directory, told, held_up)
    end_with(summary, directory, drawn=not no_figures, as_json=as_json)


def _pcap_options(links: list[str]) -> list[str]:
    return [option for link in links for option in ("--pcap", link)]


def _checked(
    name: str,
    settings: "Settings",
    swept: "Settings",
    seed: int | None,
    pcap: list[str],
    *,
    force: bool,
) -> "Scenario":
    """Load a scenario and check all that can be before anything is built."""
    from testbed.experiment.footprint import require_room

    scenario = scenario_given(name, _dilation, settings, swept, seed)
    _require_links(scenario, pcap)
    _require_no_pause(scenario)
    require_room(scenario)
    _require_capacity(name, scenario, force=force)
    return scenario


def _dilation(scenario: "Scenario") -> float:
    """The dilation for `auto`: the smallest that this machine carries.

    Raises:
        MachineError: it is not known what this machine carries.
    """
    capacity = machine_capacity()
    if capacity is None:
        raise MachineError(
            "dilation: auto needs to know what this machine carries",
            "end other programs, then: testbed doctor --measure; or give a number",
        )
    return capacity.fitting_dilation(scenario)


def _require_capacity(name: str, scenario: "Scenario", *, force: bool) -> None:
    """Does the machine carry this scenario?"""
    from testbed.experiment.capacity import judge_load

    capacity = machine_capacity()
    warning = judge_load(scenario, capacity, force=force) if capacity is not None else None
    if warning is not None:
        print_warning(f"{name}: {warning}")


def _require_no_pause(scenario: "Scenario") -> None:
    if scenario.topology.pause is not None:
        raise InputError.of(
            "topology.pause",
            str(scenario.topology.pause),
            "null: Linux has no priority flow control",
            "testbed simulate, which has it",
        )


def _require_links(scenario: "Scenario", names: list[str]) -> None:
    from testbed.model.fabric.names import unknown_link

    problems = [unknown_link(scenario.topology, "--pcap", name) for name in names]
    wrong = [problem for problem in problems if problem is not None]
    if wrong:
        raise InputError(wrong)


def hold_of(*, hold: bool, limit: str | None, several: bool) -> "Hold | None":
    """What `--hold` and `--hold-for` ask for; a limit alone says both.

    Raises:
        InputError: the limit is no time, or several runs were to be held.
    """
    from testbed.experiment.hold import Hold
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
    except ValueError as error:
        raise InputError.of("--hold-for", limit, str(error)) from None
    if limit_ns <= 0:
        raise InputError.of("--hold-for", limit, "a time above 0, such as 5min")
    return Hold(limit_ns)


@contextmanager
def ended_by_ctrl_c(hold: "Hold | None", progress: Progress) -> Iterator[Progress]:
    """Have the first SIGINT while a run is held end that in order; any other interrupts the run.

    Yields what is to be told how far the run is: so it hears that the hold begins, and ends.
    """
    from testbed.experiment.hold import HELD

    usual = signal.getsignal(signal.SIGINT)
    heard = False

    def end(_number: int, _frame: "FrameType | None") -> None:
        if hold is not None:
            hold.end()
        signal.signal(signal.SIGINT, usual)

    def told(what: str, done: float) -> None:
        nonlocal heard
        if (what == HELD) is not heard:
            heard = not heard
            signal.signal(signal.SIGINT, end if heard else usual)
        progress("held; Ctrl-C ends it and writes the report" if what == HELD else what, done)

    try:
        yield told
    finally:
        signal.signal(signal.SIGINT, usual)
