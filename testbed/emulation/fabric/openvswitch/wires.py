"""OpenFlow wires: the links that run through Open vSwitch.

    p0_t0_0 ----- w0a [ bridge `wires` ] w0b ----- p0_t1_1       wire 0: OpenFlow ports 1 and 2

A wire is a link cut in two: each of its nodes has one end of a veth pair, and the bridge has the
other ends.
"""

from dataclasses import dataclass

from testbed.emulation.fabric.interfaces import SENT_PACKETS, read_counters
from testbed.emulation.fabric.layout import Layout
from testbed.model.fabric.nodes import Link

MAX_USERSPACE_WIRES = 4
"""Wires that one thread of the user-space datapath can carry besides its other work."""


@dataclass(frozen=True, slots=True)
class OpenFlowWire:
    """A link that runs through the bridge.

    Attributes:
        link: the link.
        ends: the interfaces at the bridge: the lower node's, then the upper node's.
        ports: their OpenFlow port numbers.
    """

    link: Link
    ends: tuple[str, str]
    ports: tuple[int, int]


def wires_of(layout: Layout) -> tuple[OpenFlowWire, ...]:
    """The wires of a fabric, in the order of their numbers."""
    wires = []
    for index, name in enumerate(layout.wires):
        lower, upper = layout.wire_ends(name)
        link = layout.topology.links[name]
        wires.append(OpenFlowWire(link, (lower.name, upper.name), (2 * index + 1, 2 * index + 2)))
    return tuple(wires)


def forwarded_packets(wire: OpenFlowWire) -> tuple[int, int]:
    """Packets that the bridge has sent so far to the lower and to the upper node."""
    counters = read_counters()
    lower, upper = wire.ends
    return counters[lower][SENT_PACKETS], counters[upper][SENT_PACKETS]
