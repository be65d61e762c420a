"""The command line `testbed`: one module for each subcommand."""

import errno
import gc
import io
import os
import pkgutil
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.core import TyperGroup

from testbed import fast, installation
from testbed.cli.clean import clean
from testbed.cli.compare import compare
from testbed.cli.device import device
from testbed.cli.doctor import doctor
from testbed.cli.fault import commands as fault_commands
from testbed.cli.new import new
from testbed.cli.operating import ev_commands, port_commands, run_mode
from testbed.cli.perftest import write_bw, write_lat
from testbed.cli.replay import replay
from testbed.cli.run import run, simulate
from testbed.cli.screen import print_error, print_failure, stdout
from testbed.cli.shell import shell
from testbed.cli.summary import report
from testbed.cli.topo import paths, topo, trace
from testbed.cli.validate import list_, schema, validate
from testbed.cli.watch import watch
from testbed.model.errors import ExitStatus, InputError, MachineError, TestbedError
from testbed.model.file_names import NOT_USABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer._click import Context, HelpFormatter
    from typing_extensions import Buffer

__all__ = ["PURPOSES", "command_line", "main"]

PURPOSES = "Run", "Look at runs", "Look at a fabric", "Break by hand", "Learn", "Judge", "Machine"
"""What commands are for, in the order of the help."""


def main() -> None:
    """Run the command line; an error becomes a message and an exit status."""
    output = _use_standard_streams()
    installation.use_libraries()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads must not fork
    try:
        try:
            _require_text()
            command_line()(prog_name="testbed")
        finally:
            gc.freeze()  # spares a collection of all objects at exit: 0.3 s after a run
            sys.stdout.flush()  # here, where a closed pipe is handled
    except TestbedError as error:
        print_failure(error)
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        missing = installation.missing_emulation(error)
        if missing is None:
            _show_unexpected(error)
        print_error(missing)
        sys.exit(ExitStatus.MACHINE_CANNOT)
    except Exception as error:  # noqa: BLE001 - the last resort: a short message, and the traceback
        if output.error is None:
            if (refused := _refused(error)) is None:
                _show_unexpected(error)
            print_failure(refused)
            sys.exit(refused.exit_status)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(output.error, BrokenPipeError):  # its reader has seen enough
            sys.exit(ExitStatus.FAILED)
        print_error(f"standard output cannot be written to: {output.error.strerror}")
        sys.exit(ExitStatus.MACHINE_CANNOT)


