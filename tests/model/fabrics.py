"""Fabrics for tests: small ones, odd ones, and the real one."""

from hypothesis import strategies as st

from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

REAL = Topology(name="real", planes=8, t0_per_plane=512, t1_per_plane=256, hosts_per_t0=256)
"""The paper's cluster: 131,072 NICs in two tiers."""

ODD = Topology(name="odd", planes=3, t0_per_plane=3, t1_per_plane=5, hosts_per_t0=2)


@st.composite
def topologies(draw: st.DrawFn, nics: st.SearchStrategy[int] | None = None) -> Topology:
    """Fabrics small enough to be looked at as a whole: odd counts, nodes of several NICs, rails."""
    per_node = draw(st.sampled_from((1, 1, 2, 3)) if nics is None else nics)
    rails = per_node > 1 and draw(st.booleans())
    return Topology(
        name="drawn",
        planes=draw(st.integers(1, 8)),
        t0_per_plane=per_node * draw(st.integers(1, 2)) if rails else draw(st.integers(1, 4)),
        t1_per_plane=draw(st.integers(1, 7)),
        hosts_per_t0=draw(st.integers(1, 3)) if rails or per_node == 1 else per_node,
        nics_per_node=per_node,
        rails=rails,
    )


@st.composite
def host_pairs(
    draw: st.DrawFn, fabrics: st.SearchStrategy[Topology]
) -> tuple[Topology, Node, Node]:
    """A fabric and two hosts of it, perhaps the same."""
    topology = draw(fabrics)
    hosts = st.integers(0, topology.host_count - 1)
    return topology, topology.host(draw(hosts)), topology.host(draw(hosts))
