"""Carriers: the outer IPv6 headers that take packets along the paths of EVs."""

from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from testbed.model.fabric import addressing
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc.constants import ECT0, HOP_LIMIT
from testbed.mrc.wire.headers import IPV6

_IPV6_IN_IPV6: Final = 41
_OUTER: Final = IPV6.struct()


@dataclass(frozen=True, slots=True)
class Carrier:
    """How to send on one EV to one peer in one traffic class.

    Attributes:
        plane: the port that it leaves by.
        address: the outer destination, as a socket address: the kernel routes by it.
        template: the outer header before the payload length.
        rest: the outer header after the payload length.
    """

    plane: int
    address: tuple[str, int]
    template: bytes
    rest: bytes

    def outer_header(self, inner_bytes: int) -> bytes:
        """The 40 bytes before an inner packet of `inner_bytes`."""
        return self.template + inner_bytes.to_bytes(2, "big") + self.rest


class Carriers:
    """The carriers from one host, computed at first use."""

    def __init__(self, topology: Topology, host: Node) -> None:
        self._topology = topology
        self._host = host
        self._source = addressing.nic_address(topology, host).packed
        self._carriers: dict[tuple[bytes, int, int, int], Carrier] = {}

    def to(self, peer: bytes, ev: int, dscp: int, ecn: int = ECT0) -> Carrier:
        """The carrier to the NIC with the address `peer`.

        Raises:
            LookupError: no host of the fabric has that address.
        """
        key = peer, ev, dscp, ecn
        carrier = self._carriers.get(key)
        if carrier is None:
            carrier = self._carriers[key] = self._compute(peer, ev, dscp << 2 | ecn)
        return carrier

    def _compute(self, peer: bytes, ev: int, traffic_class: int) -> Carrier:
        topology, host = self._topology, self._host
        dst = addressing.host_of_nic(topology, IPv6Address(peer))
        if dst is None:
            raise LookupError(f"no NIC of {topology.name} has the address {peer.hex(':', 2)}")
        path = addressing.path_of_ev(topology, host, dst, ev)
        address = addressing.carrier_address(topology, host, dst, path)
        label = addressing.flow_label_of_ev(ev)
        header = _OUTER.pack(
            6 << 28 | traffic_class << 20 | label,
            0,
            _IPV6_IN_IPV6,
            HOP_LIMIT,
            self._source,
            address.packed,
        )
        return Carrier(path.plane, (str(address), 0), header[:4], header[6:])
