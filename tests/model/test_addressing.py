from ipaddress import IPv6Address
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import Path, Role
from testbed.model.fabric.nodes import Node, Tier
from testbed.model.fabric.topology import Topology

from .fabrics import ODD, REAL, host_pairs, topologies

evs = st.integers(0, 2**32 - 1)
big = st.builds(
    Topology,
    name=st.just("big"),
    planes=st.integers(1, 8),
    t0_per_plane=st.integers(1, 512),
    t1_per_plane=st.integers(1, 512),
    hosts_per_t0=st.integers(1, 512),
)


def _end_of(topology: Topology, carrier: IPv6Address) -> tuple[Node, Path]:
    """The host and the path that a carrier names, read from its uSIDs."""
    words = int(carrier).to_bytes(16, "big")
    usids = [usid for i in range(4, 16, 2) if (usid := int.from_bytes(words[i : i + 2], "big"))]
    over_t1 = [usid >> 12 for usid in usids] == [Role.T0, Role.T1, Role.T0, Role.NIC]
    assert over_t1 or [usid >> 12 for usid in usids] == [Role.T0, Role.NIC]
    (plane,) = {usid >> 9 & 7 for usid in usids}
    index = [usid & 0x1FF for usid in usids]
    host = topology.host(index[-2] * topology.hosts_per_t0 + index[-1])
    return host, Path(plane, index[1] if over_t1 else None)


def _shifted(carrier: IPv6Address) -> IPv6Address:
    """What End with NEXT-C-SID makes of a destination address (RFC 9800)."""
    words = int(carrier).to_bytes(16, "big")
    return IPv6Address(words[:4] + words[6:] + bytes(2))


def _walk(topology: Topology, src: Node, plane: int, carrier: IPv6Address) -> list[str]:
    """The nodes that a packet passes, going by nothing but static routes."""
    first = topology.adjacency[src][plane]
    assert carrier in addressing.node_routes(topology, src).neighbours[plane].locator
    node, passed = first[1].node, [src.name]
    while True:
        passed.append(node.name)
        routes = addressing.node_routes(topology, node)
        if routes.un is None:
            assert carrier in routes.local, f"{node.name} does not receive {carrier}"
            return passed
        assert carrier in routes.un, f"{node.name} is not the node that {carrier} names"
        carrier = _shifted(carrier)
        (next_hop,) = [hop for hop in routes.neighbours if carrier in hop.locator]
        node = next_hop.via.node


@given(host_pairs(topologies()))
def test_every_carrier_leads_along_its_path(drawn: tuple[Topology, Node, Node]) -> None:
    topology, src, dst = drawn
    for path in addressing.paths(topology, src, dst):
        passed = _walk(
            topology, src, path.plane, addressing.carrier_address(topology, src, dst, path)
        )
        links = addressing.links_of_path(topology, src, dst, path)
        assert passed[0] == src.name
        assert passed[-1] == dst.name
        assert [{a, b} for a, b in pairwise(passed)] == [
            {port.node.name for port in link.ports} for link in links
        ]


def test_every_carrier_of_a_small_fabric_is_unique() -> None:
    for src in ODD.hosts:
        carriers = [
            addressing.carrier_address(ODD, src, dst, path)
            for dst in ODD.hosts
            if dst != src
            for path in addressing.paths(ODD, src, dst)
        ]
        assert len(set(carriers)) == len(carriers) == 3 * 5 * 4 + 3


@given(host_pairs(big), st.data())
def test_a_carrier_names_one_path_to_one_host(
    drawn: tuple[Topology, Node, Node], data: st.DataObject
) -> None:
    topology, src, dst = drawn
    path = data.draw(st.sampled_from(addressing.paths(topology, src, dst)))
    carrier = addressing.carrier_address(topology, src, dst, path)
    assert _end_of(topology, carrier) == (dst, path)


def test_too_many_usids_are_refused() -> None:
    assert addressing.address(1, 2, 3, 4, 5, 6) == IPv6Address("5f00::1:2:3:4:5:6")
    with pytest.raises(ValueError, match="at most 6"):
        addressing.address(1, 2, 3, 4, 5, 6, 7)


@given(host_pairs(big))
def test_nic_addresses_name_their_host(drawn: tuple[Topology, Node, Node]) -> None:
    topology, src, dst = drawn
    own = addressing.nic_address(topology, src)
    assert addressing.host_of_nic(topology, own) == src
    assert (own == addressing.nic_address(topology, dst)) == (src == dst)


