"""`write_bw` and `write_lat` in a host of a fabric: `h4 write_bw &`, then `h0 write_bw h4`."""

import os
import sys
from typing import Annotated

import typer

from testbed.command_options import Command, with_options
from testbed.device.client import open_device, plain_errors
from testbed.device.rendezvous import PORT
from testbed.emulation.perftest import parameters
from testbed.emulation.perftest.ends import as_text, call, heading, lateness, serve
from testbed.emulation.perftest.parameters import Parameters, Show
from testbed.limits import available_memory
from testbed.model.errors import InputError, MachineError
from testbed.model.fabric.addressing import management_address, ordinary_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.sandbox.namespaces import TOPOLOGY_FILE

Server = Annotated[
    str | None, typer.Argument(help="The host that the other end runs in; none: be that end.")
]
Port = Annotated[int, typer.Option("--port", "-p", help="Where the two ends meet, TCP.")]


def write_bw() -> None:
    _main(_bandwidth)


def write_lat() -> None:
    _main(_latency)


@with_options(parameters.bandwidth, "measurement")
def _bandwidth(
    server: Server = None, *, measurement: parameters.Request, port: Port = PORT
) -> None:
    """RDMA WRITEs one after another: bandwidth. The server follows the client."""
    _measure(server, *measurement, port)


@with_options(parameters.latency, "measurement")
def _latency(server: Server = None, *, measurement: parameters.Request, port: Port = PORT) -> None:
    """Half the round trip of an RDMA WRITE there and back. The server follows the client."""
    _measure(server, *measurement, port)


def measure(server: str | None, parameters: Parameters, show: Show) -> int:
    """Measure from the host that this process is in; return the exit status.

    Args:
        server: the host of the other end; None: be that end.
        parameters: what is measured; the client decides.
        show: how the client prints it.
    """
    try:
        with plain_errors():
            _measure(server, parameters, show, PORT)
    except SystemExit as ended:
        return int(ended.code or 0)
    return os.EX_OK


def _measure(server: str | None, parameters: Parameters, show: Show, port: int) -> None:
    if server is not None:
        parameters.require_memory(available_memory())
    device = open_device()  # never closed: that would show once more what is at full speed
    if server is None:
        serve(device, port)
        return
    topology, src = _fabric(), device.host
    dst = _find_host(topology, server)
    if not show.as_json:
        _print(heading(parameters, topology, src, dst))
    rows = call(device, server, port, parameters)
    _print(as_text(rows, show, topology, src, dst))
    if remark := lateness(*device.lateness()):
        sys.stderr.write(f"warning: {remark}\n")


def _fabric() -> Topology:
    try:
        return Topology.model_validate_json(TOPOLOGY_FILE.read_text(encoding="utf-8"))
    except OSError as error:
        missing = "the hosts of a simulated fabric do not know it"
        raise MachineError(missing, "testbed shell, and write_bw at its prompt") from error


def _find_host(topology: Topology, name: str) -> Node:
    """The host with that name or address.

    Raises:
        InputError: there is none.
    """
    for host in topology.hosts:
        addresses = ordinary_address(topology, host, 0), management_address(host)
        if name in (host.name, *map(str, addresses)):
            return host
    expected = f"a host of {topology.name}, such as {topology.hosts[-1].name}"
    raise InputError.of("SERVER", name, expected)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _main(command: Command) -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    with plain_errors():
        app()
