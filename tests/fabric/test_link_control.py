"""Faults on links: what stops, what goes on, what is said, and what comes back."""

import socket

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.names import directions_of
from testbed.model.fabric.topology import Topology
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import wait_until

from .packets import arrives, encapsulated, raw_socket, set_blackhole

pytestmark = [pytest.mark.root, pytest.mark.kernel]

LINK = "p0_t0_0--p0_t1_1"
NIC_LINK = "h0--p1_t0_0"


@pytest.mark.parametrize(("link", "path"), [(LINK, Path(0, 1)), (NIC_LINK, Path(1, 0))])
@in_sandbox
def test_a_blackhole_swallows_both_ways_and_carrier_stays(
    tiny: Topology, link: str, path: Path
) -> None:
    """Silently: carrier up, drops counted on both directions; other paths go on; healing heals."""
    src, dst = tiny.hosts
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        assert arrives(tiny, src, dst, path)
        set_blackhole(control, link, on=True)
        assert not arrives(tiny, src, dst, path)
        assert not arrives(tiny, dst, src, path)
        assert control.carrier(link) == (True, True)
        assert [control.tally(way)["dropped"] for way in directions_of(link)] == [1, 1]
        assert arrives(tiny, src, dst, Path(0, 0))
        set_blackhole(control, link, on=False)
        assert arrives(tiny, src, dst, path)
        assert arrives(tiny, dst, src, path)
        fabric.verify()
        fabric.sweep()


@in_sandbox
def test_a_blackhole_loses_what_waits_and_counts_it(tiny: Topology) -> None:
    """Of a second's worth of packets some have left; all others are lost, as they leave."""
    src, dst = tiny.hosts
    count = 300
    with Fabric(tiny) as fabric:
        counters = fabric.counters()
        control = LinkControl(tiny, fabric.namespaces)
        control.open(NIC_LINK)
        data, to = encapsulated(tiny, src, dst, Path(1, 0), bytes(4000))
        with raw_socket(src, socket.IPPROTO_RAW) as sender:
            for _ in range(count):
                sender.sendto(data, (to, 0))
        set_blackhole(control, NIC_LINK, on=True)
        left = counters.directions()["h0>p1_t0_0"].packets
        assert 0 < left < count
        wait_until(lambda: control.tally("h0>p1_t0_0")["dropped"] >= count - left)
        dropped = control.tally("h0>p1_t0_0")["dropped"]
        after = counters.directions()["h0>p1_t0_0"]
        assert after.packets == left
        assert after.dropped == dropped == count - left


@pytest.mark.parametrize(("link", "path"), [(LINK, Path(0, 1)), (NIC_LINK, Path(1, 0))])
@in_sandbox
def test_a_cut_takes_carrier_at_both_ends_and_restoring_brings_routes_back(
    tiny: Topology, link: str, path: Path
) -> None:
    """Every time, not only the first, and without harm to the switch's other ports."""
    src, dst = tiny.hosts
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        for _ in range(3):
            assert control.carrier(link) == (True, True)
            assert arrives(tiny, src, dst, path)
            control.cut(link)
            assert control.carrier(link) == (False, False)
            assert not arrives(tiny, src, dst, path, wait_s=0.1)
            assert not arrives(tiny, dst, src, path, wait_s=0.1)
            assert arrives(tiny, src, dst, Path(0, 0))
            control.restore(link)
        fabric.verify()
        fabric.sweep()


def test_no_cut_takes_more_than_its_own_link(tiny: Topology) -> None:
    """Each link in turn: exactly the paths over it are lost."""
    src, dst = tiny.hosts
    ways = [Path(plane, t1) for plane in range(2) for t1 in range(2)]

    def act() -> dict[str, list[int]]:
        lost = {}
        with Fabric(tiny) as fabric:
            control = LinkControl(tiny, fabric.namespaces)
            for link in tiny.links:
                control.cut(link)
                lost[link] = [
                    number
                    for number, way in enumerate(ways)
                    if not arrives(tiny, src, dst, way, wait_s=0.05)
                ]
                control.restore(link)
        return lost

    for name, found in run_in_sandbox(act).items():
        link = tiny.links[name]
        t1 = link.upper.node.index
        assert [ways[number] for number in found] == [
            way for way in ways if way.plane == link.plane and (not link.is_fabric or way.t1 == t1)
        ]


@in_sandbox
def test_doing_it_twice_changes_nothing_more(tiny: Topology) -> None:
    """Every fault and every healing may be repeated, and they may overlap."""
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        for on in (True, True, False, False):
            set_blackhole(control, LINK, on=on)
        control.cut(LINK)
        set_blackhole(control, LINK, on=True)
        control.cut(LINK)
        control.restore(LINK)
        set_blackhole(control, LINK, on=False)
        control.restore(LINK)
        fabric.verify()
        fabric.sweep()
