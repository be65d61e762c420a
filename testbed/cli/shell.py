"""`testbed shell`: Mininet's prompt in a live fabric."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.options import Pcap
from testbed.cli.screen import stderr

if TYPE_CHECKING:
    from testbed.model.fabric.topology import Topology


def shell(
    topology: Annotated[str, typer.Argument(help="A topology's name or file.")] = "clos-4plane",
    pcap: Pcap = None,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where captures are written, one file a link.")
    ] = Path(),
) -> None:
    """Open Mininet's prompt in a live fabric (root).

    A host's commands run in it, and its ping, TCP and MPTCP cross the fabric: h0 ping h4. Commands
    may also be piped in. Everything ends with the prompt.
    """
    from testbed.controller.process import faults_by_hand
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
        status = run_shell(fabric, pcaps, console.print, beside)
    for file in pcaps.values():
        if file.exists():
            give_to_user(file)
    raise typer.Exit(status)


def pcap_files(topology: "Topology", links: list[str], directory: Path) -> dict[str, Path]:
    """The file that each captured link is written to.

    Raises:
        InputError: the fabric has no such link, or there is no such directory.
    """
    from testbed.model.errors import InputError, Problem
    from testbed.model.fabric.names import unknown_link

    problems = [unknown_link(topology, "--pcap", name) for name in links]
    if links and not directory.is_dir():
        problems.append(Problem("--directory", str(directory), "a directory"))
    wrong = [problem for problem in problems if problem is not None]
    if wrong:
        raise InputError(wrong)
    return {name: directory / f"{name}.pcap" for name in links}
