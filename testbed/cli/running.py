"""What the commands that make runs share: the machine's capacity, signals and endings."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.cli.screen import print_error, print_warning, showing_progress
from testbed.model.errors import (
    SIGNALLED,
    ClusterLostError,
    CrashError,
    InputError,
    LateError,
    MachineError,
    TestbedError,
)
from testbed.model.run_files.layout import LOGS, MANIFEST
from testbed.sandbox.processes import ENDING_SIGNALS, signals_handled

if TYPE_CHECKING:
    from testbed.emulation.experiment.capacity import Capacity
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory


class _Stopped(KeyboardInterrupt):
    """A signal stops the run."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def signals_stop() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP stop the block, except those that are ignored (nohup).

    It goes inside of what reports the end: `reporting_kept_files`, `reporting_how_to_resume`.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> NoReturn:
        received.append(number)
        raise _Stopped(number)

    numbers = [n for n in ENDING_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    with signals_handled(numbers, stop):
        try:
            yield
        except Exception as error:
            if received:  # it was raised within a library, which made an error of its own of it
                raise _Stopped(received[0]) from error
            raise


@contextmanager
def new_run(
    scenario: "Scenario", results: Path, folder: str | None
) -> "Iterator[tuple[RunDirectory, Progress]]":
    """Make the directory of a run and lock it during the block; show progress and report failures.

    Args:
        scenario: what is run.
        results: the directory of all results.
        folder: the directory in it; None for the scenario's name.
    """
    from testbed.results.run_directory import making_run

    with (
        making_run(results, folder or scenario.name, scenario.seed) as directory,
        reporting_kept_files(directory),
        signals_stop(),
        showing_progress() as progress,
    ):
        yield directory, progress


@contextmanager
def reporting_kept_files(directory: "RunDirectory") -> Iterator[None]:
    """If the run fails or is stopped, report what is kept of it; remove it if it is empty."""
    from testbed.results.shortage import shortage

    try:
        yield
    except _Stopped as stopped:
        print_error(f"interrupted by {signal.Signals(stopped.number).name}; {_keep(directory)}")
        raise typer.Exit(SIGNALLED + stopped.number) from None
    except LateError as error:
        directory.remove()
        print_error(f"{error}\n  nothing is kept")
        raise typer.Exit(error.exit_status) from None
    except TestbedError as error:
        cause = shortage(error, directory.path)
        also = "" if cause is None else f"  {error}\n"
        print_error(f"{cause or error}\n{also}  {_keep(directory)}")
        raise typer.Exit((cause or error).exit_status) from None
    except Exception as error:
        cause = shortage(error, directory.path)
        if cause is not None:
            print_error(f"{cause}\n  {type(error).__name__}: {error}\n  {_keep(directory)}")
            raise typer.Exit(cause.exit_status) from None
        text = traceback.format_exc()
        try:
            place = str(directory.write(f"{LOGS}/traceback.log", text))
        except OSError:  # the directory is gone, for example
            place = text
        raise CrashError(
            f"{type(error).__name__}: {error}\n  traceback: {place}\n  {_keep(directory)}"
        ) from error


@contextmanager
def naming_shortage(directory: Path) -> Iterator[None]:
    """Where the block fails for want of space, memory or open files, say so.

    Raises:
        MachineError: something was short.
    """
    from testbed.results.shortage import shortage

    try:
        yield
    except (InputError, MachineError, typer.Exit):
        raise
    except Exception as error:
        cause = shortage(error, directory)
        if cause is None:
            raise
        raise cause from error


@contextmanager
def reporting_how_to_resume(how: str) -> Iterator[None]:
    """If the block is stopped, or the machine fails it, report how to make what is left of it."""
    try:
        yield
    except ClusterLostError as error:
        error.remedy = how
        raise
    except MachineError as error:
        error.remedy = f"{error.remedy}; then {how}" if error.remedy else how
        raise
    except _Stopped as stopped:
        name = signal.Signals(stopped.number).name
        print_error(f"interrupted by {name}; {how}")
        raise typer.Exit(SIGNALLED + stopped.number) from None


def _keep(directory: "RunDirectory") -> str:
    """Keep the directory of a failed run if it has any records, and return what to report."""
    if directory.complete:
        return f"its records are complete: testbed report {directory.path}"
    files = (path for path in directory.path.rglob("*") if path.is_file())
    if any(path.stat().st_size for path in files if path.name != MANIFEST):
        return f"kept so far (testbed clean removes it): {directory.path}"
    directory.remove()
    return "nothing was recorded, nothing is kept"


def machine_capacity() -> "Capacity":
    """What this machine carries, measured now if it is not known.

    Raises:
        MachineError: this machine cannot run the testbed, or not even be measured.
    """
    from testbed.emulation.experiment.capacity import load_capacity
    from testbed.emulation.fabric.capabilities import require

    capacity = load_capacity()
    if capacity is not None:
        return capacity
    require()
    return measure_capacity()


def measure_capacity() -> "Capacity":
    """Measure what this machine carries, and store it."""
    from testbed.emulation.experiment.calibration import calibrate
    from testbed.emulation.experiment.capacity import save_capacity

    with showing_progress() as progress:
        capacity = calibrate(lambda _, done: progress("measuring what this machine carries", done))
    try:
        save_capacity(capacity)
    except OSError as error:
        print_warning(f"what was measured is not kept for the next run: {error}")
    return capacity
