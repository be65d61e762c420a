"""perftest's options, which the programs in a host and the commands outside share."""

from typing import Annotated, NamedTuple

import typer

from testbed.emulation.perftest.parameters import ALL_SIZES, Parameters, Show, Tool, size_of

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
