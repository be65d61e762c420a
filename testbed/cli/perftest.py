"""`testbed write-bw` and `testbed write-lat`: perftest's measurements on a fabric of their own."""

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.perftest import options
from testbed.perftest.parameters import Parameters, Tool

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology

Fabric = Annotated[str, typer.Argument(help="A topology's name or file.")]
Src = Annotated[str | None, typer.Option("--src", metavar="HOST", help="The host that calls.")]
Dst = Annotated[str | None, typer.Option("--dst", metavar="HOST", help="The host that is called.")]


def write_bw(
    topology: Fabric = "clos-4plane",
    src: Src = None,
    dst: Dst = None,
    size: options.BandwidthSize = options.BANDWIDTH_SIZE,
    iters: options.Iters = options.BANDWIDTH_ITERS,
    all_sizes: options.All = False,
    qp: options.Qps = 1,
    tx_depth: options.TxDepth = options.TX_DEPTH,
    bidirectional: options.Bidirectional = False,
    report_gbits: options.ReportGbits = False,
    as_json: options.Json = False,
) -> None:
    """Measure the bandwidth of WRITEs, as ib_write_bw does (root).

    Between neighbours below the same T0 and between racks, unless hosts are given. In testbed shell
    the program itself is there: h4 write_bw &, then h0 write_bw h4.
    """
    sizes = options.sizes(size, all_sizes=all_sizes)
    parameters = Parameters(Tool.BANDWIDTH, sizes, iters, qp, tx_depth, bidirectional)
    extra = (*(["--report_gbits"] if report_gbits else []), *(["--json"] if as_json else []))
    _measure(topology, src, dst, parameters, *extra)


def write_lat(
    topology: Fabric = "clos-4plane",
    src: Src = None,
    dst: Dst = None,
    size: options.LatencySize = options.LATENCY_SIZE,
    iters: options.Iters = options.LATENCY_ITERS,
    all_sizes: options.All = False,
    as_json: options.Json = False,
) -> None:
    """Measure the latency of a WRITE, as ib_write_lat does (root).

    Between neighbours below the same T0 and between racks, unless hosts are given. In testbed shell
    the program itself is there: h4 write_lat &, then h0 write_lat h4.
    """
    sizes = options.sizes(size, all_sizes=all_sizes)
    parameters = Parameters(Tool.LATENCY, sizes, iters)
    _measure(topology, src, dst, parameters, *(["--json"] if as_json else []))


def _measure(
    topology: str, src: str | None, dst: str | None, parameters: Parameters, *extra: str
) -> None:
    from testbed.fabric.capabilities import require
    from testbed.files.topologies import load_topology
    from testbed.perftest.pair import measure

    fabric = load_topology(topology)
    pairs = _pairs(fabric, src, dst)
    require()
    raise typer.Exit(measure(fabric, pairs, parameters, *extra))


def _pairs(topology: "Topology", src: str | None, dst: str | None) -> "list[tuple[Node, Node]]":
    """The hosts named, or the first and its neighbour, and the first and the last.

    Raises:
        InputError: one of them is no host, or only one is named.
    """
    from testbed.cli.paths import hosts_named
    from testbed.model.errors import InputError

    if src is not None and dst is not None:
        a, b = hosts_named(topology, **{"--src": src, "--dst": dst})
        if a == b:
            raise InputError.of("--dst", dst, "another host than --src")
        return [(a, b)]
    if src is not None or dst is not None:
        missing = "--src" if src is None else "--dst"
        raise InputError.of(missing, "nothing", "a host, as the other one is named")
    first = topology.hosts[0]
    others = {topology.rack(host): host for host in reversed(topology.hosts[1:])}
    return [(first, others[rack]) for rack in sorted(others) if rack in (0, max(others))]
