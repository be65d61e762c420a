"""The extra propagation delay, by faults, of packets that arrive at a host.

Receivers model propagation by holding packets, and so they do for the delay of a `delay` fault. The
link model's memory, which all processes of the sandbox share, has the extra delay of each
direction: a store there is in force for the next packet that arrives at any host.
"""

from functools import cache

from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.model.fabric.addressing import (
    directions_of_path,
    ev_of_halves,
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
    """The extra delay of packets that arrive at one host; none without the link model."""

    def __init__(self, topology: Topology, host: Node) -> None:
        """Open the link model of this sandbox."""
        self._topology = topology
        self._host = host
        self._model = LinkModel.open(topology)
        self._crossed = cache(self._directions)

    def any(self) -> bool:
        """Whether any link is slow at the moment."""
        return self._model is not None and bool(self._model.records["delay_ns"].any())

    def extra_ns(self, packet: bytes) -> int:
        """The extra delay in ns of the links that a packet has crossed; to be called if `any`.

        Args:
            packet: MRC's inner packet, a packet of a kernel connection, or an ordinary packet with
                its outer header. Each begins with an IPv6 header whose source is the sender's NIC,
                or its address in a plane, and whose flow label has the path.
        """
        if self._model is None:
            return 0
        delays_ns = self._model.records["delay_ns"]
        label, port = packet[_FLOW_LABEL], packet[_SOURCE_PORT]
        ev = ev_of_halves(int.from_bytes(label), int.from_bytes(port))
        return sum(int(delays_ns[i]) for i in self._crossed(self._model, packet[_SOURCE], ev))

    def _directions(self, model: LinkModel, source: bytes, ev: int) -> tuple[int, ...]:
        """Indexes of the directions that an EV of a host crosses; none if the source is no host."""
        topology, host = self._topology, self._host
        src = next((node for node in topology.hosts if source in _addresses(topology, node)), None)
        if src is None or src == host:
            return ()
        path = path_of_ev(topology, src, host, ev)
        return tuple(map(model.index, directions_of_path(topology, src, host, path)))


def _addresses(topology: Topology, host: Node) -> frozenset[bytes]:
    """The source addresses of a host."""
    planes = (ordinary_address(topology, host, plane) for plane in range(topology.planes))
    return frozenset(address.packed for address in (nic_address(topology, host), *planes))
