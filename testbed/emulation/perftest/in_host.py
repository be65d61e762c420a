"""`write_bw` and `write_lat` in a host of a fabric: `h4 write_bw &`, then `h0 write_bw h4`."""

import gc
import os
import sys
from typing import Annotated, NamedTuple

import typer

from testbed.command_options import Command, with_options
from testbed.emulation.endpoint.device import open_device, plain_errors
from testbed.emulation.endpoint.rendezvous import PORT, find_host
from testbed.emulation.perftest.ends import call, serve
from testbed.emulation.perftest.parameters import ALL_SIZES, Parameters, Show, Tool, size_of
from testbed.emulation.perftest.results import as_text, heading, lateness
from testbed.limits import available_memory

# --------------------------------------------------------------------------------------------------
# perftest's options, which the programs in a host and the commands outside share.


Size = Annotated[
    int,
    typer.Option(
        "--size", "-s", metavar="BYTES", parser=size_of, help="Bytes of a message: 65536, 64K, 1M."
    ),
]
Iters = Annotated[int, typer.Option("--iters", "-n", help="Messages of each QP and direction.")]
All = Annotated[bool, typer.Option("--all", "-a", help="Sizes from 2 bytes to 8 MiB.")]
Qps = Annotated[int, typer.Option("--qp", "-q", help="Queue pairs.")]
TxDepth = Annotated[int, typer.Option("--tx-depth", "-t", help="Messages outstanding on a QP.")]
Bidirectional = Annotated[bool, typer.Option("--bidirectional", "-b", help="Both ends send.")]
ReportGbits = Annotated[bool, typer.Option("--report_gbits", help="Gbit/s instead of MiB/s.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a line a pair, for programs.")]


class Request(NamedTuple):
    """What is measured, and how it is printed."""

    parameters: Parameters
    show: Show


def bandwidth(
    size: Size = 65_536,
    iters: Iters = 500,
    all_sizes: All = False,
    qp: Qps = 1,
    tx_depth: TxDepth = 128,
    bidirectional: Bidirectional = False,
    report_gbits: ReportGbits = False,
    as_json: Json = False,
) -> Request:
    """The options of write_bw.

    The defaults are perftest's own, but for the iterations, 5000 there, and 1000 of write_lat: one
    takes 10,000 times longer here.
    """
    sizes = ALL_SIZES if all_sizes else (size,)
    parameters = Parameters(Tool.BANDWIDTH, sizes, iters, qp, tx_depth, bidirectional)
    return Request(parameters, Show(report_gbits, as_json))


def latency(
    size: Size = 2, iters: Iters = 100, all_sizes: All = False, as_json: Json = False
) -> Request:
    """The options of write_lat."""
    sizes = ALL_SIZES if all_sizes else (size,)
    return Request(Parameters(Tool.LATENCY, sizes, iters), Show(as_json=as_json))


Server = Annotated[
    str | None, typer.Argument(help="The host that the other end runs in; none: be that end.")
]
Port = Annotated[int, typer.Option("--port", "-p", help="Where the two ends meet, TCP.")]


def write_bw() -> None:
    """Run the program of that name."""
    _main(_bandwidth)


def write_lat() -> None:
    """Run the program of that name."""
    _main(_latency)


@with_options(bandwidth, "measurement")
def _bandwidth(server: Server = None, *, measurement: Request, port: Port = PORT) -> None:
    """RDMA WRITEs one after another: bandwidth. The server follows the client."""
    _measure(server, *measurement, port)


@with_options(latency, "measurement")
def _latency(server: Server = None, *, measurement: Request, port: Port = PORT) -> None:
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
    gc.freeze()
    gc.disable()  # nothing here makes cycles; a collection would stop the device at a bad moment
    with open_device() as device:
        if server is None:
            serve(device, port)
            return
        topology, src = device.topology, device.host
        dst = find_host(topology, server)
        if not show.as_json:
            _print(heading(parameters, topology, src, dst))
        rows = call(device, dst, port, parameters)
        _print(as_text(rows, show, topology, src, dst))
        if remark := lateness(device.late, device.arrived):
            sys.stderr.write(f"warning: {remark}\n")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _main(command: Command) -> None:
    """Run a program of one command."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    with plain_errors():
        app()
