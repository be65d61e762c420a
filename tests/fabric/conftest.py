"""What tests of the fabric share: small topologies, sandboxes and packets."""

import pytest

from testbed.model.fabric.topology import Topology


@pytest.fixture
def tiny() -> Topology:
    """Two planes of two T0s and two T1s, one host on each pair of T0s."""
    return Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)


@pytest.fixture
def four_planes() -> Topology:
    """The default fabric."""
    return Topology(name="four", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)
