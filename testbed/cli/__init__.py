"""The command line `testbed`: one module for each subcommand."""

import gc
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from testbed import fast, installation
from testbed.cli.bench import bench
from testbed.cli.clean import clean
from testbed.cli.compare import compare
from testbed.cli.doctor import doctor
from testbed.cli.ev_modes import run_mode
from testbed.cli.fault import commands as fault_commands
from testbed.cli.figures import figures
from testbed.cli.lab import commands as lab_commands
from testbed.cli.list_ import list_
from testbed.cli.operating import ev_commands, port_commands
from testbed.cli.paths import paths
from testbed.cli.perftest import write_bw, write_lat
from testbed.cli.protocol import protocol
from testbed.cli.replay import replay
from testbed.cli.report import report
from testbed.cli.run import run
from testbed.cli.schema import schema
from testbed.cli.screen import print_error, stdout
from testbed.cli.shell import shell
from testbed.cli.simulate import simulate
from testbed.cli.topo import topo
from testbed.cli.trace import trace
from testbed.cli.validate import validate
from testbed.cli.watch import watch
from testbed.model.errors import ExitStatus, InputError, TestbedError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["command_line", "main"]


def main() -> None:
    """Run the command line; an error becomes a message and an exit status."""
    installation.use_libraries()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not fork
    try:
        try:
            command_line()(prog_name="testbed")
        finally:
            gc.freeze()  # spares a collection of all objects at exit: 0.3 s after a run
            sys.stdout.flush()  # here, where a closed pipe is handled
    except InputError as error:
        for line in error.lines:
            print_error(line)
        sys.exit(error.exit_status)
    except TestbedError as error:
        print_error(str(error))
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        missing = installation.missing_emulation(error)
        if missing is None:
            _show_unexpected(error)
        print_error(missing)
        sys.exit(ExitStatus.MACHINE_CANNOT)
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitStatus.FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: a short message, and the traceback in a file
        _show_unexpected(error)


def command_line() -> typer.Typer:
    """Build the command line."""
    app = typer.Typer(
        help="Run MRC over SRv6 on an emulated multi-plane Clos fabric, and measure what happens.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_callback)
    commands: tuple[Callable[..., None], ...] = (
        *(run, simulate, report, watch, replay, compare),
        *(list_, validate, paths, trace, topo, protocol, schema),
        *(shell, write_bw, write_lat),
        *(figures, bench),
        *(doctor, clean),
    )
    for command in commands:
        app.command(command.__name__.strip("_").replace("_", "-"))(command)
    app.add_typer(fault_commands(), name="fault")
    evs = ev_commands()
    evs.command("run")(run_mode)
    app.add_typer(evs, name="ev")
    app.add_typer(port_commands(), name="port")
    app.add_typer(lab_commands(), name="lab")
    return app


def _print_version(asked: bool) -> None:
    if asked:
        stdout().print(f"testbed {installation.describe_version()}", markup=False)
        raise typer.Exit


def _callback(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the version and its commit, and exit.",
        ),
    ] = False,
) -> None:
    """Run MRC over SRv6 on an emulated multi-plane Clos fabric, and measure what happens."""
    fast.check()


def _show_unexpected(error: Exception) -> NoReturn:
    try:
        place = str(_keep_traceback())
    except OSError:  # nowhere to write
        place = traceback.format_exc()
    print_error(f"{type(error).__name__}: {error}\n  traceback: {place}")
    sys.exit(ExitStatus.CRASHED)


def _keep_traceback() -> Path:
    handle, name = tempfile.mkstemp(prefix="testbed-", suffix=".log", text=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exc(file=file)
    return Path(name)
