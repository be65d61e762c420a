"""`testbed figures`: the paper's experiments, each beside what the paper observed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import screen
from testbed.cli.options import Json, On, Results, RunForm, SetKeys, settings_of
from testbed.cli.summary import print_status
from testbed.model.errors import ExitStatus, InputError
from testbed.rights import acting_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from testbed.runs.fitting import Machines
    from testbed.runs.job import Executor, Form
    from testbed.studies.paper.figure import PaperFigure
    from testbed.studies.paper.outcome import FigureOutcome
    from testbed.studies.paper.planning import Machine, Plan

_DIRECTORY = "paper"
_CHANGED = "paper-changed"
"""Of runs that options changed: their results are not those of the paper's rows."""

FULL_SEEDS: "Mapping[Form, int]" = {"emulated": 3, "simulated": 6}
"""With how many seeds --full makes each run, by its form; some figures have more of their own. Six
are the fewest with a confidence interval of the median (`estimates.MIN_SAMPLES`)."""


def register(command_line: typer.Typer) -> None:
    """Add `figures`."""
    command_line.command(rich_help_panel="Judge")(figures)


def figures(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIG]...", help="Figures to make, such as 9a; default: all."),
    ] = None,
    form: Annotated[
        RunForm, typer.Option("--form", help="With real packets (root), or in virtual time.")
    ] = "emulated",
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Emulated, with three seeds each, and simulated, with six; also the large ones.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also make runs that exist already.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Make each run with N seeds, from 1 on; the median is judged.",
        ),
    ] = None,
    longer: Annotated[
        int,
        typer.Option(
            "--longer",
            min=1,
            metavar="N",
            help="Make runs N times as long, with their faults. Results of this and of --set go to "
            "paper-changed/.",
        ),
    ] = 1,
    set_: SetKeys = None,
    minutes: Annotated[
        int | None,
        typer.Option(
            "--minutes",
            min=0,
            metavar="N",
            help="Repeat untrusted emulated runs until N minutes after the start; default: 30 for "
            "each seed.",
        ),
    ] = None,
    results: Results = Path("results"),
    list_: Annotated[
        bool, typer.Option("--list", help="List the figures and what they need, then exit.")
    ] = False,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Make the MRC paper's figures, and judge each (root).

    Runs that this version of the code has made are not made again, unless they could not be
    trusted: those are made again, slower, while there is time. Other figures stay as they are. Exit
    status: 0 when every figure made holds, 1 when one does not, 4 when one cannot be trusted, 5
    when the program crashed.
    """
    from testbed.emulation.experiment.machine import load_capacity
    from testbed.runs.job import FORMS
    from testbed.runs.making import naming_how_to_resume, signals_stop
    from testbed.runs.many import REPEAT_S, RetryPolicy
    from testbed.runs.places import executor_at, keep_slower_out, know_finished, machines_of
    from testbed.studies.paper.figure import Overrides
    from testbed.studies.paper.planning import forms_of, plan, select_figures
    from testbed.studies.paper.reproduction import reproduce

    forms: tuple[Form, ...] = FORMS if full else (form,)
    chosen = select_figures(numbers or [], large=full)
    counts = seed_counts(seeds, full=full)
    repeat_s = REPEAT_S * counts["emulated"] if minutes is None else 60.0 * minutes
    policy = RetryPolicy(repeat_s)
    overrides = Overrides(longer, _settings(set_))
    chosen = tuple(figure.changed(overrides) for figure in chosen)
    directory = results / (_CHANGED if str(overrides) else _DIRECTORY)

    def planned_for(machine: "Machine | None") -> "Plan":
        return plan(chosen, directory, forms, seeds=counts, again=again, machine=machine)

    if list_:
        screen.stdout().print(_requirements(chosen, planned_for(load_capacity())))
        return
    emulates = any("emulated" in forms_of(figure, forms) for figure in chosen)
    here = _this_machine(is_measured=emulates and on is None)
    wanted = {
        form: f"figure {figure.number}, {form}"
        for figure in reversed(chosen)
        for form in forms_of(figure, forms)
    }
    with (
        acting_for(directory),
        screen.ending_in_words(),
        naming_how_to_resume("the same command makes the remaining runs"),
        signals_stop(),
        executor_at(on, directory, wanted) as executor,
    ):
        machine = machines_of(executor, here) if emulates else None
        planned = planned_for(machine)
        if know_finished(executor, planned.due):
            planned = planned_for(machine)
        keep_slower_out(executor, planned.due)
        with screen.showing_progress() as progress:
            screen.stderr().print(_outlook(planned, executor, policy.seconds))
            outcomes = reproduce(chosen, planned, executor, progress, policy)
    if as_json:
        screen.print_json([outcome.model_dump(mode="json") for outcome in outcomes])
    else:
        _print(chosen, outcomes, directory)
    for outcome in outcomes:
        for name, why in outcome.failures.items():
            screen.print_error(f"figure {outcome.number}, {outcome.form}: {name}: {why}")
    status = _status(outcomes)
    if not as_json:
        reason = "not every figure holds, see the table"
        print_status(status, "the program crashed" if status is ExitStatus.CRASHED else reason)
    raise typer.Exit(status)


def _settings(arguments: list[str] | None) -> "dict[str, Any]":
    """The values that `--set` gives, by key path.

    Raises:
        InputError: an argument is not KEY=VALUE, or names what tells runs apart.
    """
    settings = settings_of(arguments)
    for key in settings:
        if key in {"name", "seed"}:
            raise InputError.of("--set", key, "another key", "--seeds N makes runs with N seeds")
    return settings


def seed_counts(requested: int | None, *, full: bool) -> "Mapping[Form, int]":
    """With how many seeds runs are made in each form: as many as requested, else by `--full`."""
    if requested is None and full:
        return FULL_SEEDS
    return dict.fromkeys(FULL_SEEDS, requested or 1)


def _this_machine(*, is_measured: bool) -> "Machines":
    """This machine.

    Args:
        is_measured: whether what it carries is found out now.

    Raises:
        MachineError: it cannot run the testbed.
    """
    from testbed.emulation.fabric.capabilities import require
    from testbed.runs.fitting import Machines

    machines = Machines.here(showing=screen.showing_progress, warn=screen.print_warning)
    if is_measured:
        require()
        _ = machines.capacities
    return machines


def _outlook(planned: "Plan", executor: "Executor", retry_s: float) -> str:
    """What is to be done, and how long it will take."""
    from testbed.model.units import show_wait
    from testbed.runs.many import estimate_s

    counts = {form: sum(run.job.form == form for run in planned.due) for form in planned.forms}
    parts = [
        f"{counts[form]} {form} runs, about {show_wait(seconds)}"
        for form, seconds in estimate_s(planned.due, executor).items()
        if counts.get(form)
    ]
    if not parts:
        return "all runs are there"
    again = "emulated ones that cannot be trusted are made again, slower, in what is left of"
    emulated = f"; {again} {show_wait(retry_s)}" if counts.get("emulated") else ""
    return " and ".join(parts) + emulated


def _requirements(chosen: "Sequence[PaperFigure]", planned: "Plan") -> "Table":
    """What each figure needs in each form: runs, time, and how much of the machine."""
    from testbed.model.units import show_share, show_wait

    headings = ("runs", "time", "dilation", "of the CPUs", "million packet-hops")
    table = screen.ruled_table("figure", "what", "how", numbers=headings)
    titles = {figure.number: figure.text.title for figure in chosen}
    for (number, form), runs in planned.runs.items():
        dilations = sorted({run.scenario.topology.dilation for run in runs})
        loads = [run.load for run in runs if run.load is not None]
        table.add_row(
            number,
            titles[number],
            form,
            str(len(runs)),
            show_wait(sum(run.expected_s() for run in runs)),
            ", ".join(f"{dilation:,.0f}" for dilation in dilations),
            show_share(max(loads)) if loads else "",
            f"{sum(run.packet_hops for run in runs) / 1e6:.1f}",
        )
    return table


def _status(outcomes: "Sequence[FigureOutcome]") -> ExitStatus:
    if any(outcome.crashed for outcome in outcomes):
        return ExitStatus.CRASHED
    answers = {outcome.holds for outcome in outcomes}
    if answers & {"no", "not run"}:
        return ExitStatus.FAILED
    return ExitStatus.UNTRUSTED if "not trusted" in answers else ExitStatus.AS_EXPECTED


def _print(
    chosen: "Sequence[PaperFigure]", outcomes: "Sequence[FigureOutcome]", directory: Path
) -> None:
    """The table, why figures do not hold, how many do, and where the report is."""
    from testbed.model.run_files.layout import REPORT

    console = screen.stdout()
    console.print(_table(chosen, outcomes))
    for outcome in outcomes:
        for reason in outcome.reasons:
            console.print(f"{outcome.number}, {outcome.form}: {reason}", soft_wrap=True)
    console.print(_counts(outcomes))
    console.print(f"report: {directory / REPORT}")


def _counts(outcomes: "Sequence[FigureOutcome]") -> str:
    """How many figures hold, do not hold, and so on."""
    answers = [outcome.holds for outcome in outcomes]
    counts = {answer: answers.count(answer) for answer in dict.fromkeys(answers)}
    words = {"yes": "hold", "no": "do not hold"}
    return ", ".join(f"{count} {words.get(answer, answer)}" for answer, count in counts.items())


def _table(chosen: "Sequence[PaperFigure]", outcomes: "Sequence[FigureOutcome]") -> "Table":
    """Every check of every figure, and the state of each figure."""
    table = screen.ruled_table("figure", "how", "what", numbers=("measured", "must be", "holds"))
    titles = {figure.number: figure.text.title for figure in chosen}
    for outcome in outcomes:
        holds = f"{outcome.holds}, {outcome.trust_note}" if outcome.trust_note else outcome.holds
        title = titles[outcome.number]
        table.add_row(outcome.number, outcome.form, title, "", "", holds, style="bold")
        for check in outcome.checks:
            holds = ("yes" if check.holds else "no") if check.is_judged else ""
            table.add_row("", "", check.what, check.measured, check.bound, holds)
        if outcome.state:
            table.add_row("", "", outcome.state, style="dim")
        table.add_section()
    return table
