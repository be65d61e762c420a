"""The ports of a host of the simulated fabric, and the way of its packets to other hosts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from testbed.host.rounds import PortScheduler
from testbed.model.fabric.addressing import path_of_ev
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc import Datagram
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.packet import Deliver, Hop, Packet


class Receiver(Protocol):
    """A host, as others send to it."""

    @property
    def node(self) -> Node: ...

    @property
    def deliver(self) -> Deliver:
        """Receives what comes out of the fabric."""
        ...


@dataclass(frozen=True, slots=True)
class _Destination:
    """How an EV leads to a peer: the sending port, the route, the function that receives there."""

    plane: int
    route: tuple[Hop, ...]
    deliver: Deliver


class Egress:
    """Hands the packets of one host to the fabric.

    Attributes:
        ports: the schedule of its ports.
    """

    def __init__(
        self,
        topology: Topology,
        host: Node,
        engine: Engine,
        fabric: Fabric,
        receivers: Mapping[bytes, Receiver],
        round_ns: int,
    ) -> None:
        """Begin with idle ports.

        Args:
            topology: the fabric's.
            host: which host this is.
            engine: the virtual time.
            fabric: its links.
            receivers: finds each host by its NIC address.
            round_ns: the time from one round of sending to the next.
        """
        self.ports: Final = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, round_ns
        )
        self._topology = topology
        self._host = host
        self._engine = engine
        self._fabric = fabric
        self._receivers = receivers
        self._destinations: dict[tuple[bytes, int], _Destination] = {}

    def send(self, datagram: Datagram, peer: bytes, now_ns: int) -> int:
        """Hand a packet to a port; returns the plane that it goes through."""
        destination = self._destinations.get((peer, datagram.ev))
        if destination is None:
            destination = self._add_destination(peer, datagram.ev)
        route = destination.route
        packet = Packet(datagram, route, destination.deliver)
        wait_ns = self.ports.sent(destination.plane, packet.size, now_ns)
        transmission = datagram.transmission
        if transmission is not None:
            transmission.set_port_wait(wait_ns)
        route[0].offer(now_ns, packet)
        return destination.plane

    def _add_destination(self, peer: bytes, ev: int) -> _Destination:
        receiver = self._receivers[peer]
        path = path_of_ev(self._topology, self._host, receiver.node, ev)
        route = self._fabric.route(self._host, receiver.node, path)
        deliver = self._held_back(receiver.deliver, self._fabric.held_back_ns(len(route)))
        destination = self._destinations[peer, ev] = _Destination(path.plane, route, deliver)
        return destination

    def _held_back(self, deliver: Deliver, delay_ns: int) -> Deliver:
        """A function that delivers a packet `delay_ns` after it came out of the fabric."""
        if delay_ns == 0:
            return deliver
        engine = self._engine

        def hold(now_ns: int, packet: Packet) -> None:
            engine.at(now_ns + delay_ns, deliver, packet)

        return hold
