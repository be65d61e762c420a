"""Fabrics for tests: small ones, odd ones, and the real one."""

from hypothesis import strategies as st

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

REAL = Topology(name="real", planes=8, t0_per_plane=512, t1_per_plane=256, hosts_per_t0=256)
"""The paper's cluster: 131,072 NICs in two tiers."""

ODD = Topology(name="odd", planes=3, t0_per_plane=3, t1_per_plane=5, hosts_per_t0=2)


def topologies() -> st.SearchStrategy[Topology]:
    """Fabrics small enough to be looked at as a whole, odd counts among them."""
    return st.builds(
        Topology,
        name=st.just("drawn"),
        planes=st.integers(1, 8),
        t0_per_plane=st.integers(1, 4),
        t1_per_plane=st.integers(1, 7),
        hosts_per_t0=st.integers(1, 3),
    )


@st.composite
def host_pairs(
    draw: st.DrawFn, fabrics: st.SearchStrategy[Topology]
) -> tuple[Topology, Node, Node]:
    """A fabric and two hosts of it, perhaps the same."""
    topology = draw(fabrics)
    hosts = st.integers(0, topology.t0_per_plane * topology.hosts_per_t0 - 1)
    return topology, topology.host(draw(hosts)), topology.host(draw(hosts))
