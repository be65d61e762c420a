"""`testbed figures`: the paper's experiments, each set beside what the paper saw."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.machine import capacity_here
from testbed.cli.options import Json, Results
from testbed.cli.running import signals_stop, told_how_to_continue
from testbed.cli.screen import progress_shown, say_error, say_json, stderr, stdout
from testbed.model.errors import ExitStatus, InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from testbed.paper.figure import Form, PaperFigure
    from testbed.paper.fitting import Machine
    from testbed.paper.outcome import Outcome
    from testbed.paper.reproduction import Plan

_DIRECTORY = "paper"

FULL_SEEDS = 3
"""With how many seeds each run is made by --full."""


def figures(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[FIG]...", help="Which, such as 9a; else all.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="In virtual time, without root.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Emulated and simulated, the large ones too, with three seeds each."
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also those whose runs are there already.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Runs of each, with seeds from 1 on; the median is judged.",
        ),
    ] = None,
    minutes: Annotated[
        int | None,
        typer.Option(
            "--minutes",
            min=0,
            metavar="N",
            help="Try untrusted emulated runs again until so many are over, from the start; "
            "30 for each of the seeds.",
        ),
    ] = None,
    results: Results = Path("results"),
    list_: Annotated[
        bool, typer.Option("--list", help="List the figures, what they take, and exit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the MRC paper's figures, and judge each (root).

    Runs that are there already are not made again, but for those that could not be trusted, which
    are tried again, slower, while there is time; figures that are not asked for stay as they are.
    Exit status: 0 when every figure asked for holds, 1 when one does not, 4 when one cannot be
    trusted.
    """
    from testbed.paper.making import REPEAT_S
    from testbed.paper.reproduction import chosen, plan, reproduce

    if simulate and full:
        raise InputError([Problem("--full", "--simulate", "one of the two: --full does both")])
    forms: tuple[Form, ...] = ("emulated",)
    if simulate or full:
        forms = ("simulated",) if simulate else ("emulated", "simulated")
    picked = chosen(wanted or [], large=full)
    machine = _machine(picked, forms)
    count = seeds or (FULL_SEEDS if full else 1)
    emulated_s = REPEAT_S * count if minutes is None else 60.0 * minutes
    planned = plan(
        picked,
        results / _DIRECTORY,
        forms,
        seeds=count,
        again=again,
        machine=machine,
    )
    if list_:
        stdout().print(_what_they_take(picked, planned))
        return
    stderr().print(_outlook(planned, emulated_s))
    with signals_stop(), told_how_to_continue("the same command"), progress_shown() as progress:
        outcomes = reproduce(picked, planned, progress, emulated_s)
    if as_json:
        say_json([outcome.model_dump(mode="json") for outcome in outcomes])
    else:
        stdout().print(_table(picked, outcomes))
        stdout().print(_in_short(outcomes))
        stdout().print(f"report: {results / _DIRECTORY / 'report.html'}")
    for outcome in outcomes:
        for name, why in outcome.failures.items():
            say_error(f"figure {outcome.number}, {outcome.form}: {name}: {why}")
    raise typer.Exit(_status(outcomes))


def _machine(picked: "Sequence[PaperFigure]", forms: "Sequence[Form]") -> "Machine | None":
    """What is known of this machine; None if it is not known, or nothing is emulated.

    Raises:
        MachineError: this machine cannot run the testbed.
    """
    from testbed.fabric.capabilities import require
    from testbed.paper.reproduction import forms_of

    if all("emulated" not in forms_of(figure, forms) for figure in picked):
        return None
    require()
    return capacity_here()


def _outlook(planned: "Plan", emulated_s: float) -> str:
    """What is to be done, and how long it will take."""
    from testbed.paper.making import estimate_s, in_words

    counts = {form: sum(one.form == form for one in planned.due) for form in planned.forms}
    parts = [
        f"{counts[form]} {form} runs, about {in_words(seconds)}"
        for form, seconds in estimate_s(planned.due).items()
        if counts.get(form)
    ]
    if not parts:
        return "all runs are there"
    left = f"what is left of {in_words(emulated_s)}"
    again = f"; emulated ones that cannot be trusted are tried again, slower, in {left}"
    return " and ".join(parts) + (again if counts.get("emulated") else "")


def _what_they_take(picked: "Sequence[PaperFigure]", planned: "Plan") -> "Table":
    """What each figure needs in each form: runs, time, and how much of the machine."""
    from rich.table import Table

    from testbed.paper.making import in_words

    table = Table()
    table.add_column("figure", style="cyan")
    table.add_column("what")
    table.add_column("how")
    for heading in ("runs", "time", "dilation", "of the CPUs", "million packet-hops"):
        table.add_column(heading, justify="right")
    titles = {figure.number: figure.title for figure in picked}
    for (number, form), orders in planned.orders.items():
        seconds = sum(one.expected_s for one in orders)
        dilations = sorted({one.scenario.topology.dilation for one in orders})
        loads = [one.load for one in orders if one.load is not None]
        hops = sum(one.packet_hops for one in orders) / 1e6
        table.add_row(
            number,
            titles[number],
            form,
            str(len(orders)),
            in_words(seconds),
            ", ".join(f"{dilation:,.0f}" for dilation in dilations),
            f"{max(loads):.0%}" if loads else "",
            f"{hops:.1f}",
        )
    return table


def _status(outcomes: "Sequence[Outcome]") -> ExitStatus:
    answers = {outcome.holds for outcome in outcomes}
    if answers & {"no", "not run"}:
        return ExitStatus.FAILED
    return ExitStatus.UNTRUSTED if "not trusted" in answers else ExitStatus.AS_EXPECTED


def _in_short(outcomes: "Sequence[Outcome]") -> str:
    """How many figures came out how."""
    answers = [outcome.holds for outcome in outcomes]
    counts = {answer: answers.count(answer) for answer in dict.fromkeys(answers)}
    words = {"yes": "hold", "no": "do not hold"}
    return ", ".join(f"{count} {words.get(answer, answer)}" for answer, count in counts.items())


def _table(picked: "Sequence[PaperFigure]", outcomes: "Sequence[Outcome]") -> "Table":
    """Every check of every figure, and the state of each figure."""
    from rich.table import Table

    table = Table()
    table.add_column("figure", style="cyan")
    table.add_column("how")
    table.add_column("what")
    for heading in ("measured", "must be", "holds"):
        table.add_column(heading, justify="right")
    titles = {figure.number: figure.title for figure in picked}
    for one in outcomes:
        holds = f"{one.holds}, {one.doubt}" if one.doubt else one.holds
        table.add_row(one.number, one.form, titles[one.number], "", "", holds, style="bold")
        for check in one.checks:
            holds = "yes" if check.holds else "no"
            table.add_row("", "", check.what, check.measured, check.bound, holds)
        if one.holds == "no":
            for reason in one.reasons:
                table.add_row("", "", reason, style="dim")
        if one.state:
            table.add_row("", "", one.state, style="dim")
        table.add_section()
    return table
