"""Several runs of a scenario by one command: repeats, sweeps, continued where they broke off."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from testbed.cli.child import in_child
from testbed.cli.comparing import show_comparison
from testbed.cli.running import require_seed, signals_stop, told_how_to_continue
from testbed.cli.screen import progress_shown, say_error, say_json, stdout
from testbed.cli.summary import exit_status
from testbed.model.errors import ExitStatus, InputError, Problem, RunFailedError
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.results.series import Done, Plan, Series, Settings
    from testbed.results.summary import Summary

Repeat = Annotated[
    int, typer.Option("--repeat", min=1, metavar="N", help="Runs, each with the next seed.")
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="KEY=A,B,..",
        help="Runs with each of these values of a key; may be repeated, for all combinations.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Instead of the file's; may be repeated."),
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        metavar="DIR",
        help="Where the runs of --repeat or --sweep go; continues those that broke off.",
    ),
]

Load = Callable[["Settings"], "Scenario"]
"""Loads and checks the scenario with some of its keys set."""

Execute = Callable[["Scenario", "RunDirectory", Progress], "Summary"]
"""Runs a scenario and analyses it."""


def settings_of(options: list[str] | None) -> dict[str, Any]:
    """The values that `--set` gives, by key path.

    Raises:
        InputError: one is not KEY=VALUE.
    """
    from testbed.files.documents import parse_value

    return {key: parse_value(text, "--set") for key, text in _pairs("--set", options)}


def sweep_of(options: list[str] | None) -> dict[str, list[Any]]:
    """The values that `--sweep` gives, by key path.

    Raises:
        InputError: one is not KEY=A,B,...
    """
    from testbed.files.documents import parse_value

    return {key: parse_value(f"[{text}]", "--sweep") for key, text in _pairs("--sweep", options)}


def _pairs(option: str, given: list[str] | None) -> list[tuple[str, str]]:
    found = []
    for one in given or []:
        key, equals, value = one.partition("=")
        if not key or not equals or not value:
            raise InputError([Problem(option, one, "KEY=VALUE, such as transport.evs=64")])
        found.append((key.strip(), value))
    return found


def plan_of(
    scenario: "Scenario",
    *,
    simulated: bool,
    settings: Mapping[str, Any],
    sweep: Mapping[str, list[Any]],
    repeat: int,
) -> "Plan":
    """What a series consists of; its seeds count up from the scenario's.

    Raises:
        InputError: the seeds run out.
    """
    from testbed.results.series import Plan, digest

    require_seed(scenario.seed + repeat - 1)
    return Plan(
        scenario=scenario.name,
        simulated=simulated,
        settings=dict(settings),
        sweep=dict(sweep),
        seeds=[scenario.seed + i for i in range(repeat)],
        content=digest(scenario),
    )


def run_series(
    plan: "Plan",
    load: Load,
    execute: Execute,
    *,
    results: Path,
    into: Path | None,
    as_json: bool,
) -> NoReturn:
    """Make every run that is still to be made, then compare them; ends the command.

    Raises:
        InputError: a case is wrong, or `into` holds another series. Nothing has been run then.
        MachineError: this machine cannot run it.
    """
    from testbed.results.run_directory import locked
    from testbed.results.series import label, load_series

    scenarios = {label(case): load(case) for case in plan.cases}
    directory = _directory(plan, results, into)
    with (
        signals_stop(),
        locked(directory),
        told_how_to_continue(f"the same command with --into {directory}"),
    ):
        with progress_shown() as progress:
            while (series := load_series(directory)).left:
                case, seed = series.left[0]
                scenario = scenarios[label(case)].model_copy(update={"seed": seed})
                one = _run(series, scenario, case, directory, execute, progress)
                series.plus(one).write(directory)
        _report(plan, series, directory, as_json=as_json)
    raise typer.Exit(_status(series, directory))


def _directory(plan: "Plan", results: Path, into: Path | None) -> Path:
    """The directory of a new series, or of the one that is continued."""
    from testbed.results.run_directory import give_to_user
    from testbed.results.series import INDEX, PREFIX, Series, load_series

    stamp = datetime.now().astimezone().strftime("%Y%m%dT%H%M%S")
    directory = results / plan.scenario / f"{PREFIX}{stamp}" if into is None else into
    if (directory / INDEX).is_file():
        was = load_series(directory).plan
        if was != plan:
            different = ", ".join(
                name
                for name in type(plan).model_fields
                if getattr(was, name) != getattr(plan, name)
            )
            expected = f"the series that it holds (different here: {different})"
            raise InputError([Problem("--into", str(directory), expected, "another directory")])
        return directory
    if directory.is_dir() and any(directory.iterdir()):
        raise InputError([Problem("--into", str(directory), "an empty directory or a series")])
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a directory to write to ({error.strerror})"
        raise InputError([Problem("--into", str(directory), expected)]) from None
    give_to_user(directory.parent)
    give_to_user(directory)
    Series(plan=plan).write(directory)
    return directory


def _run(
    series: "Series",
    scenario: "Scenario",
    case: "Settings",
    directory: Path,
    execute: Execute,
    progress: Progress,
) -> "Done":
    from testbed.results.run_directory import RunDirectory, locked
    from testbed.results.series import Done, directory_name, label

    count, made = len(series.plan.runs), len(series.done)
    left = _time_left(series)
    began = time.monotonic()
    run = RunDirectory.create(
        directory, directory_name(case), scenario.seed, datetime.now().astimezone()
    )

    def told(what: str, done: float) -> None:
        name = f"run {made + 1} of {count}{left}, {label(case)}, seed {scenario.seed}: {what}"
        progress(name, (made + done) / count)

    error = None
    try:
        with locked(run.path):
            in_child(lambda tell: execute(scenario, run, tell), told)
    except RunFailedError as failed:
        error = str(failed)
        say_error(f"{error}\n  its logs: {run.logs}; the other runs go on")
    except BaseException:
        run.remove()  # it is not in the index: it is made again
        raise
    return Done(
        case=case,
        seed=scenario.seed,
        run=str(run.path.relative_to(directory)),
        seconds=round(time.monotonic() - began, 1),
        error=error,
    )


def _time_left(series: "Series") -> str:
    if not series.done:
        return ""
    mean_s = sum(one.seconds for one in series.done) / len(series.done)
    left_s = round(mean_s * len(series.left))
    return f" (about {left_s // 60}:{left_s % 60:02} left)"


def _report(plan: "Plan", series: "Series", directory: Path, *, as_json: bool) -> None:
    from testbed.results.analysis.comparison import groups_of
    from testbed.results.report.comparison_report import write_comparison
    from testbed.results.run_directory import RunDirectory

    failed = [one for one in series.done if one.error is not None]
    if len(failed) == len(series.done):
        raise RunFailedError(f"none of {len(failed)} runs came to its end: {failed[0].error}")
    groups = groups_of([directory])
    report = directory / "report.html"
    simulated = " (simulated)" if plan.simulated else ""
    rows = write_comparison(f"{plan.scenario}{simulated}", groups, report)
    RunDirectory(directory).give_to_user()
    if as_json:
        say_json({"series": str(directory), "report": str(report)} | series.model_dump())
        return
    show_comparison(groups, rows, stdout())
    if failed:
        stdout().print(f"{len(failed)} of {len(series.done)} runs failed")
    stdout().print(f"report: {report}")


def _status(series: "Series", directory: Path) -> ExitStatus:
    """What all runs together mean: what is wrong with any is wrong."""
    statuses = {exit_status(_summary(directory / one.run)) for one in series.done if not one.error}
    if any(one.error for one in series.done):
        statuses.add(ExitStatus.UNTRUSTED)
    for worst in (ExitStatus.FAILED, ExitStatus.UNTRUSTED):
        if worst in statuses:
            return worst
    return ExitStatus.AS_EXPECTED


def _summary(run: Path) -> "Summary":
    from testbed.results.run_directory import SUMMARY
    from testbed.results.summary import Summary

    return Summary.model_validate_json((run / SUMMARY).read_text(encoding="utf-8"))
