"""Which packets a slow link delays: those whose flow label names a path over it."""

import numpy as np
import pytest

from testbed.emulation.fabric.link_model.link_control import SlowLinks
from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.model.fabric.addressing import directions_of_path, ev_for_path, nic_address, paths
from testbed.model.fabric.topology import Topology
from testbed.mrc.wire.codec import encode
from testbed.mrc.wire.control import ReliabilityProbe

TOPOLOGY = Topology(name="x", planes=2, t0_per_plane=2, t1_per_plane=3, hosts_per_t0=2)
EXTRA_NS = 1000


class Model:
    """A link model with nothing but extra delays."""

    def __init__(self) -> None:
        self._directions = [name for link in TOPOLOGY.links.values() for name in link.directions]
        self.records = np.zeros(len(self._directions), dtype=[("delay_ns", np.uint64)])

    def index(self, direction: str) -> int:
        return self._directions.index(direction)


@pytest.mark.parametrize("entropy", [0, 1, 0xBEEF])
@pytest.mark.parametrize("dst", [1, 3])
def test_a_slow_link_delays_the_paths_over_it(
    monkeypatch: pytest.MonkeyPatch, dst: int, entropy: int
) -> None:
    model = Model()
    monkeypatch.setattr(LinkModel, "open", lambda _: model)
    src, to = TOPOLOGY.host(0), TOPOLOGY.host(dst)
    source, destination = (nic_address(TOPOLOGY, host).packed for host in (src, to))
    slow_links = SlowLinks(TOPOLOGY, to)
    for slow in paths(TOPOLOGY, src, to):
        model.records["delay_ns"] = 0
        climb = directions_of_path(TOPOLOGY, src, to, slow)[1]
        model.records["delay_ns"][model.index(climb)] = EXTRA_NS
        for path in paths(TOPOLOGY, src, to):
            ev = ev_for_path(path, entropy)
            probe = ReliabilityProbe(source, destination, ev, 17, 0, 0, 0)
            extra_ns = slow_links.extra_ns(b"".join(encode(probe, 0)))
            assert extra_ns == (EXTRA_NS if path == slow else 0)
