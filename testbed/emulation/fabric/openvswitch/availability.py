"""Whether Open vSwitch runs on this machine, found out by starting it in a throwaway sandbox."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.emulation.fabric.openvswitch.switch import (
    DATAPATHS,
    REMEDY,
    RUN_DIRECTORY,
    OpenVSwitch,
    find_programs,
)
from testbed.model.errors import MachineError, RunFailedError
from testbed.sandbox.processes import ProcessFailedError, spawn


@dataclass(frozen=True, slots=True)
class Availability:
    """The result of starting Open vSwitch.

    Attributes:
        datapath: `system` (the kernel's) or `netdev` (user space); None if it does not run here.
        reason: why it does not.
        remedy: what to do about it.
    """

    datapath: str | None
    reason: str = ""
    remedy: str = ""


def available(datapaths: Sequence[str] = DATAPATHS) -> Availability:
    """Find out whether Open vSwitch runs here. Takes about 0.3 s and needs root.

    Args:
        datapaths: the datapaths to try, the preferred one first.
    """
    with trial(datapaths) as answer:
        return answer()


@contextmanager
def trial(datapaths: Sequence[str] = DATAPATHS) -> Iterator[Callable[[], Availability]]:
    """Find out the same while the block does something else.

    Yields a function that waits for the answer; call it once at most, in the block. If it is not
    called, the trial ends with the block.
    """
    missing = find_programs()[1]
    if missing:
        yield lambda: Availability(None, f"not installed: no {', '.join(missing)}", REMEDY)
        return
    with spawn(lambda _: _try_to_start(datapaths)) as sandbox:

        def answer() -> Availability:
            try:
                return Availability(*sandbox.result())
            except ProcessFailedError:
                return Availability(None, "namespaces cannot be made", "run as root")

        yield answer


def _try_to_start(datapaths: Sequence[str]) -> tuple[str | None, ...]:
    """Start it, with logs in the sandbox's private /run; returns the fields of `Availability`."""
    directory = RUN_DIRECTORY.parent
    try:
        return (OpenVSwitch.start((), directory, datapaths=datapaths).datapath,)
    except (MachineError, RunFailedError, OSError) as error:
        return None, str(error).split("\n", maxsplit=1)[0], _last_complaint(directory)


def _last_complaint(log_directory: Path) -> str:
    """The last warning or error in a daemon's log."""
    lines = [
        line
        for log in log_directory.glob("*.log")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if "|ERR|" in line or "|WARN|" in line
    ]
    return f"ovs-vswitchd says: {lines[-1]}" if lines else REMEDY
