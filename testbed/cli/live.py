"""The options with which a run can be watched, and what follows from them."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.screen import stderr
from testbed.model.errors import InputError, MachineError

if TYPE_CHECKING:
    from types import FrameType

    from testbed.live.serving import Listening

Live = Annotated[
    bool,
    typer.Option(
        "--live", help="Show the run in a browser while it goes on, until it is told to end."
    ),
]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="TCP port of the page; 0: any free one.")
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="The page only shows: it breaks and ends nothing.")
]


def listening(port: int, *, read_only: bool) -> "Listening":
    """Where the page is served.

    Raises:
        MachineError: what serves it is not installed.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        remedy = "pip install 'mrc-testbed[live]'; testbed replay --export works without it"
        raise MachineError(
            f"no page can be served: {error.name} is not installed", remedy
        ) from None
    from testbed.live.serving import Listening

    return Listening(port=port, read_only=read_only)


def require_single(*, live: bool, several: bool) -> None:
    """Check that only one run is to be watched.

    Raises:
        InputError: there are several.
    """
    if live and several:
        raise InputError.of("--live", "several runs", "one run")


def print_address(address: str, port: int) -> None:
    """Tell where the page is, here and from another machine."""
    stderr().print(
        f"Watch it live: {address}\n"
        f"from another machine: ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}, too"
    )


@contextmanager
def ctrl_c_ends(end: Callable[[], None]) -> Iterator[None]:
    """Let the first SIGINT within the block end the run; another one stops the command."""
    usual = signal.getsignal(signal.SIGINT)

    def handle(_number: int, _frame: "FrameType | None") -> None:
        end()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
