"""`testbed simulate`: an experiment in virtual time, without root, from its file to its report."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Folder, Json, NoFigures, Results
from testbed.cli.running import reporting_kept_files, require_memory, scenario_given, signals_stop
from testbed.cli.screen import showing_progress
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
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from testbed.campaign.series import Settings
    from testbed.model.scenario import Scenario
    from testbed.model.summary import Summary
    from testbed.results.run_directory import RunDirectory


def simulate(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or file.")],
    results: Results = Path("results"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of the scenario's.")
    ] = None,
    repeat: Repeat = 1,
    sweep: Sweep = None,
    set_: Set = None,
    into: Into = None,
    folder: Folder = None,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> None:
    """Simulate a scenario and write its report.

    The transport is the same as in `testbed run`, the fabric is a model in virtual time: it needs
    no root, a run is repeated to the bit by its seed, and `dilation: 1` costs no more than any
    other. With --repeat or --sweep several runs, compared in one report. Exit status: 0 as
    expected, 1 data was lost or corrupted or an expectation not met, 2 wrong input, 4 the run
    cannot be trusted.
    """
    from testbed.results.run_directory import RunDirectory, locked

    def simulated(scenario: "Scenario", directory: "RunDirectory", progress: Progress) -> "Summary":
        return _simulate(scenario, directory, progress, drawn=not no_figures)

    settings, swept = settings_of(set_), sweep_of(sweep)

    def load(case: "Settings") -> "Scenario":
        return _checked(name, settings, case, seed)

    if repeat > 1 or swept or into is not None:
        plan = plan_of(load({}), simulated=True, settings=settings, sweep=swept, repeat=repeat)
        options = ("--no-figures",) if no_figures else ()
        run_series(plan, load, options, results=results, into=into, as_json=as_json)
    scenario = load({})
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, folder or scenario.name, scenario.seed, started)
    with (
        signals_stop(),
        locked(directory.path),
        reporting_kept_files(directory),
        showing_progress() as progress,
    ):
        summary = simulated(scenario, directory, progress)
    end_with(summary, directory, drawn=not no_figures, as_json=as_json)


def _checked(name: str, settings: "Settings", swept: "Settings", seed: int | None) -> "Scenario":
    from testbed.files.scenarios import nominal
    from testbed.model.checks import buffer_bytes

    scenario = scenario_given(name, nominal, settings, swept, seed)
    require_memory(buffer_bytes(scenario))
    return scenario


def _simulate(
    scenario: "Scenario", directory: "RunDirectory", progress: Progress, *, drawn: bool
) -> "Summary":
    from testbed.results.analyse import analyse
    from testbed.sim import simulate as simulate_into

    simulate_into(scenario, directory.path, progress)
    progress("analysing", 1.0)
    return analyse(directory.path, drawn=drawn)
