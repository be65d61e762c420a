"""`testbed simulate`: an experiment in virtual time, without root, from its file to its report."""

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.options import Folder, Json, NoFigures, Results, ScenarioName, Seed
from testbed.cli.running import checked_scenario, new_run
from testbed.cli.series import Into, Repeat, Set, Sweep, run_series, series_options
from testbed.cli.summary import end_with
from testbed.model.errors import MachineError

if TYPE_CHECKING:
    from testbed.campaign.series import Settings
    from testbed.model.scenario import Scenario


def simulate(
    name: ScenarioName,
    results: Results = Path("results"),
    seed: Seed = None,
    repeat: Repeat = 1,
    sweep: Sweep = None,
    set_: Set = None,
    into: Into = None,
    folder: Folder = None,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> None:
    """Simulate a scenario and write its report.

    The transport is that of testbed run; the fabric is a model in virtual time. It needs no root,
    and equal seeds give equal results. --repeat and --sweep make several runs and compare them in
    one report. Exit status: 0 as expected, 1 data was lost or corrupted or an expectation is not
    met, 2 wrong input, 4 the run cannot be trusted.
    """
    series = series_options(set_, sweep, repeat, into)

    def load(case: "Settings") -> "Scenario":
        return _checked(name, series.settings, case, seed)

    scenario = load({})
    if series.several:
        plan = series.plan(scenario, simulated=True)
        options = ("--no-figures",) if no_figures else ()
        run_series(plan, into, load, options, results=results, as_json=as_json)

    from testbed.results.analyse import analyse
    from testbed.sim import simulate as simulate_into

    with new_run(scenario, results, folder) as (directory, progress):
        simulate_into(scenario, directory.path, progress)
        progress("analysing", 1.0)
        summary = analyse(directory.path, drawn=not no_figures)
    end_with(summary, directory, drawn=not no_figures, as_json=as_json)


def _checked(name: str, settings: "Settings", swept: "Settings", seed: int | None) -> "Scenario":
    """Load a scenario, and check that there is memory for its messages."""
    from testbed.experiment.footprint import available_memory
    from testbed.files.scenarios import nominal
    from testbed.model.checks import buffer_bytes
    from testbed.model.units import show_size

    scenario = checked_scenario(name, nominal, settings, swept, seed)
    needed, available = buffer_bytes(scenario), available_memory()
    if needed > available:
        raise MachineError(
            f"the messages of this scenario take {show_size(needed)} of memory, "
            f"{show_size(available)} are available",
            "fewer pairs, a smaller message_size or depth, or a machine with more memory",
        )
    return scenario
