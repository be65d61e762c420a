"""Extra interfaces have indexes and names of their own; receive work spreads over the CPUs."""

from collections import Counter

import pytest

from testbed.emulation.fabric.layout import Layout, receive_cpu
from testbed.model.fabric.topology import Topology


def test_every_interface_has_its_own_index_and_a_name_that_linux_takes(
    four_planes: Topology,
) -> None:
    """No index twice, no name above 15 characters."""
    wires = ("p0_t0_0--p0_t1_0", "h0--p0_t0_0")
    layout = Layout.of(four_planes, wires)
    names = layout.device_names
    sid_devices = 2 * (len(four_planes.switches) + len(four_planes.hosts))
    expected = 1 + 2 * len(four_planes.links) + sid_devices + 2 * len(wires)
    assert len(names) == expected
    assert max(map(len, names.values())) <= 15


def test_wires_are_numbered_in_order(tiny: Topology) -> None:
    """The first wire's far ends are w0a, towards the lower node, and w0b."""
    layout = Layout.of(tiny, ["p1_t0_1--p1_t1_0", "h0--p0_t0_0"])
    assert [end.name for end in layout.wire_ends("p1_t0_1--p1_t1_0")] == ["w0a", "w0b"]
    assert [end.node.name for end in layout.wire_ends("h0--p0_t0_0")] == ["h0", "p0_t0_0"]


def test_an_unknown_wire_is_refused(tiny: Topology) -> None:
    """By its name."""
    with pytest.raises(ValueError, match="p9_t0_0"):
        Layout.of(tiny, ["p9_t0_0--p9_t1_0"])


@pytest.mark.parametrize("cpus", [1, 2, 4])
@pytest.mark.parametrize("planes", [1, 4])
def test_receive_work_is_spread_evenly(planes: int, cpus: int) -> None:
    """The four T1s of a plane, and the planes, share the CPUs alike."""
    topology = Topology(
        name="x",
        planes=planes,
        t0_per_plane=2,
        t1_per_plane=4,
        hosts_per_t0=4,
        port_rate="400 Gb/s",
    )
    links = topology.links.values()
    used = Counter(receive_cpu(topology, link, cpus) for link in links)
    assert set(used.values()) == {len(links) // cpus}
