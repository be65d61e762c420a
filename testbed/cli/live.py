"""The options with which a run can be watched, and what follows from them."""

import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.screen import stderr
from testbed.model.errors import InputError, MachineError, RunFailedError, as_answer

if TYPE_CHECKING:
    from types import FrameType

    from testbed.emulation.controller.live import Client
    from testbed.emulation.experiment.experiment import Hold
    from testbed.live.emulated import EmulationWatcher
    from testbed.live.serving import Asked, Listening, Reply
    from testbed.model.fabric.topology import Topology
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory

Live = Annotated[
    bool,
    typer.Option("--live", help="Show the run in a browser; it goes on until it is ended there."),
]
Port = Annotated[
    str,
    typer.Option(
        "--port",
        metavar="[ADDRESS:]PORT",
        help="TCP port of the page; 0: any free one. With an ADDRESS of this machine, others reach "
        "it too; only who is given the whole address of the page can open it.",
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="No buttons: the page cannot break or end anything.")
]
Packets = Annotated[
    str | None,
    typer.Option(
        metavar="SRC,DST",
        help="Show each packet of this flow, such as h0,h4; default: of the first flow.",
    ),
]


_LARGEST_PORT = 65535


def listening(port: str, *, read_only: bool) -> "Listening":
    """Where the page is served.

    Args:
        port: the value of `--port`.
        read_only: whether the page only shows.

    Raises:
        InputError: it is no port.
        MachineError: what serves it is not installed.
    """
    host, _, number = port.rpartition(":")
    is_port = re.fullmatch(r"[0-9]{1,5}", number) and int(number) <= _LARGEST_PORT
    if not is_port or host in {"0.0.0.0", "[::]"}:  # noqa: S104
        expected = f"a TCP port (0 to {_LARGEST_PORT}), or one with an IPv4 address of this machine"
        raise InputError.of("--port", port, expected, "such as 8080 or 192.0.2.1:8080")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        remedy = "pip install 'mrc-testbed[live]'; testbed replay --export works without it"
        raise MachineError(
            f"no page can be served: {error.name} is not installed", remedy
        ) from None
    from testbed.live.serving import LOOPBACK, Listening

    return Listening(host=host or LOOPBACK, port=int(number), read_only=read_only)


@dataclass(frozen=True, slots=True)
class Watch:
    """How a run is watched.

    Attributes:
        where: where the page is served; None: the run is not watched.
        packets: the flow whose packets are shown, as the user named it; None: the first.
    """

    where: "Listening | None"
    packets: str | None

    def require_single(self, *, several: bool) -> None:
        """Check that only one run is to be watched.

        Raises:
            InputError: there are several.
        """
        if self.where is not None and several:
            raise InputError.of("--live", "several runs", "one run")

    def check_packets(self, scenario: "Scenario") -> None:
        """Check, before a run begins, that the packets of that flow can be shown.

        Raises:
            InputError: the run is too fast, or has no such flow.
        """
        if self.packets is None:
            return
        from testbed.live.stream.measures import flow_in_slow_motion

        flow_in_slow_motion(scenario, self.packets, live=True)


def watch_options(
    live: Live = False,
    port: Port = "0",
    read_only: ReadOnly = False,
    packets: Packets = None,
) -> Watch:
    """Read the options.

    Raises:
        InputError: one is wrong, or only makes sense with `--live`.
        MachineError: what serves the page is not installed.
    """
    if packets is not None and not live:
        raise InputError.of("--packets", packets, "a run with --live", "testbed replay --packets")
    return Watch(listening(port, read_only=read_only) if live else None, packets)


def print_address(address: str, port: int, what: str = "Watch it live") -> None:
    """Tell where the page is, here and from another machine."""
    console = stderr()
    console.print(f"{what}: {address}")
    if "://127." in address:
        name = socket.gethostname()
        console.print(f"from another machine first: ssh -L {port}:127.0.0.1:{port} {name}")


@contextmanager
def watching_prompt(
    topology: "Topology", directory: "RunDirectory", where: "Listening"
) -> Iterator[None]:
    """Watch a fabric with a prompt, which is built within the block."""
    from testbed.live.emulated import EmulationWatcher

    ask = partial(ask_controller, directory.path)
    with _watching(EmulationWatcher(topology, directory.path, where, ask, lambda: None), directory):
        yield


@contextmanager
def watching_emulated(
    scenario: "Scenario",
    directory: "RunDirectory",
    where: "Listening",
    hold: "Hold",
    packets: str | None = None,
) -> Iterator[None]:
    """Watch an emulated run that is made and analysed within the block."""
    from testbed.live.emulated import EmulationWatcher
    from testbed.live.stream.measures import flow_in_slow_motion

    ask = partial(ask_controller, directory.path)
    slow_flow = flow_in_slow_motion(scenario, packets, live=True)
    watched = EmulationWatcher(scenario, directory.path, where, ask, hold.end, slow_flow=slow_flow)
    with _watching(watched, directory):
        yield


@contextmanager
def _watching(watched: "EmulationWatcher", directory: "RunDirectory") -> Iterator[None]:
    """Watch from a process of its own while the block runs."""
    process = watched.start(directory.logs)
    try:
        address = process.receive(_STARTS_S)
        process.check()
        for message in address:
            print_address(message["address"], message["port"])
        yield
    finally:
        with suppress(ConnectionError, RunFailedError):
            process.send({"finish": True})
            process.ends_within(_ENDS_S)
        process.kill()
        process.close()


_STARTS_S = 10.0
_ENDS_S = 10.0


def ask_controller(
    directory: Path, method: str, path: str, body: str, reply: "Reply"
) -> "Asked | None":
    """Pass a request on to the controller of a run."""
    from testbed.emulation.controller.live import Client, socket_of

    try:
        asked = _AskedController(Client(socket_of(directory)), reply)
        asked.client.ask(method, path, body)
    except InputError as error:
        reply((HTTPStatus.CONFLICT, as_answer(*error.problems)))
        return None
    except RunFailedError as error:
        reply(_failed(error))
        return None
    return asked


def _failed(error: RunFailedError) -> tuple[int, dict[str, str]]:
    return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)}


@dataclass(frozen=True, slots=True, eq=False)
class _AskedController:
    """A request to a controller, and what takes its answer."""

    client: "Client"
    reply: "Reply"

    def fileno(self) -> int:
        return self.client.fileno()

    def finish(self) -> None:
        with self.client:
            try:
                self.reply(self.client.answer())
            except RunFailedError as error:
                self.reply(_failed(error))


@contextmanager
def ending_on_ctrl_c(end: Callable[[], None]) -> Iterator[None]:
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
