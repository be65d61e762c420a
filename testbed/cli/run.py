"""`testbed run`: one experiment from its file to its report."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.fault import say_how
from testbed.cli.holding import ended_by_ctrl_c, hold_of
from testbed.cli.machine import capacity_here
from testbed.cli.options import Folder, Json, NoFigures, Pcap, Results
from testbed.cli.running import scenario_given, signals_stop, told_what_is_kept
from testbed.cli.screen import progress_shown, say_warning
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
        told_what_is_kept(directory),
        progress_shown() as progress,
        ended_by_ctrl_c(held_up, progress) as told,
    ):
        if held_up is not None:
            say_how(directory.path, scenario.topology)
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
    capacity = capacity_here()
    if capacity is None:
        raise MachineError(
            "dilation: auto needs to know what this machine carries",
            "end other programs, then: testbed doctor --measure; or give a number",
        )
    return capacity.fitting_dilation(scenario)


def _require_capacity(name: str, scenario: "Scenario", *, force: bool) -> None:
    """Does the machine carry this scenario?"""
    from testbed.experiment.capacity import judge_load

    capacity = capacity_here()
    warning = judge_load(scenario, capacity, force=force) if capacity is not None else None
    if warning is not None:
        say_warning(f"{name}: {warning}")


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
