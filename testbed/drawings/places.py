"""Where a picture of a fabric has its nodes: planes side by side, T1s above T0s above the hosts."""

from testbed.model.fabric.nodes import Node, Tier
from testbed.model.fabric.topology import Topology

HEIGHT = {Tier.HOST: 0.0, Tier.T0: 1.5, Tier.T1: 3.0}
SWITCH_PITCH = 1.0
"""From one switch to the next; a host's pitch follows from the width of the whole."""

_PLANE_GAP = 0.6
_MIN_HOST_PITCH, _MAX_HOST_PITCH = 0.75, 2.5

Places = dict[Node, tuple[float, float]]
"""The middle of every node."""


def places_of(topology: Topology) -> Places:
    """Where every node is; rows are centred over one another, and the leftmost node is at x 0."""
    wide = SWITCH_PITCH * max(topology.t0_per_plane, topology.t1_per_plane)
    places = {}
    for switch in topology.switches:
        count = topology.t0_per_plane if switch.tier is Tier.T0 else topology.t1_per_plane
        x = switch.plane * (wide + _PLANE_GAP) + wide / count * (switch.index + 0.5)
        places[switch] = x, HEIGHT[switch.tier]
    whole = topology.planes * (wide + _PLANE_GAP) - _PLANE_GAP
    steps = max(len(topology.hosts) - 1 + topology.t0_per_plane - 1, 1)  # a gap between racks
    step = min(max((whole - SWITCH_PITCH) / steps, _MIN_HOST_PITCH), _MAX_HOST_PITCH)
    offset = (whole - step * (len(topology.hosts) + topology.t0_per_plane - 2)) / 2
    for host in topology.hosts:
        places[host] = offset + step * (host.index + topology.rack(host)), HEIGHT[Tier.HOST]
    least = min(x for x, _ in places.values())
    return {node: (x - least, y) for node, (x, y) in places.items()}
