"""`testbed write-bw` and `testbed write-lat`: perftest's measurements in a new fabric."""

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import TopologyName, hosts_named
from testbed.command_options import with_options
from testbed.emulation.perftest import parameters
from testbed.model.errors import InputError

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology

Src = Annotated[str | None, typer.Option("--src", metavar="HOST", help="The client.")]
Dst = Annotated[str | None, typer.Option("--dst", metavar="HOST", help="The server.")]


@with_options(parameters.bandwidth, "measurement")
def write_bw(
    topology: TopologyName = "clos-4plane",
    src: Src = None,
    dst: Dst = None,
    *,
    measurement: parameters.Request,
) -> None:
    """Measure the bandwidth of WRITEs, as ib_write_bw does (root).

    Without --src and --dst it measures between two hosts of a rack and between two racks. The
    program is also in testbed shell: h4 write_bw &, then h0 write_bw h4.
    """
    _measure(topology, src, dst, measurement)


@with_options(parameters.latency, "measurement")
def write_lat(
    topology: TopologyName = "clos-4plane",
    src: Src = None,
    dst: Dst = None,
    *,
    measurement: parameters.Request,
) -> None:
    """Measure the latency of a WRITE, as ib_write_lat does (root).

    Without --src and --dst it measures between two hosts of a rack and between two racks. The
    program is also in testbed shell: h4 write_lat &, then h0 write_lat h4.
    """
    _measure(topology, src, dst, measurement)


def _measure(
    topology: str, src: str | None, dst: str | None, measurement: parameters.Request
) -> None:
    from testbed.emulation.fabric.capabilities import require
    from testbed.emulation.perftest.pair import measure
    from testbed.model.files.topologies import load_topology

    fabric = load_topology(topology)
    pairs = _pairs(fabric, src, dst)
    require()
    raise typer.Exit(measure(fabric, pairs, measurement))


def _pairs(topology: "Topology", src: str | None, dst: str | None) -> "list[tuple[Node, Node]]":
    """The pair of hosts named, or a pair within the first rack and one to the last rack.

    Raises:
        InputError: a name is not a host's, only one host is named, or both are the same.
    """
    if src is not None and dst is not None:
        a, b = hosts_named(topology, **{"--src": src, "--dst": dst})
        return [(a, b)]
    if src is not None or dst is not None:
        missing = "--src" if src is None else "--dst"
        raise InputError.of(missing, "nothing", "both --src and --dst, or neither")
    first = topology.hosts[0]
    others = {topology.rack(host): host for host in reversed(topology.hosts[1:])}
    return [(first, others[rack]) for rack in sorted(others) if rack in (0, max(others))]
