"""perftest's options, where the programs in a host and the commands outside share them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from testbed.perftest.parameters import ALL_SIZES

Command = Callable[..., Any]

BANDWIDTH_SIZE = 65_536
BANDWIDTH_ITERS = 500
LATENCY_SIZE = 2
LATENCY_ITERS = 100
TX_DEPTH = 128
"""perftest's own defaults, but for the iterations, 5000 and 1000 there: one takes 10,000 times
longer here."""

BandwidthSize = Annotated[int, typer.Option("--size", "-s", help="Bytes of a message.")]
LatencySize = Annotated[int, typer.Option("--size", "-s", help="Bytes of a message.")]
Iters = Annotated[int, typer.Option("--iters", "-n", help="Messages of each QP and direction.")]
All = Annotated[bool, typer.Option("--all", "-a", help="Sizes from 2 bytes to 8 MiB.")]
Qps = Annotated[int, typer.Option("--qp", "-q", help="Queue pairs.")]
TxDepth = Annotated[int, typer.Option("--tx-depth", "-t", help="Messages outstanding on a QP.")]
Bidirectional = Annotated[bool, typer.Option("--bidirectional", "-b", help="Both ends send.")]
ReportGbits = Annotated[bool, typer.Option("--report_gbits", help="Gbit/s instead of MiB/s.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a line a pair, for programs.")]


def sizes(size: int, *, all_sizes: bool) -> tuple[int, ...]:
    """The sizes that the options ask for."""
    return ALL_SIZES if all_sizes else (size,)
