"""What faults add to the propagation delay of what arrives at a host.

Propagation is modelled where packets arrive, by holding them; so is what a `delay` fault adds. The
link model's memory, which every process of the sandbox shares, says for each direction how much:
a store there is in force for the next packet that arrives, wherever.
"""

from functools import cache

from testbed.fabric.link_model.link_model import LinkModel
from testbed.model.fabric.addressing import (
    directions_of_path,
    nic_address,
    ordinary_address,
    path_of_ev,
)
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

_SOURCE = slice(8, 24)
_FLOW_LABEL = slice(2, 4)
_SOURCE_PORT = slice(40, 42)


class SlowLinks:
    """The extra delay of arrivals at one host; none where there is no link model."""

    def __init__(self, topology: Topology, host: Node) -> None:
        """Open the link model of this sandbox."""
        self._topology = topology
        self._host = host
        model = LinkModel.open(topology)
        self._delays_ns = None if model is None else model.delays_ns()
        self._index = {} if model is None else {name: i for i, name in enumerate(model.names)}
        self._crossed = cache(self._directions)

    def any(self) -> bool:
        """Whether a link is slow at the moment."""
        return self._delays_ns is not None and bool(self._delays_ns.any())

    def extra_ns(self, packet: bytes) -> int:
        """How much longer a packet takes for the links that it crossed; call if `any`.

        Args:
            packet: MRC's inner packet, one of a kernel connection, or an ordinary one with its
                outer header: each begins with an IPv6 header that has the sender's NIC, or its
                address in a plane, as its source, and the path in its label.
        """
        if self._delays_ns is None:
            return 0
        label, port = packet[_FLOW_LABEL], packet[_SOURCE_PORT]
        ev = int.from_bytes(port) << 16 | int.from_bytes(label)
        return sum(int(self._delays_ns[i]) for i in self._crossed(packet[_SOURCE], ev))

    def _directions(self, source: bytes, ev: int) -> tuple[int, ...]:
        """Where the directions that an EV of a host leads over stand; none of what is no host's."""
        topology, host = self._topology, self._host
        src = next((one for one in topology.hosts if source in _addresses(topology, one)), None)
        if src is None or src == host:
            return ()
        path = path_of_ev(topology, src, host, ev)
        return tuple(self._index[name] for name in directions_of_path(topology, src, host, path))


def _addresses(topology: Topology, host: Node) -> frozenset[bytes]:
    """What a host sends from."""
    planes = (ordinary_address(topology, host, plane) for plane in range(topology.planes))
    return frozenset(one.packed for one in (nic_address(topology, host), *planes))
