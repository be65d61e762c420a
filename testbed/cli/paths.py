"""`testbed paths`: all paths between two hosts, with their carrier addresses."""

from typing import TYPE_CHECKING, Any

from testbed.cli.options import Dst, Json, Src, TopologyName, hosts_named
from testbed.cli.screen import plain_table, print_json, print_table

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology


def paths(topology: TopologyName, src: Src, dst: Dst, as_json: Json = False) -> None:
    """Show the paths between two hosts.

    For each path an EV that selects it, its carrier address and its links.
    """
    from testbed.model.files.topologies import load_topology

    fabric = load_topology(topology)
    rows = _paths(fabric, *hosts_named(fabric, SRC=src, DST=dst))
    if as_json:
        print_json(rows)
        return
    table = plain_table("path", "EV", "carrier address", "links")
    for row in rows:
        table.add_row(row["path"], f"{row['ev']:#010x}", row["carrier"], " ".join(row["links"]))
    print_table(table)


def _paths(topology: "Topology", src: "Node", dst: "Node") -> list[dict[str, Any]]:
    from testbed.model.fabric import addressing

    return [
        {
            "path": path.name,
            "plane": path.plane,
            "t1": path.t1,
            "ev": addressing.ev_for_path(path),
            "carrier": str(addressing.carrier_address(topology, src, dst, path)),
            "links": [link.name for link in addressing.links_of_path(topology, src, dst, path)],
        }
        for path in addressing.paths(topology, src, dst)
    ]
