"""`testbed paths`: every path between two hosts, with the address that names it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Json
from testbed.cli.screen import print_json, print_table

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology


def paths(
    topology: Annotated[str, typer.Argument(help="A topology's name or file.")],
    src: Annotated[str, typer.Argument(help="The sending host, such as h0.")],
    dst: Annotated[str, typer.Argument(help="The receiving host, such as h4.")],
    as_json: Json = False,
) -> None:
    """Show the paths between two hosts.

    For each an EV that takes it, its carrier address and the links that it crosses.
    """
    from rich.table import Table

    from testbed.files.topologies import load_topology

    fabric = load_topology(topology)
    found = _paths(fabric, *hosts_named(fabric, SRC=src, DST=dst))
    if as_json:
        print_json(found)
        return
    table = Table("path", "EV", "carrier address", "links", box=None, pad_edge=False)
    table.columns[0].style = "cyan"
    for one in found:
        table.add_row(one["path"], f"{one['ev']:#010x}", one["carrier"], " ".join(one["links"]))
    print_table(table)


def hosts_named(topology: "Topology", **names: str) -> "list[Node]":
    """The hosts that arguments name.

    Raises:
        InputError: the fabric has no such host.
    """
    from testbed.model.errors import InputError
    from testbed.model.fabric.names import unknown_host

    problems = [unknown_host(topology, where, name) for where, name in names.items()]
    wrong = [problem for problem in problems if problem is not None]
    if wrong:
        raise InputError(wrong)
    return [topology.host(int(name.removeprefix("h"))) for name in names.values()]


def _paths(topology: "Topology", src: "Node", dst: "Node") -> list[dict[str, Any]]:
    from testbed.model.fabric import addressing

    return [
        {
            "path": path.name,
            "plane": path.plane,
            "t1": path.t1,
            "ev": addressing.ev_for_path(path),
            "carrier": str(addressing.carrier(topology, src, dst, path)),
            "links": [link.name for link in addressing.links_of_path(topology, src, dst, path)],
        }
        for path in addressing.paths(topology, src, dst)
    ]
