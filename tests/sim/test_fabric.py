"""Routes, delays and thresholds of a simulated fabric, against the topology."""

import pytest

from testbed.model.fabric.addressing import Path, ev_for_path, paths
from testbed.model.fabric.topology import NIC_QUEUE_BDP, NO_LIMIT, Topology
from testbed.model.faults.impairment import Impairment
from testbed.model.files.topologies import load_topology
from testbed.mrc import Datagram, DscpClasses
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric, Timing
from testbed.sim.link import Packet


def _transit_ns(topology: Topology, src: int, dst: int, path: Path) -> tuple[int, Packet]:
    engine = Engine()
    fabric = Fabric(topology, engine, seed=1)
    arrived: list[int] = []
    route = fabric.route(topology.host(src), topology.host(dst), path)
    datagram = Datagram(ev_for_path(path), DscpClasses().control, bytes(84), b"", b"")
    packet = Packet(datagram, route, lambda now_ns, _: arrived.append(now_ns))
    route[0].offer(0, packet)
    engine.run(1 << 40)
    return arrived[0], packet


@pytest.mark.parametrize("dilation", [1, 7, 10_000])
@pytest.mark.parametrize("dst", [1, 4])
def test_delays_add_up_to_the_topologys(dilation: int, dst: int) -> None:
    topology = load_topology("clos-4plane").model_copy(update={"dilation": dilation})
    src_node, dst_node = topology.host(0), topology.host(dst)
    switches = 1 if dst == 1 else 3
    for path in paths(topology, src_node, dst_node):
        transit_ns, packet = _transit_ns(topology, 0, dst, path)
        serialisation_ns = (switches + 1) * packet.size * 8e9 / topology.port_rate_bps
        expected = topology.one_way_ns(switches) + serialisation_ns
        assert transit_ns == pytest.approx(expected, abs=switches + 1)


@pytest.mark.parametrize(("dst", "switches"), [(1, 1), (4, 3)])
def test_in_the_emulations_timing_only_the_receiver_delays(dst: int, switches: int) -> None:
    topology = load_topology("clos-4plane")
    fabric = Fabric(topology, Engine(), seed=1, timing=Timing.EMULATED)
    route = fabric.route(topology.host(0), topology.host(dst), Path(0, None if dst == 1 else 0))
    assert {(hop.shape.before_ns, hop.shape.behind_ns) for hop in route} == {(0, 0)}
    assert all(hop.shape.at_once for hop in route)
    assert fabric.held_back_ns(len(route)) == topology.one_way_ns(switches)
    assert Fabric(topology, Engine(), seed=1).held_back_ns(len(route)) == 0


def test_a_route_names_its_directions() -> None:
    topology = load_topology("clos-4plane")
    fabric = Fabric(topology, Engine(), seed=1)
    route = fabric.route(topology.host(0), topology.host(4), Path(2, 3))
    names = ["h0>p2_t0_0", "p2_t0_0>p2_t1_3", "p2_t1_3>p2_t0_1", "p2_t0_1>h4"]
    assert [direction.name for direction in route] == names
    assert [link for link, _ in fabric] == [
        "h0--p2_t0_0",
        "p2_t0_0--p2_t1_3",
        "p2_t0_1--p2_t1_3",
        "h4--p2_t0_1",
    ]
    back = fabric.route(topology.host(4), topology.host(0), Path(2, 3))
    assert [d.name for d in back] == [">".join(reversed(n.split(">"))) for n in reversed(names)]


def test_queues_are_the_models() -> None:
    topology = load_topology("clos-4plane")
    fabric = Fabric(topology, Engine(), seed=1)
    nic, up, down, last = (
        direction.shape
        for direction in fabric.route(topology.host(0), topology.host(4), Path(0, 0))
    )
    bdp = topology.bdp_bytes
    assert (nic.limit_bytes, nic.trim_bytes, nic.ecn_min_bytes) == (
        NIC_QUEUE_BDP * bdp,
        NO_LIMIT,
        NO_LIMIT,
    )
    for inner in (up, down):
        assert inner.limit_bytes == 4 * bdp
        assert inner.trim_bytes == bdp
        assert (inner.ecn_min_bytes, inner.ecn_max_bytes) == (round(0.2 * bdp), round(0.8 * bdp))
        assert not inner.last_hop
    assert (last.trim_bytes, last.ecn_min_bytes) == (round(1.5 * bdp), NO_LIMIT)
    assert last.last_hop


def test_an_unknown_link_is_no_target() -> None:
    fabric = Fabric(load_topology("clos-tiny"), Engine(), seed=1)
    with pytest.raises(KeyError):
        fabric.impair("p0_t0_0>p0_t1_9", Impairment(blackhole=True))
