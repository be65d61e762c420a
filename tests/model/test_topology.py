import re
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from testbed.model.fabric.nodes import FIRST_IFINDEX, Tier
from testbed.model.fabric.topology import PropagationDelay, Topology

from .fabrics import ODD, REAL, topologies

TINY = Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)


def test_names_follow_the_convention() -> None:
    assert list(TINY.nodes) == [
        "h0",
        "h1",
        *("p0_t0_0", "p0_t0_1", "p0_t1_0", "p0_t1_1"),
        *("p1_t0_0", "p1_t0_1", "p1_t1_0", "p1_t1_1"),
    ]
    assert list(TINY.links)[:5] == [
        *("h0--p0_t0_0", "h0--p1_t0_0", "h1--p0_t0_1", "h1--p1_t0_1"),
        "p0_t0_0--p0_t1_0",
    ]


@given(topologies())
def test_every_rack_is_wired_to_every_t1_of_its_plane_and_nothing_else(topology: Topology) -> None:
    for node, ports in topology.adjacency.items():
        far = [port.node for _, port, _ in ports]
        match node.tier:
            case Tier.HOST:
                rack = topology.rack(node)
                assert far == [topology.t0(plane, rack) for plane in range(topology.planes)]
            case Tier.T0:
                below = [host for host in topology.hosts if topology.rack(host) == node.index]
                above = [topology.t1(node.plane, j) for j in range(topology.t1_per_plane)]
                assert far == below + above
            case Tier.T1:
                assert far == [topology.t0(node.plane, i) for i in range(topology.t0_per_plane)]


@given(topologies())
def test_interfaces_are_unique_and_fit_the_kernel(topology: Topology) -> None:
    ports = [port for link in topology.links.values() for port in link.ports]
    indexes = [port.ifindex for port in ports]
    assert indexes == list(range(FIRST_IFINDEX, FIRST_IFINDEX + len(ports)))
    assert len({port.name for port in ports}) == len(ports)
    assert len({port.mac for port in ports}) == len(ports)
    assert all(len(port.name) <= 15 for port in ports)


@given(topologies())
def test_links_are_found_without_building_the_fabric(topology: Topology) -> None:
    for link in topology.links.values():
        lower, upper = link.lower.node, link.upper.node
        found = (
            topology.fabric_link(link.plane, lower.index, upper.index)
            if link.is_fabric
            else topology.nic_link(lower, link.plane)
        )
        assert found == link
    for host in topology.hosts:
        for plane in range(topology.planes):
            assert topology.port_of(host, plane) == topology.adjacency[host][plane][0]


def test_interfaces_at_the_real_size() -> None:
    """Link numbers are a mixed-radix count: consecutive within, and from one kind to the next."""
    hosts = REAL.t0_per_plane * REAL.hosts_per_t0
    first, last = REAL.nic_link(REAL.host(0), 0), REAL.nic_link(REAL.host(hosts - 1), 7)
    assert first.lower.ifindex == FIRST_IFINDEX
    assert last.upper.ifindex == FIRST_IFINDEX + 2 * hosts * 8 - 1
    assert REAL.fabric_link(0, 0, 0).lower.ifindex == last.upper.ifindex + 1
    final = REAL.fabric_link(7, 511, 255)
    assert final.upper.ifindex == last.upper.ifindex + 2 * 8 * 512 * 256
    assert final.upper.ifindex < 1 << 24, "does not fit a MAC address"
    assert max(len(port.name) for port in (*last.ports, *final.ports)) <= 15


def test_rates_are_divided_and_times_multiplied_by_the_dilation() -> None:
    real = Topology(
        name="real", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1, dilation=1
    )
    assert real.one_way_ns(1) == 5090
    assert real.one_way_ns(3) == 6540
    assert TINY.one_way_ns(3) == 65_400_000
    assert TINY.port_rate_bps == 10_000_000
    assert TINY.bdp_bytes == pytest.approx(real.bdp_bytes, rel=1e-6)
    assert TINY.bdp_packets == pytest.approx(38.5, abs=0.1)


