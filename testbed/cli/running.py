"""What every command that makes a run shares: its inputs checked, its end told, however it ends."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.cli.screen import print_error, print_warning, showing_progress
from testbed.model.errors import (
    InputError,
    LateError,
    MachineError,
    RunFailedError,
    TestbedError,
)
from testbed.model.run_files.layout import MANIFEST
from testbed.sandbox.processes import ENDING_SIGNALS, SIGNALLED

if TYPE_CHECKING:
    from testbed.campaign.series import Settings
    from testbed.experiment.capacity import Capacity
    from testbed.files.scenarios import Dilation
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory


class _Stopped(KeyboardInterrupt):
    """A signal asks the run to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def require_seed(seed: int) -> None:
    """Check a seed given on the command line.

    Raises:
        InputError: it is out of range.
    """
    from testbed.model.scenario import MAX_SEED

    if not 0 <= seed <= MAX_SEED:
        raise InputError.of("--seed", str(seed), f"a whole number from 0 to {MAX_SEED}")


def scenario_given(
    name: str, dilation: "Dilation", settings: "Settings", swept: "Settings", seed: int | None
) -> "Scenario":
    """Load a scenario with what the command line has instead of the file's; warn of what is odd.

    Raises:
        InputError: there is none of that name, or it or what was given is wrong.
    """
    from testbed.files.scenarios import load_scenario
    from testbed.model.checks import remarks

    scenario = load_scenario(name, dilation, settings, swept)
    if seed is not None:
        require_seed(seed)
        scenario = scenario.model_copy(update={"seed": seed})
    for remark in remarks(scenario):
        print_warning(f"{name}: {remark}")
    return scenario


def require_memory(needed: int) -> None:
    """Check that so many bytes of memory are available.

    Raises:
        MachineError: they are not.
    """
    from testbed.experiment.footprint import available_memory
    from testbed.model.units import show_size

    available = available_memory()
    if needed > available:
        raise MachineError(
            f"the messages of this scenario take {show_size(needed)} of memory, "
            f"{show_size(available)} are available",
            "fewer pairs, a smaller message_size or depth, or a machine with more memory",
        )


@contextmanager
def signals_stop() -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP end the run in order; what is ignored stays so (nohup)."""

    def stop(number: int, _: FrameType | None) -> NoReturn:
        raise _Stopped(number)

    heard = [number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def reporting_kept_files(directory: "RunDirectory") -> Iterator[None]:
    """Where the run does not end well, say what is left of it; nothing is where nothing ran."""
    try:
        yield
    except _Stopped as stopped:
        print_error(f"interrupted by {signal.Signals(stopped.number).name}; {_left(directory)}")
        raise typer.Exit(SIGNALLED + stopped.number) from None
    except LateError as error:
        directory.remove()
        print_error(f"{error}\n  nothing of it is kept")
        raise typer.Exit(error.exit_status) from None
    except TestbedError as error:
        print_error(f"{error}\n  {_left(directory)}")
        raise typer.Exit(error.exit_status) from None
    except Exception as error:
        place = directory.write("logs/traceback.log", traceback.format_exc())
        raise RunFailedError(
            f"{type(error).__name__}: {error}\n  traceback: {place}\n  {_left(directory)}"
        ) from error


@contextmanager
def reporting_how_to_resume(how: str) -> Iterator[None]:
    """Where a series of runs is stopped, say how it goes on."""
    try:
        yield
    except _Stopped as stopped:
        name = signal.Signals(stopped.number).name
        print_error(f"interrupted by {name}; {how} makes the runs that are left")
        raise typer.Exit(SIGNALLED + stopped.number) from None


def _left(directory: "RunDirectory") -> str:
    directory.give_to_user()
    if directory.complete:
        return f"all of its records are kept: testbed report {directory.path}"
    files = (path for path in directory.path.rglob("*") if path.is_file())
    if any(path.stat().st_size for path in files if path.name != MANIFEST):
        return f"kept so far (testbed clean removes it): {directory.path}"
    directory.remove()
    return "nothing was recorded, nothing is kept"


def machine_capacity() -> "Capacity | None":
    """What this machine carries, measured now if it never was; None if that broke off.

    Raises:
        MachineError: this machine cannot run the testbed.
    """
    from testbed.experiment.capacity import kept
    from testbed.fabric.capabilities import require

    known = kept()
    if known is not None:
        return known
    require()
    try:
        return measure_capacity()
    except RunFailedError as error:
        print_warning(f"what this machine carries is not known: {error}")
        return None


def measure_capacity() -> "Capacity":
    """Measure what this machine carries, and keep it."""
    from testbed.experiment.calibration import calibrate
    from testbed.experiment.capacity import keep

    with showing_progress() as progress:
        capacity = calibrate(lambda _, done: progress("measuring what this machine carries", done))
    keep(capacity)
    return capacity
