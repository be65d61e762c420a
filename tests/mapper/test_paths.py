"""The ways of probes: which links a round covers, and that each leads where it says."""

from collections import Counter

import pytest

from testbed.mapper.prober import ProbePath, probe_round, probes_per_round
from testbed.model.fabric.addressing import Path, carrier_address
from testbed.model.fabric.topology import Topology

FABRICS = [
    (4, 2, 4, 4),
    (1, 1, 1, 1),
    (2, 3, 5, 1),
    (3, 1, 4, 3),
    (8, 2, 1, 2),
]


def fabric(planes: int, t0s: int, t1s: int, hosts: int) -> Topology:
    return Topology(name="x", planes=planes, t0_per_plane=t0s, t1_per_plane=t1s, hosts_per_t0=hosts)


@pytest.mark.parametrize("shape", FABRICS)
def test_a_round_crosses_every_link_both_ways(shape: tuple[int, int, int, int]) -> None:
    topology = fabric(*shape)
    for number in range(5):
        probes = probe_round(topology, number, seed=1)
        assert len(probes) == probes_per_round(topology)
        crossed = Counter(direction for probe in probes for direction in probe.directions)
        for link in topology.links.values():
            low, up = link.lower.node.name, link.upper.node.name
            assert crossed[f"{low}>{up}"] > 0
            assert crossed[f"{up}>{low}"] > 0


def test_every_host_probes_every_fabric_link_of_its_rack_in_turn() -> None:
    topology = fabric(2, 2, 4, 4)
    rounds = [probe for number in range(4) for probe in probe_round(topology, number, seed=1)]
    loops = {probe.nodes for probe in rounds if len(probe.nodes) == 5}
    assert len(loops) == 2 * 2 * 4 * 4


def test_directions_of_a_fabric_link_are_told_apart_over_the_rounds() -> None:
    """Each direction is crossed by some way that does not use the other one."""
    topology = fabric(2, 2, 2, 2)
    ways = {probe for number in range(8) for probe in probe_round(topology, number, seed=1)}
    for link in topology.links.values():
        low, up = link.lower.node.name, link.upper.node.name
        for direction, opposite in ((f"{low}>{up}", f"{up}>{low}"), (f"{up}>{low}", f"{low}>{up}")):
            assert any(
                direction in way.directions and opposite not in way.directions for way in ways
            )


def test_a_fabric_loop_is_the_carrier_of_a_loop() -> None:
    topology = fabric(4, 2, 4, 4)
    host, t0, t1 = topology.host(5), topology.t0(2, 1), topology.t1(2, 3)
    way = ProbePath(2, (host, t0, t1, t0, host))
    assert way.destination(topology) == carrier_address(topology, host, host, Path(2, 3))
    assert way.directions == ("h5>p2_t0_1", "p2_t0_1>p2_t1_3", "p2_t1_3>p2_t0_1", "p2_t0_1>h5")


def test_a_crossed_probe_needs_all_six_usids() -> None:
    topology = fabric(4, 2, 4, 4)
    longest = max(probe_round(topology, 0, seed=1), key=lambda way: len(way.nodes))
    assert len(longest.nodes) == 7
    assert int(longest.destination(topology)) & 0xFFFF


def test_the_seed_orders_a_round() -> None:
    topology = fabric(4, 2, 4, 4)
    assert probe_round(topology, 3, seed=1) == probe_round(topology, 3, seed=1)
    assert probe_round(topology, 3, seed=1) != probe_round(topology, 3, seed=2)
    assert set(probe_round(topology, 3, seed=1)) == set(probe_round(topology, 3, seed=2))
