"""`testbed run`: one experiment from its file to its report."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from testbed.cli.clean import is_complete, remove
from testbed.cli.locking import held
from testbed.cli.options import Json, Results
from testbed.cli.screen import progress_shown, say_error, say_json, say_warning, stdout
from testbed.cli.summary import exit_status, show
from testbed.model.errors import InputError, MachineError, Problem, RunFailedError, TestbedError

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.results.summary import Summary

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MANIFEST = "manifest.json"
"""What is known before anything has run."""

_SIGNALLED = 128
"""Added to a signal's number it makes the exit status, as shells do it."""


class _Stopped(KeyboardInterrupt):
    """A signal asks the run to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario's name or file.")],
    results: Results = Path("results"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of the scenario's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a scenario and write its report (root).

    Exit status: 0 as expected, 1 data was lost or corrupted, 2 wrong input, 3 this machine cannot
    run it, 4 the run cannot be trusted, 130 interrupted.
    """
    from testbed.loading import load_scenario
    from testbed.model.checks import buffer_bytes, remarks
    from testbed.results.run_directory import RunDirectory

    scenario = load_scenario(name)
    if seed is not None:
        _require_seed(seed)
        scenario = scenario.model_copy(update={"seed": seed})
    for remark in remarks(scenario):
        say_warning(f"{name}: {remark}")
    _require_memory(buffer_bytes(scenario))
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, scenario.name, scenario.seed, started)
    with _signals_stop(), held(directory.path), _told_what_is_kept(directory):
        summary = _run(scenario, directory)
    if as_json:
        run = {"run": str(directory.path), "exit_status": int(exit_status(summary))}
        say_json({**run, "summary": summary.model_dump(mode="json")})
    else:
        show(summary, directory, stdout())
    raise typer.Exit(exit_status(summary))


def _run(scenario: "Scenario", directory: "RunDirectory") -> "Summary":
    from testbed.experiment import run_experiment
    from testbed.results.analyse import analyse

    with progress_shown() as progress:
        run_experiment(scenario, directory.path, progress)
        progress("analysing", 1.0)
        return analyse(directory.path)


def _require_seed(seed: int) -> None:
    from testbed.model.scenario import MAX_SEED

    if not 0 <= seed <= MAX_SEED:
        raise InputError([Problem("--seed", str(seed), f"a whole number from 0 to {MAX_SEED}")])


def _require_memory(needed: int) -> None:
    from testbed.model.units import show_size

    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    known = dict(line.split(":") for line in lines)
    available = int(known["MemAvailable"].removesuffix("kB")) * 1024
    if needed > available:
        raise MachineError(
            f"the messages of this scenario take {show_size(needed)} of memory, "
            f"{show_size(available)} are available",
            "fewer pairs, a smaller message_size or depth, or a machine with more memory",
        )


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP end the run in order; what is ignored stays so (nohup)."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise _Stopped(number)

    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _told_what_is_kept(directory: "RunDirectory") -> Iterator[None]:
    """Where the run does not end well, say what is left of it; nothing is where nothing ran."""
    try:
        yield
    except _Stopped as stopped:
        say_error(f"interrupted by {signal.Signals(stopped.number).name}; {_left(directory)}")
        raise typer.Exit(_SIGNALLED + stopped.number) from None
    except TestbedError as error:
        say_error(f"{error}\n  {_left(directory)}")
        raise typer.Exit(error.exit_status) from None
    except Exception as error:
        place = directory.write("logs/traceback.log", traceback.format_exc())
        raise RunFailedError(
            f"{type(error).__name__}: {error}\n  traceback: {place}\n  {_left(directory)}"
        ) from error


def _left(directory: "RunDirectory") -> str:
    directory.give_to_user()
    if is_complete(directory):
        return f"all of its records are kept: testbed report {directory.path}"
    files = (path for path in directory.path.rglob("*") if path.is_file())
    if any(path.stat().st_size for path in files if path.name != _MANIFEST):
        return f"kept so far (testbed clean removes it): {directory.path}"
    remove(directory)
    return "nothing was recorded, nothing is kept"
