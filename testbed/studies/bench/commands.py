"""`testbed bench`: the figures that this project promises, measured here."""

import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Json, Results
from testbed.cli.screen import print_json, ruled_table, stderr, stdout
from testbed.cli.summary import print_status
from testbed.model.errors import ExitStatus, InputError
from testbed.rights import acting_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from testbed.studies.bench.measure import BenchPart, Measurement, Setting


def register(command_line: typer.Typer) -> None:
    """Add `bench`."""
    command_line.command(rich_help_panel="Judge")(bench)


def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help="Parts to measure; default: all."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of each measurement.")] = 10,
    results: Results = Path("results"),
    htsim: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A checkout of uet-htsim (built if needed), for the parts htsim*.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the parts and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Measure against targets, with repeats and spread (root).

    Exit status: 0 when every figure meets its target (its median, or each sample where the target
    says so), 1 when one does not or cannot be measured here.
    """
    from testbed.studies.bench.measure import PARTS, Setting

    if list_:
        for name, part in PARTS.items():
            stdout().print(f"{name:14} {part.what}")
        return
    unknown = [name for name in parts or () if name not in PARTS]
    if unknown:
        raise InputError.of("PART", unknown[0], f"one of {', '.join(PARTS)}")
    usual = [name for name, part in PARTS.items() if htsim is not None or not part.only_if_named]
    chosen = {name: PARTS[name] for name in PARTS if name in (parts or usual)}
    named = any(part.only_if_named for part in chosen.values())
    _look_for_htsim(htsim, named=named, usual=not parts)
    if any(part.root for part in chosen.values()):
        from testbed.emulation.fabric.capabilities import require

        require()
    setting = Setting(repeats, results, stderr().print, htsim)
    with acting_for(results):
        figures = {
            name: _measured(name, part, replace(setting, repeats=min(repeats, part.most_repeats)))
            for name, part in chosen.items()
        }
    if as_json:
        print_json(
            [{"part": name} | figure.to_json() for name, part in figures.items() for figure in part]
        )
    else:
        stdout().print(_table(figures))
        for figure in (figure for part in figures.values() for figure in part if figure.missing):
            stdout().print(f"{figure.name}: not measured, {figure.missing}", markup=False)
    missed = any(not figure.holds for part in figures.values() for figure in part)
    status = ExitStatus.FAILED if missed else ExitStatus.AS_EXPECTED
    print_status(status, "a figure misses its target or was not measured, see the table")
    raise typer.Exit(status)


def _look_for_htsim(checkout: Path | None, *, named: bool, usual: bool) -> None:
    """Look for it before anything is measured; say so where the usual parts are without it."""
    if named:
        from testbed.studies.bench.htsim import find

        find(checkout)
    elif usual:
        stderr().print("htsim: not compared; name a checkout of uet-htsim with --htsim DIR")


def _measured(name: str, part: "BenchPart", setting: "Setting") -> "list[Measurement]":
    """Measure a part in a process of its own; its threads are in no other part's way.

    Where it cannot be measured its figure says so, and the other parts are measured.
    """
    from testbed.model.errors import MachineError, RunFailedError
    from testbed.sandbox.processes import call
    from testbed.studies.bench.measure import Measurement, load, not_measured

    def measure() -> list[dict[str, Any]]:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends in order
        return [asdict(figure) for figure in load(name)(setting)]

    try:
        figures = call(measure, title="the measurement", isolated=False)
        return [Measurement(**figure) for figure in figures]
    except (MachineError, RunFailedError) as error:
        return [not_measured(Measurement(part.what, "", ()), str(error))]


def _table(figures: "Mapping[str, Sequence[Measurement]]") -> "Table":
    headings = ("median", "min", "max", "samples", "target", "holds")
    table = ruled_table("part", "figure", numbers=headings)
    for part, of_part in figures.items():
        for number, figure in enumerate(of_part):
            middle = figure.median
            measured = (
                ("not measured", "", "")
                if middle is None
                else (
                    figure.show(middle),
                    figure.show(min(figure.samples)),
                    figure.show(max(figure.samples)),
                )
            )
            table.add_row(
                "" if number else part,
                figure.name,
                *measured,
                str(len(figure.samples)),
                figure.target,
                ("yes" if figure.holds else "no") if figure.target else "",
                end_section=number == len(of_part) - 1,
            )
    return table