def _use_standard_streams() -> "_Output":
    """Be able to print whatever the three streams are; return the file of standard output.

    One that is closed leads nowhere. What a screen in another encoding than UTF-8 lacks becomes its
    code. What cannot be told on standard error does not end a run.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the place of the one that is closed
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - for good
    output, errors = _Output(1, is_needed=True), _Output(2, is_needed=False)
    encoding = getattr(sys.stdout, "encoding", "utf-8")
    for name, raw in (("stdout", output), ("stderr", errors)):
        if getattr(sys, name) is not getattr(sys, f"__{name}__"):  # whoever calls this has others
            continue
        by_line = raw.isatty() or raw is errors
        buffer = io.BufferedWriter(raw)
        text = io.TextIOWrapper(
            buffer, encoding=encoding, errors="backslashreplace", line_buffering=by_line
        )
        setattr(sys, name, text)
    return output


class _Output(io.FileIO):
    """The file of an output stream.

    Attributes:
        error: why it cannot be written to; None if it can.
    """

    def __init__(self, number: int, *, is_needed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.error: OSError | None = None
        self._is_needed = is_needed

    def write(self, content: "Buffer", /) -> int:
        """Write; where that fails and the stream is not needed, nobody can be told."""
        try:
            return super().write(content) or 0
        except OSError as error:
            self.error = error
            if self._is_needed:
                raise
            return memoryview(content).nbytes


def _require_text() -> None:
    """Check that the arguments can be written into files and shown, and that there is a directory.

    Raises:
        InputError: one has bytes that are not UTF-8, or the working directory was removed.
    """
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError:
            found = os.fsencode(argument).decode(errors="backslashreplace")
            raise InputError.of("command line", found, "text in UTF-8") from None
    try:
        os.getcwd()  # noqa: PTH109 - not its name is wanted
    except OSError as error:
        found, remedy = str(error.strerror).lower(), "cd to another one"
        raise InputError.of("working directory", found, "one that exists", remedy) from None


class _ByPurpose(TyperGroup):
    """The commands, listed by what they are for."""

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:  # noqa: ARG002
        """Write a list for each purpose, all of one width."""
        widest = max(map(len, self.commands))
        rows: dict[str, list[tuple[str, str]]] = {purpose: [] for purpose in PURPOSES}
        for name, command in self.commands.items():
            row = name.ljust(widest), command.get_short_help_str(limit=70)
            rows[vars(command)["rich_help_panel"]].append(row)
        for purpose, of_purpose in rows.items():
            with formatter.section(purpose):
                formatter.write_dl(of_purpose)


def command_line() -> typer.Typer:
    """Build the command line; each folder of `studies/` adds its own commands."""
    app = typer.Typer(
        help="Run MRC over SRv6 on an emulated multi-plane Clos fabric, and measure what happens.",
        cls=_ByPurpose,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_callback)
    commands: dict[str, tuple[Callable[..., None], ...]] = {
        "Run": (new, run, simulate, device, shell, write_bw, write_lat),
        "Look at runs": (watch, replay, report, compare),
        "Look at a fabric": (list_, validate, schema, topo, paths, trace),
        "Machine": (doctor, clean),
    }
    for purpose, functions in commands.items():
        for function in functions:
            name = function.__name__.strip("_").replace("_", "-")
            app.command(name, rich_help_panel=purpose)(function)
    evs = ev_commands()
    evs.command("run")(run_mode)
    by_hand = {"fault": fault_commands(), "port": port_commands(), "ev": evs}
    for name, group in by_hand.items():
        app.add_typer(group, name=name, rich_help_panel="Break by hand")
    for study in pkgutil.iter_modules([str(Path(__file__).parents[1] / "studies")]):
        import_module(f"testbed.studies.{study.name}.commands").register(app)
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


_LACKS = {
    errno.ENOSPC: "free some, or write elsewhere",
    errno.EDQUOT: "free some, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EFBIG: "raise the limit of the size of files: ulimit -f unlimited",
    errno.EMFILE: "raise the limit of open files: ulimit -n 65536",
    errno.ENFILE: "raise the limit of open files of this machine",
    errno.EIO: "look at this disk",
    errno.ESTALE: "mount its file system again",
}
"""What to do about errors of the system that no program can prevent."""


def _refused(error: Exception) -> TestbedError | None:
    """The error to show where the system refuses a path, or has no more of something.

    It is wrong input if an argument names the path or one above or below it, or if it is around the
    working directory; otherwise it is a matter of the machine.
    """
    if isinstance(error, MemoryError):
        return MachineError("memory ran out", "something smaller, or a higher limit of memory")
    if not isinstance(error, OSError):
        return None
    reason = str(error.strerror).lower()
    if error.errno in _LACKS:
        where = f"{error.filename}: " if error.filename else ""
        return MachineError(f"{where}{reason}", _LACKS[error.errno])
    if error.errno not in NOT_USABLE or not isinstance(error.filename, str | bytes):
        return None
    path = Path(os.fsdecode(error.filename)).absolute()
    for named in (*filter(None, sys.argv[1:]), ""):
        place = Path(named.rpartition("=")[2]).absolute()
        if path.is_relative_to(place) or place.is_relative_to(path):
            return InputError.of(str(path), reason, "a path that may be entered, read and written")
    return MachineError(f"{path}: {reason}", "change who may use it, or name another place")


def _show_unexpected(error: Exception) -> NoReturn:
    text = "".join(traceback.format_exception(error))
    print_error(f"{type(error).__name__}: {error}\n{text}")
    sys.exit(ExitStatus.CRASHED)
