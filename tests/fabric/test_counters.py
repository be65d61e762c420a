"""Counters of directions and SIDs: exact, and cheap enough to sample."""

import socket

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import Topology
from tests.sandbox import in_sandbox
from tests.waiting import wait_until

from .packets import encapsulated, raw_socket

pytestmark = [pytest.mark.root, pytest.mark.kernel]


@in_sandbox
def test_every_packet_is_counted_where_it_goes_and_nowhere_else(tiny: Topology) -> None:
    """Ten packets on one path: ten on its four directions and three SIDs."""
    src, dst = tiny.hosts
    way = ("h0>p1_t0_0", "p1_t0_0>p1_t1_0", "p1_t1_0>p1_t0_1", "p1_t0_1>h1")
    with Fabric(tiny) as fabric:
        counters = fabric.counters()
        data, to = encapsulated(tiny, src, dst, Path(1, 0), bytes(1000))
        with raw_socket(src, socket.IPPROTO_RAW) as sender:
            for _ in range(10):
                sender.sendto(data, (to, 0))
        wait_until(lambda: counters.directions()[way[-1]].packets == 10)
        counts = counters.directions()
        directions = {name: (v.packets, v.bytes) for name, v in counts.items() if v.packets}
        sids = {node.name: packets for node, packets in counters.sids().items() if packets}
    assert directions == dict.fromkeys(way, (10, 10 * (14 + 40 + 40 + 1000)))
    assert sids == {"p1_t0_0": 10, "p1_t1_0": 10, "p1_t0_1": 10}