def test_a_path_takes_its_serialisation_only_where_links_do() -> None:
    topology = ODD.model_copy(update={"fabric_rate": 25 * 10**9})
    (near, far) = (
        next(host for host in topology.hosts[1:] if (topology.rack(host) == 0) is local)
        for local in (True, False)
    )
    first = topology.hosts[0]
    packet_ns = topology.wire_bytes * 8 * 10**9 * topology.dilation / topology.port_rate
    slow_ns = packet_ns * topology.port_rate / (25 * 10**9)
    for host, switches, hops_ns in ((near, 1, 2 * packet_ns), (far, 3, 2 * (packet_ns + slow_ns))):
        propagation_ns = 2 * topology.one_way_ns(switches)
        assert topology.path_rtt_ns(first, host, serialised=False) == propagation_ns
        serialised_ns = topology.path_rtt_ns(first, host, serialised=True)
        assert serialised_ns == pytest.approx(propagation_ns + hops_ns, abs=1)


def test_a_fabric_link_has_its_own_rate() -> None:
    topology = ODD.model_copy(update={"fabric_rate": 25 * 10**9})
    assert topology.rate_bps(topology.fabric_link(0, 0, 0)) == 2_500_000
    assert topology.rate_bps(topology.nic_link(topology.host(0), 0)) == 10_000_000
    assert ODD.rate_bps(ODD.fabric_link(0, 0, 0)) == 10_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"planes": 0},
        {"planes": 9},
        {"planes": True},
        {"planes": 2.0},
        {"t0_per_plane": 513},
        {"t1_per_plane": 0},
        {"hosts_per_t0": "4"},
        {"port_rate": 100},
        {"dilation": 0.5},
        {"dilation": float("inf")},
        {"dilation": True},
        {"name": "a/b"},
        {"name": ""},
        {"mtu": 4096},
    ],
)
def test_impossible_fabrics_are_refused(wrong: dict[str, object]) -> None:
    right = {"name": "x", "planes": 2, "t0_per_plane": 2, "t1_per_plane": 2, "hosts_per_t0": 1}
    Topology.model_validate(right)
    with pytest.raises(ValidationError) as caught:
        Topology.model_validate(right | wrong)
    assert [error["loc"] for error in caught.value.errors()] == [tuple(wrong)]


def test_a_bdp_of_few_packets_is_refused() -> None:
    with pytest.raises(ValidationError, match="bandwidth-delay product of 8 packets or more"):
        Topology(
            name="x",
            planes=1,
            t0_per_plane=1,
            t1_per_plane=1,
            hosts_per_t0=1,
            delay=PropagationDelay(nic="1 us", switch="100 ns"),
        )


def test_a_rate_below_one_bit_per_second_is_refused() -> None:
    with pytest.raises(ValidationError, match="at least 1 bit/s"):
        Topology.model_validate(TINY.model_dump(mode="json") | {"port_rate": "9999 bit/s"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dilation": 9e7}, r"1\.111 kbit/s takes 64\.9 s\): a dilation of 4587000 at most, or"),
        (
            {"delay": {"switch": "10 min"}, "dilation": 1},
            r"a round trip of 60 s at most \(this fabric has 3600 s\): shorter delays",
        ),
        (
            {"delay": {"nic": "1 s"}, "dilation": 1, "queue": {"t0_up": {"limit": "2 BDP"}}},
            r"queue\.t0_up\.limit: at most 1 GiB.*\(2 BDP is ",
        ),
    ],
)
def test_what_no_kernel_can_make_is_refused_with_what_it_can(
    changes: dict[str, Any], message: str
) -> None:
    data = {"name": "x", "planes": 1, "t0_per_plane": 2, "t1_per_plane": 2, "hosts_per_t0": 1}
    with pytest.raises(ValidationError, match=message):
        Topology.model_validate(data | changes)


@pytest.mark.parametrize("nic_ns", [1_000, 1_357, 2_220, 4_365, 7_777, 33_333, 1_234_567])
@pytest.mark.parametrize("rate", ["100 Gbit/s", "7 Gbit/s", "123456789 bit/s"])
def test_the_dilation_that_is_advised_is_not_refused_in_turn(nic_ns: int, rate: str) -> None:
    data = {
        "name": "x",
        "planes": 1,
        "t0_per_plane": 2,
        "t1_per_plane": 2,
        "hosts_per_t0": 1,
        "port_rate": rate,
        "delay": {"nic": f"{nic_ns} ns", "switch": "1 ms"},
    }
    with pytest.raises(ValidationError) as refused:
        Topology.model_validate(data | {"dilation": 5e7})
    advised = re.search(r"a dilation of ([0-9.]+) at most", str(refused.value))
    assert advised is not None, refused.value
    Topology.model_validate(data | {"dilation": float(advised[1])})
