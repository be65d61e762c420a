"""What commands print: results on stdout, all else on stderr."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import typer

from testbed.model.errors import SIGNALLED, InputError, TestbedError, printable
from testbed.model.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 1000
"""Width without a terminal: each row of a table is one line, for grep."""

_USUAL = 80
"""Width of a terminal that says that it has none."""

_EVERY_S = 10.0
"""Without a terminal, progress is a line at most as often as this."""

_EACH_STEP = "TESTBED_PROGRESS"
"""If this environment variable is `all`, each step of it is a line, as it comes."""

_ASKS = "Ctrl-C"
"""In what a person is told to do, which is shown at once."""


def stdout() -> "Console":
    """The console for results."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNLIMITED
    return _visible(Console(highlight=False, markup=False, width=width))


def _visible(console: "Console") -> "Console":
    """A console that shows something, also where COLUMNS is 0."""
    if not console.width:
        console.width = _USUAL
    return console


def plain_table(*headings: str, title: str | None = None) -> "Table":
    """An empty table without lines; its first column is coloured."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, style=None if table.columns else "cyan")
    return table


def ruled_table(*headings: str, numbers: Sequence[str] = ()) -> "Table":
    """An empty table with lines; its first column is coloured.

    Args:
        headings: of the columns that hold text, first.
        numbers: headings of the columns that hold numbers, aligned to the right.
    """
    from rich.table import Table

    table = Table()
    for heading in headings:
        table.add_column(heading, style=None if table.columns else "cyan")
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_table(table: "Table") -> None:
    """Print a plain table, without spaces at the ends of rows."""
    console = stdout()
    with console.capture() as capture:
        console.print(table)
    for row in capture.get().splitlines():
        print(row.rstrip())  # noqa: T201 - already laid out


def stderr() -> "Console":
    """The console for all that is not a result."""
    from rich.console import Console

    return _visible(Console(stderr=True, highlight=False, markup=False, soft_wrap=True))


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    print(json.dumps(value, indent=2))  # noqa: T201 - neither wrapped nor coloured


def print_error(text: str) -> None:
    """Print an error message."""
    _print_labelled("error", "bold red", text)


def print_warning(text: str) -> None:
    """Print a warning."""
    _print_labelled("warning", "bold yellow", text)


def _print_labelled(label: str, style: str, text: str) -> None:
    console = stderr()
    console.print(f"{label}: ", style=style, end="")
    console.print(printable(text))


def print_failure(error: TestbedError) -> None:
    """Print an error with which a command ends, and what is kept of the run that it ended."""
    lines = error.lines if isinstance(error, InputError) else [str(error)]
    if error.kept:
        lines[-1] += f"\n  {error.kept}"
    for line in lines:
        print_error(line)


@contextmanager
def ending_in_words() -> Iterator[None]:
    """If a signal stops the block, print what is kept or how to go on, and end the command."""
    from testbed.runs.making import Stopped

    try:
        yield
    except Stopped as stopped:
        print_error(f"interrupted by {stopped.name}; {stopped.kept}")
        raise typer.Exit(SIGNALLED + stopped.number) from None


@contextmanager
def showing_progress() -> Iterator[Progress]:
    """Show progress during a block: a bar on a terminal, otherwise lines."""
    console = stderr()
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    # No thread and no redirection: the process forks while the bar is shown.
    with Bar(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, done: bar.update(task, description=what, completed=done, refresh=True)


def _lines(console: "Console") -> Progress:
    start = time.monotonic()
    last, shown = -inf, ""
    every_s = 0.0 if os.environ.get(_EACH_STEP) == "all" else _EVERY_S

    def progress(what: str, done: float) -> None:
        nonlocal last, shown
        now = time.monotonic()
        is_asked = _ASKS in what and what != shown
        if is_asked or now - last >= every_s:
            last, shown = now, what
            console.print(f"{now - start:6.1f} s {done:4.0%} {what}")

    return progress
