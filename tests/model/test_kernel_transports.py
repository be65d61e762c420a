"""Which paths the kernel's transports take."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Mptcp, Tcp
from tests.model.fabrics import host_pairs, topologies


@given(host_pairs(topologies()), st.integers(0, 15), st.integers(0, 99))
def test_both_directions_share_their_paths(
    pair: tuple[Topology, Node, Node], lane: int, seed: int
) -> None:
    topology, a, b = pair
    for transport in (Tcp(), Mptcp()):
        there = transport.choose_evs(topology, a, b, lane=lane, seed=seed)
        back = transport.choose_evs(topology, b, a, lane=lane, seed=seed)
        assert there == back
        planes = [ev.path.plane for ev in there]
        if isinstance(transport, Mptcp):
            assert planes == list(range(topology.planes)), "it begins in plane 0"
        else:
            assert len(planes) == 1
