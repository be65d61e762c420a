"""Outer headers lead along the path that the EV names, by the addressing module's own reading."""

import struct
from ipaddress import IPv6Address

import pytest

from testbed.emulation.endpoint.nic import Carriers
from testbed.model.fabric import addressing
from testbed.model.fabric.ev_set import choose_evs
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import HOP_LIMIT, IPV6_BYTES
from testbed.mrc.wire.codec import encode
from testbed.mrc.wire.control import ReliabilityProbe

TOPOLOGY = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=2)
DSCP = 18


@pytest.mark.parametrize("dst", [1, 2, 3])
def test_every_ev_gets_its_own_path(dst: int) -> None:
    src, to = TOPOLOGY.host(0), TOPOLOGY.host(dst)
    carriers = Carriers(TOPOLOGY, src)
    peer = addressing.nic_address(TOPOLOGY, to).packed
    for ev in choose_evs(TOPOLOGY, src, to, evs=None, backups=0.25, seed=1):
        carrier = carriers.to(peer, ev.value, DSCP)
        header = carrier.outer_header(1234)
        word, length, next_header, hop_limit, source, destination = struct.unpack(
            "!IHBB16s16s", header
        )
        assert (word >> 28, word >> 22 & 0x3F, word >> 20 & 3) == (6, DSCP, 0b10)
        assert word & 0xFFFFF == ev.value >> 16
        assert (length, next_header, hop_limit) == (1234, 41, HOP_LIMIT)
        assert source == addressing.nic_address(TOPOLOGY, src).packed
        path = addressing.path_of_ev(TOPOLOGY, src, to, ev.value)
        assert path == ev.path
        assert IPv6Address(destination) == addressing.carrier_address(TOPOLOGY, src, to, path)
        assert carrier.address == (str(IPv6Address(destination)), 0)
        assert carrier.plane == path.plane


def test_outer_and_inner_header_carry_the_same_half_of_an_ev() -> None:
    """The upper one, which selects the path; the lower one is in the UDP source port."""
    src, to = (addressing.nic_address(TOPOLOGY, TOPOLOGY.host(i)).packed for i in (0, 3))
    ev = 0x001ABEEF
    inner, _ = encode(ReliabilityProbe(src, to, ev, 17, 0, 0, 0), 46)
    outer = Carriers(TOPOLOGY, TOPOLOGY.host(0)).to(to, ev, 46).outer_header(len(inner))
    labels = [struct.unpack("!I", header[:4])[0] & 0xFFFFF for header in (inner, outer)]
    assert labels == [0x001A, 0x001A]
    assert struct.unpack_from("!H", inner, IPV6_BYTES) == (0xBEEF,)


def test_a_carrier_is_computed_once() -> None:
    carriers = Carriers(TOPOLOGY, TOPOLOGY.host(0))
    peer = addressing.nic_address(TOPOLOGY, TOPOLOGY.host(3)).packed
    assert carriers.to(peer, 7, DSCP) is carriers.to(peer, 7, DSCP)
    assert carriers.to(peer, 7, DSCP) is not carriers.to(peer, 7, DSCP + 1)


def test_a_stranger_has_no_carrier() -> None:
    """A received packet may claim to come from anywhere."""
    carriers = Carriers(TOPOLOGY, TOPOLOGY.host(0))
    with pytest.raises(LookupError, match="no NIC of x"):
        carriers.to(IPv6Address("2001:db8::1").packed, 7, DSCP)
