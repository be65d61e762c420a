"""How a fabric reads the path of a packet: SRv6 uSIDs, a hash, or fields of its EV.

With SRv6 the host writes the path into an outer header. Without an outer header switches forward by
the destination, and where several links lead there they use the EV, which every packet carries in
its UDP source port and its flow label:

- ECMP: a switch hashes addresses, ports and flow label. The host cannot know which path an EV has.
- Structured EV: each tier reads its own field of the EV. The NIC's port and the T0's uplink are
  fields of the half in the UDP source port, from the most significant bit on.
"""

from enum import StrEnum

from testbed.model.fabric.addressing import Path, ev_of_halves, flow_label_of_ev, source_port_of_ev

PLANE_BITS = 3
UPLINK_BITS = 9
MOST_UPLINKS = 128
"""Most uplinks of a T0 that reads structured EVs. Each has a routing table of its own, and the
kernel has few free numbers for tables (`fabric/plain_routes.py`)."""

_REST_BITS = 16 - PLANE_BITS - UPLINK_BITS


class EvMode(StrEnum):
    """How the fabric finds the path of a packet."""

    SRV6 = "srv6"
    ECMP = "ecmp"
    STRUCTURED = "structured"


def core_ev(mode: EvMode, ev: int) -> int:
    """Convert an EV of a mode into the form that the protocol core has, or back.

    The core has the half in the flow label first, as two sources write EVs. A structured EV has the
    half in the UDP source port first (one source), so its halves are swapped.
    """
    if mode is not EvMode.STRUCTURED:
        return ev
    return ev_of_halves(source_port_of_ev(ev), flow_label_of_ev(ev))


def structured_path(ev: int) -> Path:
    """What the tiers read in a structured EV: the NIC its port, the T0 its uplink."""
    port = flow_label_of_ev(ev)  # the upper half
    return Path(port >> UPLINK_BITS + _REST_BITS, port >> _REST_BITS & (1 << UPLINK_BITS) - 1)


def source_ports(path: Path) -> range:
    """The UDP source ports of the structured EVs of a path."""
    first = (path.plane << UPLINK_BITS | (path.t1 or 0)) << _REST_BITS
    return range(first, first + (1 << _REST_BITS))
