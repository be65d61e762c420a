"""What every command that makes a run shares: its inputs checked, its end told, however it ends."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.cli.screen import say_error, say_warning
from testbed.model.errors import (
    InputError,
    LateError,
    MachineError,
    RunFailedError,
    TestbedError,
)
from testbed.sandbox.processes import ENDING_SIGNALS, SIGNALLED

if TYPE_CHECKING:
    from testbed.campaign.series import Settings
    from testbed.files.scenarios import Dilation
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory

_MANIFEST = "manifest.json"
"""What is known before anything has run."""


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
        say_warning(f"{name}: {remark}")
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
def told_what_is_kept(directory: "RunDirectory") -> Iterator[None]:
    """Where the run does not end well, say what is left of it; nothing is where nothing ran."""
    try:
        yield
    except _Stopped as stopped:
        say_error(f"interrupted by {signal.Signals(stopped.number).name}; {_left(directory)}")
        raise typer.Exit(SIGNALLED + stopped.number) from None
    except LateError as error:
        directory.remove()
        say_error(f"{error}\n  nothing of it is kept")
        raise typer.Exit(error.exit_status) from None
    except TestbedError as error:
        say_error(f"{error}\n  {_left(directory)}")
        raise typer.Exit(error.exit_status) from None
    except Exception as error:
        place = directory.write("logs/traceback.log", traceback.format_exc())
        raise RunFailedError(
            f"{type(error).__name__}: {error}\n  traceback: {place}\n  {_left(directory)}"
        ) from error


@contextmanager
def told_how_to_continue(how: str) -> Iterator[None]:
    """Where a series of runs is stopped, say how it goes on."""
    try:
        yield
    except _Stopped as stopped:
        name = signal.Signals(stopped.number).name
        say_error(f"interrupted by {name}; {how} makes the runs that are left")
        raise typer.Exit(SIGNALLED + stopped.number) from None


def _left(directory: "RunDirectory") -> str:
    directory.give_to_user()
    if directory.complete:
        return f"all of its records are kept: testbed report {directory.path}"
    files = (path for path in directory.path.rglob("*") if path.is_file())
    if any(path.stat().st_size for path in files if path.name != _MANIFEST):
        return f"kept so far (testbed clean removes it): {directory.path}"
    directory.remove()
    return "nothing was recorded, nothing is kept"
