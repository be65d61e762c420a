"""Generated routes: golden files, and the shape of every shipped fabric.

After a wanted change: `python tests/fabric/test_routes.py` writes the golden files anew.
"""

from pathlib import Path

import pytest
import yaml

from testbed.emulation.fabric import routes
from testbed.emulation.fabric.layout import Layout
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology

GOLDEN = Path(__file__).parent / "golden"
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FABRICS = {
    "tiny": Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1),
    "odd": Topology(name="odd", planes=3, t0_per_plane=3, t1_per_plane=1, hosts_per_t0=2),
}


def tables_of(topology: Topology) -> str:
    """Show the tables of all nodes as text."""
    layout = Layout(topology)
    lines = []
    for name, node in topology.nodes.items():
        lines += [f"{name}:"]
        lines += [f"  {line}" for line in routes.expected(layout, node).lines(layout.device_name)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", FABRICS)
def test_routes_are_those_of_the_golden_file(name: str) -> None:
    """Every address, route and neighbour of every node, line by line."""
    assert tables_of(FABRICS[name]) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_state_per_switch_is_its_radix(path: Path) -> None:
    """A switch holds one uN route and one route per port; a host one per plane."""
    topology = Topology.model_validate(yaml.safe_load(path.read_text()))
    layout = Layout(topology)
    for node in topology.nodes.values():
        tables = routes.expected(layout, node)
        ports = len(topology.adjacency[node])
        assert len(tables.neighbours) == ports
        assert len(tables.routes) == ports + (node.tier is not Tier.HOST)


def test_entries_of_a_port_are_what_goes_by_it() -> None:
    """One route and one neighbour for each port; the uN route belongs to none."""
    topology = FABRICS["tiny"]
    layout = Layout(topology)
    switch = topology.t0(0, 0)
    tables = routes.expected(layout, switch)
    by_port = [routes.of_ports(tables, [near]) for near, _, _ in topology.adjacency[switch]]
    assert [len(entries.routes) for entries in by_port] == [1, 1, 1]
    assert [len(entries.neighbours) for entries in by_port] == [1, 1, 1]
    (left,) = tables.routes - frozenset.union(*(entries.routes for entries in by_port))
    assert left.action == routes.UN


if __name__ == "__main__":
    for fabric, topology in FABRICS.items():
        (GOLDEN / f"{fabric}.txt").write_text(tables_of(topology))
