"""`testbed run`: one experiment from its file to its report."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.locking import held
from testbed.cli.machine import capacity_here
from testbed.cli.options import Json, Pcap, Results
from testbed.cli.running import require_seed, signals_stop, told_what_is_kept
from testbed.cli.screen import progress_shown, say_json, say_warning, stdout
from testbed.cli.summary import exit_status, show
from testbed.model.errors import InputError, MachineError

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.results.summary import Summary


def run(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or file.")],
    results: Results = Path("results"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of the scenario's.")
    ] = None,
    pcap: Pcap = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is far too much for this machine.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a scenario and write its report (root).

    Exit status: 0 as expected, 1 data was lost or corrupted or an expectation not met, 2 wrong
    input, 3 this machine cannot run it, 4 the run cannot be trusted, 130 interrupted.
    """
    from testbed.experiment.footprint import require_room
    from testbed.loading import load_scenario
    from testbed.model.checks import remarks
    from testbed.results.run_directory import RunDirectory

    scenario = load_scenario(name, _dilation)
    if seed is not None:
        require_seed(seed)
        scenario = scenario.model_copy(update={"seed": seed})
    for remark in remarks(scenario):
        say_warning(f"{name}: {remark}")
    _require_links(scenario, pcap or [])
    require_room(scenario)
    _require_capacity(name, scenario, force=force)
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, scenario.name, scenario.seed, started)
    with signals_stop(), held(directory.path), told_what_is_kept(directory):
        summary = _run(scenario, directory, pcap or [])
    if as_json:
        run = {"run": str(directory.path), "exit_status": int(exit_status(summary))}
        say_json({**run, "summary": summary.model_dump(mode="json")})
    else:
        show(summary, directory, stdout())
    raise typer.Exit(exit_status(summary))


def _run(scenario: "Scenario", directory: "RunDirectory", pcap: list[str]) -> "Summary":
    from testbed.experiment import run_experiment
    from testbed.results.analyse import analyse

    with progress_shown() as progress:
        run_experiment(scenario, directory.path, progress, dict.fromkeys(pcap))
        progress("analysing", 1.0)
        return analyse(directory.path)


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


def _require_links(scenario: "Scenario", names: list[str]) -> None:
    from testbed.model.checks import unknown_link

    problems = [unknown_link(scenario.topology, "--pcap", name) for name in names]
    wrong = [problem for problem in problems if problem is not None]
    if wrong:
        raise InputError(wrong)
