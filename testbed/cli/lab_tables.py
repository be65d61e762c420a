"""`testbed lab table`: the records of a student's runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.screen import plain_table, print_table, stdout
from testbed.model.errors import InputError

if TYPE_CHECKING:
    from testbed.studies.labs.work import Work


def table(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="The run's name.")] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="The table; without it all are listed.")
    ] = None,
    conditions: Annotated[
        list[str] | None, typer.Argument(metavar="COLUMN=VALUE", help="Only rows with this value.")
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Only rows from this time on: 1.5s; 0 by default."
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Only rows up to this time.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="The most rows to print.")] = 40,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
) -> None:
    """Show the records of a run: packets, losses, EV events."""
    from testbed.studies.labs.quantities import counted
    from testbed.studies.labs.tables import read_table, tables_of

    work = work_here()
    console = stdout()
    if name is None:
        for known in tables_of(work, run):
            console.print(known)
        return
    begin_s, end_s = _seconds("--from", begin, 0.0), _seconds("--to", end, float("inf"))
    pairs = _pairs(conditions or [])
    frame = read_table(work, run, name, pairs, begin_s, end_s)
    if as_csv:
        print(frame.write_csv(), end="")  # noqa: T201 - neither wrapped nor coloured
        return
    shown = plain_table(*frame.columns)
    for row in frame.head(rows).iter_rows():
        shown.add_row(*(f"{cell:.6f}" if isinstance(cell, float) else str(cell) for cell in row))
    print_table(shown)
    more = f"; --rows {frame.height} or --csv shows all" if frame.height > rows else ""
    console.print(f"{counted(frame.height, 'row')}{more}")
    if not begin and (early := read_table(work, run, name, pairs, float("-inf"), 0.0).height):
        console.print(f"{counted(early, 'row')} from before the start: --from -1s shows them too")


def work_here() -> "Work":
    """The lab of the working directory, after completing copies that a crash interrupted."""
    from pathlib import Path

    from testbed.studies.labs.work import find_work

    work = find_work(Path.cwd())
    if any(run.hidden for run in work.assignment.directory.lab.runs.values()):
        from testbed.studies.labs.runs import unseal

        unseal(work)
    return work


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            remedy = "write it without blanks; a time of --from and --to, too: --from 1.5s"
            raise InputError.of("COLUMN=VALUE", word, "COLUMN=VALUE, such as flow=0", remedy)
        pairs[key] = value
    return pairs


def _seconds(option: str, text: str, default: float) -> float:
    """A time of the run in seconds; a number without unit is in seconds."""
    from testbed.model.errors import RefusedValueError
    from testbed.studies.labs.quantities import parse_number

    if not text:
        return default
    try:
        return parse_number(text if text[-1].isalpha() else f"{text} s", "s")
    except RefusedValueError as error:
        raise InputError.of(option, text, error.expected) from None