def test_addresses_of_no_nic_name_nobody() -> None:
    last = addressing.nic_address(ODD, ODD.hosts[-1])
    for strange in (last + 1, last + (1 << 64), last + (1 << 80), IPv6Address("5f00::"), "::1"):
        assert addressing.host_of_nic(ODD, IPv6Address(strange)) is None


# --- the real size: 8 planes, 512 T0 with 256 NICs each, 256 T1 ---------------------------------


def test_real_size_switch_usids_are_unique_and_fit_16_bits() -> None:
    switches = [addressing.node_usid(REAL, node, node.plane) for node in REAL.switches]
    assert len(switches) == len(set(switches)) == 8 * (512 + 256)
    # a NIC's uSID is local to its T0: unique among all that a T0 of its plane has routes for
    nics = [addressing.node_usid(REAL, REAL.host(i), p) for i in range(256) for p in range(8)]
    assert len({*switches, *nics}) == len(switches) + len(nics)
    everything = {*switches, *nics, addressing.DT6_USID}
    assert len(everything) == len(switches) + len(nics) + 1
    assert all(0 < one < 1 << 16 for one in everything)
    locators = {addressing.locator(one) for one in everything}
    assert len(locators) == len(everything)
    assert {locator.prefixlen for locator in locators} == {48}


def test_real_size_nic_usids_repeat_from_rack_to_rack() -> None:
    for plane in range(8):
        of_rack = [
            tuple(addressing.node_usid(REAL, REAL.host(rack * 256 + i), plane) for i in range(256))
            for rack in (0, 1, 255, 511)
        ]
        assert len(set(of_rack)) == 1


def test_real_size_nic_addresses_are_unique() -> None:
    addresses = {addressing.nic_address(REAL, host) for host in REAL.hosts}
    assert len(addresses) == 131_072
    assert all(address in addressing.NIC_PREFIX for address in addresses)


def test_real_size_carriers_are_one_to_one_with_paths() -> None:
    """There are 10^11 of them; what follows proves it for all.

    A carrier is a fixed-width row of uSIDs. First: each uSID in it depends on one coordinate and
    the plane only. Second: of each coordinate, every value with every plane gives another uSID
    (tried exhaustively). So two carriers that agree, agree in every coordinate.
    """
    corners = [0, 1, 255, 256, 510, 511]
    for a in corners:
        for b in corners:
            src, dst = REAL.host(a * 256 + 7), REAL.host(b * 256 + 255)
            for path in addressing.paths(REAL, src, dst)[:: 97 if a != b else 1]:
                t0_src, t0_dst = (addressing.usid_of(Role.T0, path.plane, r) for r in (a, b))
                nic = addressing.usid_of(Role.NIC, path.plane, 255)
                usids = addressing.carrier_usids(REAL, src, dst, path)
                if path.t1 is None:
                    assert usids == (t0_dst, nic)
                else:
                    t1 = addressing.usid_of(Role.T1, path.plane, path.t1)
                    assert usids == (t0_src, t1, t0_dst, nic)
    for role, count in ((Role.T0, 512), (Role.T1, 256), (Role.NIC, 256)):
        values = {addressing.usid_of(role, plane, i) for plane in range(8) for i in range(count)}
        assert len(values) == 8 * count
        assert {value >> 12 for value in values} == {role}


def test_real_size_paths_of_a_pair_have_their_own_carriers() -> None:
    src, dst = REAL.host(0), REAL.host(131_071)
    ways = addressing.paths(REAL, src, dst)
    assert len(ways) == len(set(ways)) == 8 * 256
    assert len({addressing.carrier_address(REAL, src, dst, way) for way in ways}) == len(ways)
    local = addressing.paths(REAL, src, REAL.host(255))
    assert [way.t1 for way in local] == [None] * 8


def test_real_size_evs_reach_every_path() -> None:
    src, dst = REAL.host(0), REAL.host(131_071)
    reached = {addressing.path_of_ev(REAL, src, dst, label << 16) for label in range(1 << 11)}
    assert reached == set(addressing.paths(REAL, src, dst))


# --- ordinary traffic ---------------------------------------------------------------------------


def test_real_size_ordinary_addresses_are_unique_and_nobody_elses() -> None:
    """A host has a /64 of its own, tried for all; what it has in there is tried for some."""
    own = {int(addressing.ordinary_address(REAL, host, 0)) >> 64 for host in REAL.hosts}
    assert len(own) == 131_072
    for host in (*REAL.hosts[::61], REAL.hosts[-1]):
        ordinary = {addressing.ordinary_address(REAL, host, plane) for plane in range(8)}
        nic = addressing.nic_address(REAL, host)
        assert len(ordinary | {nic}) == 9
        assert len({int(one) >> 64 for one in ordinary | {nic}}) == 1
        assert all(one in addressing.NIC_PREFIX for one in ordinary)
        assert all(addressing.host_of_nic(REAL, one) is None for one in ordinary)


