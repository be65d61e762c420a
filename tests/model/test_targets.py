"""From a target's name to directions of links."""

import pytest
from hypothesis import given

from testbed.model.fabric.names import directions_of, link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import (
    GROUPS,
    choose_targets,
    expand_groups,
    hosts_meant,
    most_directions,
    target_directions,
)

from .fabrics import REAL, topologies

CLOS = Topology(name="clos", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)


@given(topologies())
def test_every_node_strikes_its_own_links_and_every_plane_all_of_its(topology: Topology) -> None:
    for node in topology.nodes.values():
        own = {d for _, _, link in topology.adjacency[node] for d in link.directions}
        assert set(target_directions(topology, node.name) or ()) == own
    for plane in range(topology.planes):
        inside = {d for x in topology.links.values() if x.plane == plane for d in x.directions}
        found = target_directions(topology, f"p{plane}") or ()
        assert set(found) == inside
        assert len(found) == len(inside), "each once"
    assert target_directions(topology, f"p{topology.planes}") is None


@given(topologies())
def test_a_link_is_two_directions_and_each_knows_its_link(topology: Topology) -> None:
    for name, link in topology.links.items():
        assert target_directions(topology, name) == link.directions == directions_of(name)
        for direction in link.directions:
            assert target_directions(topology, direction) == (direction,)
            assert link_of(direction) == name


@given(topologies())
def test_groups_are_every_one_of_a_kind(topology: Topology) -> None:
    assert set(expand_groups(topology, ("links", "ports"))) == set(topology.links)
    assert set(expand_groups(topology, ("t0", "t1", "hosts"))) == set(topology.nodes)
    tiers = {
        node.tier for node in map(topology.nodes.__getitem__, expand_groups(topology, ("t0",)))
    }
    assert tiers == {Tier.T0}
    assert set(GROUPS) == {"links", "ports", "t0", "t1", "planes", "hosts", "nodes"}


@given(topologies())
def test_a_node_is_all_its_nics_and_every_nic_is_of_one(topology: Topology) -> None:
    names = expand_groups(topology, ("nodes",))
    assert list(names) == [f"n{node}" for node in range(topology.node_count)]
    assert hosts_meant(topology, names) == expand_groups(topology, ("hosts",))
    for name in names:
        hosts = hosts_meant(topology, (name,))
        assert len(hosts) == topology.nics_per_node
        links = [d for host in hosts for d in target_directions(topology, host) or ()]
        assert target_directions(topology, name) == tuple(links)
        assert 2 * len(links) >= most_directions(topology, (name,), None) >= len(links)
    assert target_directions(topology, f"n{topology.node_count}") is None
    assert most_directions(topology, ("nodes",), None) == 2 * topology.planes * topology.host_count


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("p0_t0_1-d0..1", ("h2--p0_t0_1", "h3--p0_t0_1")),
        ("p1_t0_0-u1..2", ("p1_t0_0--p1_t1_1", "p1_t0_0--p1_t1_2")),
        ("p1_t0_0-u2", ("p1_t0_0--p1_t1_2",)),
        ("p0_t1_2-d1", ("p0_t0_1--p0_t1_2",)),
    ],
)
def test_a_transceiver_is_neighbouring_ports(name: str, links: tuple[str, ...]) -> None:
    assert target_directions(CLOS, name) == tuple(d for link in links for d in directions_of(link))


@pytest.mark.parametrize(
    "name",
    [
        "p0_t1_0-u0",
        "p0_t0_0-u2..1",
        "p0_t0_0-u0..3",
        "p0_t0_2",
        "p00",
        "n4",
        "n00",
        "",
        "h0>h1",
        "p0_t0_0>",
        ">",
    ],
)
def test_what_the_fabric_has_not_stands_for_nothing(name: str) -> None:
    assert target_directions(CLOS, name) is None


def test_chance_is_repeated_by_its_seed_and_keeps_the_order() -> None:
    names = tuple(CLOS.links)
    first = choose_targets(names, 4, "1/0/0")
    assert choose_targets(names, 4, "1/0/0") == first
    assert list(first) == sorted(first, key=names.index)
    assert len({choose_targets(names, 4, f"1/0/{n}") for n in range(10)}) > 5


def test_a_switch_of_the_real_size_is_found_without_building_the_fabric() -> None:
    assert len(target_directions(REAL, "p7_t1_255") or ()) == 2 * REAL.t0_per_plane
    assert "links" not in REAL.__dict__
