"""One run of a scenario or several: repeats, sweeps, continued where they broke off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from testbed.cli.compare import print_comparison
from testbed.cli.options import Results, ScenarioName, writing
from testbed.cli.running import new_run, reporting_how_to_resume, signals_stop
from testbed.cli.screen import print_error, print_json, print_warning, showing_progress, stdout
from testbed.cli.summary import end_with, exit_status
from testbed.model.errors import ExitStatus, InputError, RunFailedError

if TYPE_CHECKING:
    from testbed.campaign import job
    from testbed.campaign.plan import PlannedRun
    from testbed.campaign.series import Series, SeriesPlan, Settings
    from testbed.files.scenarios import Dilation
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory

Load = Callable[["Settings"], "Scenario"]
"""Loads and checks the scenario with some of its keys set."""

Record = Callable[["Scenario", "RunDirectory", "Progress"], object]
"""Makes a run: its records are in its directory then."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options that say which runs of which scenario are made, and where.

    Attributes:
        name: the scenario's name or file.
        results: the directory of all results.
        seed: instead of the scenario's; None: the scenario's.
        settings: the values that `--set` gives, by key path.
        sweep: the values that `--sweep` gives, by key path.
        repeat: how many runs are made of each case, each with the next seed.
        into: the directory of the series; None for one that is named after the time.
        folder: the directory in that of all results for a single run; None for the scenario's name.
    """

    name: str
    results: Path
    seed: int | None
    settings: dict[str, Any]
    sweep: dict[str, list[Any]]
    repeat: int
    into: Path | None
    folder: str | None

    @property
    def several(self) -> bool:
        """Whether a series is to be made; else it is a single run."""
        return self.repeat > 1 or bool(self.sweep) or self.into is not None

    def scenario(self, dilation: "Dilation", swept: "Settings") -> "Scenario":
        """Load the scenario with these options, and print its remarks as warnings.

        Args:
            dilation: finds the dilation for `auto`.
            swept: the values of one case of `--sweep`.

        Raises:
            InputError: there is no such scenario, or it or an option is wrong.
        """
        from testbed.files.scenarios import load_scenario
        from testbed.model.checks import remarks

        scenario = load_scenario(self.name, dilation, self.settings, swept)
        if self.seed is not None:
            _require_seed(self.seed)
            scenario = scenario.model_copy(update={"seed": self.seed})
        for remark in remarks(scenario):
            print_warning(f"{self.name}: {remark}")
        return scenario

    def plan(self, scenario: "Scenario", *, simulated: bool) -> "SeriesPlan":
        """What the series of a scenario consists of; its seeds count up from the scenario's.

        Raises:
            InputError: a seed would be out of range.
        """
        from testbed.campaign.series import SeriesPlan, digest

        _require_seed(scenario.seed + self.repeat - 1)
        return SeriesPlan(
            scenario=scenario.name,
            simulated=simulated,
            settings=self.settings,
            sweep=self.sweep,
            seeds=[scenario.seed + i for i in range(self.repeat)],
            content=digest(scenario),
        )


def run_options(
    name: ScenarioName,
    results: Results = Path("results"),
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Instead of the scenario's seed.")
    ] = None,
    repeat: Annotated[
        int,
        typer.Option("--repeat", min=1, metavar="N", help="Make N runs, each with the next seed."),
    ] = 1,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="KEY=A,B,..",
            help="Make runs with each of these values of a key; several --sweep: all combinations.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a key of the scenario; may be repeated."
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Directory for the runs of --repeat or --sweep; resumes an interrupted series.",
        ),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--folder", hidden=True, metavar="NAME", help="Instead of the scenario's name."
        ),
    ] = None,
) -> RunOptions:
    """Read the options; `--folder` is for campaigns.

    Raises:
        InputError: one is not KEY=VALUE.
    """
    from testbed.files.documents import parse_value

    settings = {key: parse_value(text, "--set") for key, text in _pairs("--set", set_)}
    swept = {key: parse_value(f"[{text}]", "--sweep") for key, text in _pairs("--sweep", sweep)}
    return RunOptions(name, results, seed, settings, swept, repeat, into, folder)


def _pairs(option: str, arguments: list[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for argument in arguments or []:
        key, equals, value = argument.partition("=")
        if not key or not equals or not value:
            raise InputError.of(option, argument, "KEY=VALUE, such as transport.evs=64")
        pairs.append((key.strip(), value))
    return pairs


def _require_seed(seed: int) -> None:
    from testbed.model.scenario import MAX_SEED

    if not 0 <= seed <= MAX_SEED:
        raise InputError.of("--seed", str(seed), f"a whole number from 0 to {MAX_SEED}")


def make_runs(
    options: RunOptions,
    load: Load,
    record: Record,
    further: Sequence[str] = (),
    *,
    simulated: bool,
    no_figures: bool,
    as_json: bool,
) -> NoReturn:
    """Make the run that the options ask for, or the series of runs; ends the command.

    Args:
        options: which runs are made.
        load: loads the scenario of a case.
        record: makes a single run.
        further: further options of `testbed run` for each run of a series.
        simulated: whether they are simulated.
        no_figures: whether there are to be neither figures nor report of each run.
        as_json: whether to print JSON.

    Raises:
        InputError: a case is wrong, or the directory holds another series. Nothing was run then.
        MachineError: this machine cannot run it.
    """
    scenario = load({})
    if options.several:
        plan = options.plan(scenario, simulated=simulated)
        for_each = (*(("--no-figures",) if no_figures else ()), *further)
        _make_series(plan, options, load, for_each, as_json=as_json)

    from testbed.results.analyse import analyse

    with new_run(scenario, options.results, options.folder) as (directory, progress):
        record(scenario, directory, progress)
        progress("analysing", 1.0)
        summary = analyse(directory.path, drawn=not no_figures)
    end_with(summary, directory, drawn=not no_figures, as_json=as_json)


def _make_series(
    plan: "SeriesPlan",
    options: RunOptions,
    load: Load,
    for_each: tuple[str, ...],
    *,
    as_json: bool,
) -> NoReturn:
    """Make every run of a series that is missing, then compare all."""
    from testbed.campaign.budget import RetryPolicy
    from testbed.campaign.engine import Engine
    from testbed.campaign.local import LocalExecutor
    from testbed.campaign.series import label, planned_runs, series_of
    from testbed.campaign.store import Store
    from testbed.results.run_directory import locked

    runs = planned_runs(plan, {label(case): load(case) for case in plan.cases}, for_each)
    directory = _directory(plan, options.results, options.into)
    store = Store(directory)

    def keep(planned: "PlannedRun", record: "job.Record") -> None:
        records[planned.job.key] = record
        series_of(plan, runs, records).write(directory)
        if record.failure:
            log = directory / planned.job.log
            print_error(f"{planned.job.name}: {record.failure}\n  its log: {log}")

    with (
        signals_stop(),
        locked(directory),
        reporting_how_to_resume(f"the same command with --into {directory}"),
    ):
        records = {run.job.key: record for run in runs if (record := store.record(run)) is not None}
        due = [run for run in runs if run.job.key not in records]
        with showing_progress() as progress:
            once = RetryPolicy(factors=(1.0,), stop_if_late=False)
            engine = Engine(store, LocalExecutor(directory), progress, once, keep)
            engine.execute(due, made_before=len(records))
        series = series_of(plan, runs, records)
        _report(series, directory, as_json=as_json)
    raise typer.Exit(_status(series, directory))


def _directory(plan: "SeriesPlan", results: Path, into: Path | None) -> Path:
    """The directory of a new series, or of the one that is continued."""
    from testbed.campaign.series import INDEX, PREFIX, Series, load_series
    from testbed.results.run_directory import give_to_user

    stamp = datetime.now().astimezone().strftime("%Y%m%dT%H%M%S")
    directory = results / plan.scenario / f"{PREFIX}{stamp}" if into is None else into
    if (directory / INDEX).is_file():
        present = load_series(directory).plan
        asked = plan.model_dump()
        different = [name for name, value in present.model_dump().items() if asked[name] != value]
        if different:
            expected = f"the series that it holds (different here: {', '.join(different)})"
            raise InputError.of("--into", str(directory), expected, "another directory")
        return directory
    if directory.is_dir() and any(directory.iterdir()):
        raise InputError.of("--into", str(directory), "an empty directory or a series")
    with writing("--into", directory, "a directory to write to"):
        directory.mkdir(parents=True, exist_ok=True)
    give_to_user(directory.parent)
    give_to_user(directory)
    Series(plan=plan).write(directory)
    return directory


def _report(series: "Series", directory: Path, *, as_json: bool) -> None:
    from testbed.campaign.series import groups_of
    from testbed.model.run_files.layout import REPORT
    from testbed.results.report.comparison_report import write_comparison
    from testbed.results.run_directory import RunDirectory

    failed = [run for run in series.done if run.error is not None]
    if len(failed) == len(series.done):
        raise RunFailedError(f"none of {len(failed)} runs came to its end: {failed[0].error}")
    groups = groups_of([directory])
    report = directory / REPORT
    simulated = " (simulated)" if series.plan.simulated else ""
    rows = write_comparison(f"{series.plan.scenario}{simulated}", groups, report)
    RunDirectory(directory).give_to_user()
    if as_json:
        print_json({"series": str(directory), "report": str(report)} | series.model_dump())
        return
    print_comparison(groups, rows, stdout())
    if failed:
        stdout().print(f"{len(failed)} of {len(series.done)} runs failed")
    stdout().print(f"report: {report}")


def _status(series: "Series", directory: Path) -> ExitStatus:
    """The exit status of a series: the worst of its runs."""
    from testbed.campaign.store import Run

    statuses = {
        ExitStatus.UNTRUSTED if run.error else exit_status(Run(directory / run.run).summary)
        for run in series.done
    }
    worst_first = (ExitStatus.FAILED, ExitStatus.UNTRUSTED)
    return next((status for status in worst_first if status in statuses), ExitStatus.AS_EXPECTED)