@given(host_pairs(big), st.data())
def test_an_ordinary_carrier_goes_mrcs_way_and_ends_in_end_dt6(
    drawn: tuple[Topology, Node, Node], data: st.DataObject
) -> None:
    topology, src, dst = drawn
    path = data.draw(st.sampled_from(addressing.paths(topology, src, dst)))
    ordinary = addressing.ordinary_carrier_address(topology, src, dst, path)
    carrier = addressing.carrier_address(topology, src, dst, path)
    assert ordinary != carrier
    for _ in addressing.links_of_path(topology, src, dst, path)[1:]:  # a switch before each
        assert int(ordinary) >> 64 + 16 == int(carrier) >> 64 + 16  # what switches look at
        ordinary, carrier = _shifted(ordinary), _shifted(carrier)
    assert carrier == addressing.address(addressing.node_usid(topology, dst, path.plane))
    assert ordinary == addressing.dt6_sid(topology, dst, path.plane)
    assert ordinary != carrier


@given(host_pairs(topologies()), st.integers(0, 3))
def test_the_default_path_of_ordinary_traffic_is_the_same_both_ways(
    drawn: tuple[Topology, Node, Node], seed: int
) -> None:
    topology, src, dst = drawn
    assume(src != dst)
    for plane in range(topology.planes):
        path = addressing.ordinary_path(topology, src, dst, plane, seed)
        assert path.plane == plane
        assert path in addressing.paths(topology, src, dst)
        assert path == addressing.ordinary_path(topology, dst, src, plane, seed)


def test_default_paths_spread_over_the_t1s_and_change_with_the_seed() -> None:
    pairs = [(REAL.host(a), REAL.host(300 + b)) for a in range(16) for b in range(16)]

    def t1s(seed: int) -> list[int | None]:
        return [addressing.ordinary_path(REAL, a, b, 3, seed).t1 for a, b in pairs]

    assert len(set(t1s(0))) > 128  # 256 draws of 256: 162 different ones are expected
    assert t1s(0) == t1s(0)
    assert t1s(0) != t1s(1)


# --- entropy values -----------------------------------------------------------------------------


@given(host_pairs(big), st.integers(0, 2**16 - 1))
def test_evs_reach_every_path(drawn: tuple[Topology, Node, Node], entropy: int) -> None:
    topology, src, dst = drawn
    for path in addressing.paths(topology, src, dst)[::29]:
        ev = addressing.ev_for_path(path, entropy)
        assert 0 <= ev < 2**32
        assert addressing.path_of_ev(topology, src, dst, ev) == path


@given(host_pairs(big), evs)
def test_every_ev_takes_a_path_that_exists(drawn: tuple[Topology, Node, Node], ev: int) -> None:
    topology, src, dst = drawn
    path = addressing.path_of_ev(topology, src, dst, ev)
    carrier = addressing.carrier_address(topology, src, dst, path)
    assert _end_of(topology, carrier) == (dst, path)


@given(host_pairs(big), evs, st.integers(0, 2**16 - 1))
def test_only_the_path_bits_choose_the_path(
    drawn: tuple[Topology, Node, Node], ev: int, entropy: int
) -> None:
    topology, src, dst = drawn
    other = ev & 0xFFFF_0000 | entropy
    ways = {addressing.path_of_ev(topology, src, dst, one) for one in (ev, other)}
    assert len(ways) == 1


@given(host_pairs(big), evs)
def test_a_reply_on_the_same_ev_comes_back_the_same_way(
    drawn: tuple[Topology, Node, Node], ev: int
) -> None:
    topology, src, dst = drawn
    assume(src != dst)
    there = addressing.path_of_ev(topology, src, dst, ev)
    assert addressing.path_of_ev(topology, dst, src, ev) == there


# --- routes -------------------------------------------------------------------------------------


@given(topologies())
def test_routes_are_as_many_as_neighbours(topology: Topology) -> None:
    for node in topology.nodes.values():
        routes = addressing.node_routes(topology, node)
        assert len(routes.neighbours) == len(topology.adjacency[node])
        if node.tier is Tier.HOST:
            assert routes.un is None
            assert len(routes.local) == topology.planes + 1
        else:
            own = addressing.node_usid(topology, node, node.plane)
            assert routes.un == addressing.locator(own)
            assert routes.local == ()
            locators = [hop.locator for hop in routes.neighbours]
            assert len({*locators, routes.un}) == len(locators) + 1
