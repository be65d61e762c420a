"""A host's NIC and EVs in the form that the MRC core expects."""

from collections.abc import Iterable

from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.mrc import EvEntry, PortAttributes


def port_attributes(topology: Topology, host: Node) -> PortAttributes:
    """The NIC of a host."""
    return PortAttributes(
        nic_address(topology, host).packed,
        PAYLOAD_MTU,
        topology.propagation_rtt_ns,
        topology.planes * topology.port_rate_bps,
        topology.dilation,
        trimming=topology.queue.last_hop.trim is not None,
    )


def ev_entries(evs: Iterable[EvChoice]) -> tuple[EvEntry, ...]:
    """The entries of an EV profile; EVs that are known to share a path have the same path key."""
    return tuple(EvEntry(ev.value, ev.path.plane, _path_key(ev), ev.active) for ev in evs)


_KEY_BITS = 32
"""More bits than the key of a path has."""


def _path_key(ev: EvChoice) -> int:
    if ev.hashed:
        return ev.value + 1 << _KEY_BITS
    return ev.path.plane << 16 | (ev.path.t1 or 0)
