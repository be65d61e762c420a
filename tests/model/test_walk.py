from itertools import pairwise

from hypothesis import given

from testbed.model.fabric import addressing
from testbed.model.fabric.names import walk
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT

from .fabrics import ODD, REAL, host_pairs, topologies


@given(host_pairs(topologies()))
def test_a_walk_is_what_the_routes_of_its_nodes_make_of_a_carrier(
    drawn: tuple[Topology, Node, Node],
) -> None:
    topology, src, dst = drawn
    for path in addressing.paths(topology, src, dst):
        hops = walk(topology, src, dst, path, HOP_LIMIT)
        assert hops[0].leaves == addressing.carrier_address(topology, src, dst, path)
        for hop, following in pairwise(hops):
            assert hop.leaves is not None
            assert hop.port is not None
            routes = addressing.node_routes(topology, hop.node)
            neighbours = routes.neighbours
            if hop.node == src:  # a host has a way into every plane: its T0 of this one
                neighbours = (neighbours[path.plane],)
            (way,) = [neighbour for neighbour in neighbours if hop.leaves in neighbour.locator]
            assert (hop.route, hop.port) == (way.locator, way.port)
            assert (following.node, following.arrives) == (way.via.node, hop.leaves)
            if hop.arrives is not None:
                assert hop.arrives in (hop.own or ())
                assert hop.own == routes.un
        last = hops[-1]
        assert last.node == dst
        assert last.arrives in addressing.node_routes(topology, dst).local
        assert (last.leaves, last.route, last.port) == (None, None, None)


def test_hop_limits_fall_by_one_a_switch() -> None:
    src, dst = ODD.host(0), ODD.host(5)
    hops = walk(ODD, src, dst, addressing.Path(2, 4), HOP_LIMIT)
    assert [hop.hop_limit for hop in hops] == [64, 63, 62, 61, 61]
    local = walk(ODD, src, ODD.host(1), addressing.Path(2, None), HOP_LIMIT)
    assert [hop.node.name for hop in local] == ["h0", "p2_t0_0", "h1"]


def test_a_walk_at_the_real_size_is_immediate() -> None:
    path = addressing.Path(7, 255)
    hops = walk(REAL, REAL.host(0), REAL.host(131_071), path, HOP_LIMIT)
    assert [hop.node.name for hop in hops] == ["h0", "p7_t0_0", "p7_t1_255", "p7_t0_511", "h131071"]
    assert str(hops[0].leaves) == "5f00:0:1e00:2eff:1fff:3eff::"
    assert "links" not in REAL.__dict__
