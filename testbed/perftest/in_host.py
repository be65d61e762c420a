"""`write_bw` and `write_lat` in a host of a fabric: `h4 write_bw &`, then `h0 write_bw h4`."""

import gc
import sys
from typing import Annotated

import typer

from testbed.endpoint.device import open_device
from testbed.endpoint.rendezvous import PORT, host_called
from testbed.model.errors import TestbedError
from testbed.perftest import options
from testbed.perftest.ends import call, serve
from testbed.perftest.parameters import Parameters, Tool
from testbed.perftest.results import Show, heading, lateness

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


def _bandwidth(
    server: Server = None,
    size: options.BandwidthSize = options.BANDWIDTH_SIZE,
    iters: options.Iters = options.BANDWIDTH_ITERS,
    all_sizes: options.All = False,
    qp: options.Qps = 1,
    tx_depth: options.TxDepth = options.TX_DEPTH,
    bidirectional: options.Bidirectional = False,
    report_gbits: options.ReportGbits = False,
    as_json: options.Json = False,
    port: Port = PORT,
) -> None:
    """RDMA WRITEs one after another: bandwidth. The end that listens follows the caller."""
    sizes = options.sizes(size, all_sizes=all_sizes)
    parameters = Parameters(Tool.BANDWIDTH, sizes, iters, qp, tx_depth, bidirectional)
    _run(server, port, parameters, Show(report_gbits, as_json))


def _latency(
    server: Server = None,
    size: options.LatencySize = options.LATENCY_SIZE,
    iters: options.Iters = options.LATENCY_ITERS,
    all_sizes: options.All = False,
    as_json: options.Json = False,
    port: Port = PORT,
) -> None:
    """An RDMA WRITE to and fro: half its round trip. The end that listens follows the caller."""
    sizes = options.sizes(size, all_sizes=all_sizes)
    _run(server, port, Parameters(Tool.LATENCY, sizes, iters), Show(as_json=as_json))


def _run(server: str | None, port: int, parameters: Parameters, show: Show) -> None:
    gc.freeze()
    gc.disable()  # nothing here makes cycles; a collection would stop the device at a bad moment
    with open_device() as device:
        if server is None:
            serve(device, port)
            return
        topology, src = device.topology, device.host
        dst = host_called(topology, server)
        if not show.as_json:
            _print(heading(parameters, topology, src, dst))
        rows = call(device, dst, port, parameters)
        _print(show.text(rows, topology, src, dst))
        if remark := lateness(device.late, device.arrived):
            sys.stderr.write(f"warning: {remark}\n")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _main(command: options.Command) -> None:
    """Run a program of one command; every error becomes a message and an exit status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(command)
    try:
        app()
    except TestbedError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
    except (ConnectionError, TimeoutError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
