"""What commands print: results on stdout, everything else on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 1000
"""Columns where no terminal limits them: a line a row, for grep."""

_STEP = 0.25
"""Where there is no terminal, a line for every such part of the way."""


def stdout() -> "Console":
    """Where results go."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNLIMITED
    return Console(highlight=False, markup=False, width=width)


def print_table(table: "Table") -> None:
    """Print a table that has no lines between its columns; rows end where their text does."""
    console = stdout()
    with console.capture() as shown:
        console.print(table)
    for row in shown.get().splitlines():
        print(row.rstrip())  # noqa: T201 - as it is: laid out above


def stderr() -> "Console":
    """Where everything else goes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a result for a program."""
    print(json.dumps(value, indent=2))  # noqa: T201 - as it is: nothing wrapped or coloured


def print_error(text: str) -> None:
    """Show what is wrong."""
    console = stderr()
    console.print("error: ", style="bold red", end="")
    console.print(text)


def print_warning(text: str) -> None:
    """Show what may not be meant."""
    console = stderr()
    console.print("warning: ", style="bold yellow", end="")
    console.print(text)


@contextmanager
def showing_progress() -> Iterator[Callable[[str, float], None]]:
    """Show how far something is, as it says it: what it is doing, and the part done (0 to 1)."""
    console = stderr()
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    # No thread and no redirection: what is shown forks while it is shown.
    with Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        bar = progress.add_task("starting", total=1.0)
        yield lambda what, done: progress.update(
            bar, description=what, completed=done, refresh=True
        )


def _lines(console: "Console") -> Callable[[str, float], None]:
    began = time.monotonic()
    last_what, last_step = "", -1

    def progress(what: str, done: float) -> None:
        nonlocal last_what, last_step
        step = int(done / _STEP)
        if (what, step) != (last_what, last_step):
            last_what, last_step = what, step
            console.print(f"{time.monotonic() - began:6.1f} s {done:4.0%} {what}")

    return progress
