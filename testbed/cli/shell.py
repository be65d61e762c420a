"""`testbed shell`: Mininet's prompt in a live fabric."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.options import Pcap, TopologyName, links_named
from testbed.cli.screen import stderr
from testbed.model.errors import InputError
from testbed.model.run_files.layout import PCAP_SUFFIX

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Link
    from testbed.model.fabric.topology import Topology


def shell(
    topology: TopologyName = "clos-4plane",
    pcap: Pcap = None,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write captures, one file for each link.")
    ] = Path(),
) -> None:
    """Open Mininet's prompt in a live fabric (root).

    A command after a host's name runs in that host; its ping, TCP and MPTCP cross the fabric, such
    as h0 ping h4. Commands may also be piped in. The fabric ends with the prompt.
    """
    from testbed.controller.process import faults_by_hand
    from testbed.endpoint.clock import realtime_offset_ns
    from testbed.experiment.footprint import require_room_for_fabric
    from testbed.fabric.capabilities import require
    from testbed.fabric.mininet.shell import run_shell
    from testbed.files.topologies import load_topology
    from testbed.results.run_directory import give_to_user

    fabric = load_topology(topology)
    pcaps = pcap_files(fabric, pcap or [], directory)
    require()
    require_room_for_fabric(fabric)
    console = stderr()
    with tempfile.TemporaryDirectory(prefix="testbed-shell-") as control:
        if sys.stdin.isatty():
            print_fault_help(Path(control), fabric)
        beside = partial(faults_by_hand, fabric, Path(control))
        status = run_shell(fabric, pcaps, realtime_offset_ns(), console.print, beside)
    for file in pcaps.values():
        if file.exists():
            give_to_user(file)
    raise typer.Exit(status)


def pcap_files(topology: "Topology", places: list[str], directory: Path) -> "dict[Link, Path]":
    """The file of the capture of each link.

    Raises:
        InputError: there is no such link or no such directory.
    """
    captured = links_named(topology, places)
    if captured and not directory.is_dir():
        raise InputError.of("--directory", str(directory), "a directory")
    return {topology.links[name]: directory / f"{name}{PCAP_SUFFIX}" for name in captured}
