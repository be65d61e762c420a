"""The demultiplexer: it decodes arrivals and hands them to their queue pair.

All arrivals of an endpoint pass through it. Bytes that are not an MRC packet from a peer for an
existing queue pair are dropped and counted here. A queue pair counts what it refuses itself;
`refused` returns the sum of both.
"""

from collections import Counter
from typing import Final

from testbed.mrc.constants import DscpClasses, EndpointOp
from testbed.mrc.endpoint import Endpoint, respond
from testbed.mrc.events import REFUSALS
from testbed.mrc.qp import QueuePair
from testbed.mrc.wire.codec import decode, decode_undamaged
from testbed.mrc.wire.control import EndpointRequest, EndpointResponse, Packet
from testbed.mrc.wire.datagram import Arrival, Datagram, Outbound
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS, Buffer, DecodeError, DecodeReason, WireOptions

_UNKNOWN_QP: Final = "unknown_qp"
_NOT_A_PEER: Final = "not_a_peer"
_MISDIRECTED: Final = "misdirected"
_UNKNOWN_REQUEST: Final = "unknown_request"
_REASONS: Final = (
    *(reason.name.lower() for reason in DecodeReason),
    _UNKNOWN_QP,
    _UNKNOWN_REQUEST,
    *REFUSALS,
)


class Demux:
    """The queue pairs of one endpoint, looked up by the fields of a packet.

    Attributes:
        endpoint: what these queue pairs share.
    """

    def __init__(
        self, address: bytes, dscp: DscpClasses, options: WireOptions = DEFAULT_OPTIONS
    ) -> None:
        """Begin without queue pairs, at a NIC address; `dscp` identifies trimmed packets."""
        self.endpoint = Endpoint()
        self._options = options
        self._address = address
        self._dscp = dscp
        self._trimmed = (dscp.trimmed, dscp.trimmed_lasthop)
        self._by_qpn: dict[int, QueuePair] = {}
        self._by_peer: dict[bytes, list[QueuePair]] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))

    def add(self, qp: QueuePair) -> None:
        """Add a queue pair: it shares the endpoint from now on.

        Raises:
            ValueError: its number is taken.
        """
        config = qp.config
        if config.qpn in self._by_qpn:
            raise ValueError(f"there is a queue pair {config.qpn} already")
        self._by_qpn[config.qpn] = qp
        qp.join(self.endpoint)
        self._by_peer.setdefault(config.peer_address, []).append(qp)

    def remove(self, qp: QueuePair) -> None:
        """Remove a queue pair; the packets that it has refused stay counted.

        Raises:
            KeyError: there is no such queue pair.
        """
        config = qp.config
        del self._by_qpn[config.qpn]
        others = self._by_peer[config.peer_address]
        others.remove(qp)
        if not others:
            del self._by_peer[config.peer_address]
        self._dropped.update(qp.counters.refusals())

    def receive(self, data: Buffer, arrival: Arrival) -> Outbound | None:
        """Process the bytes of an inner packet; returns an answer to send at once, if any.

        The bytes may be anything: what is no packet of MRC is dropped and counted.
        The queue pair keeps no view of `data`.
        """
        try:
            packet = decode(
                data,
                trimmed=arrival.dscp in self._trimmed,
                label_first=self._options.label_first,
            )
        except DecodeError as error:
            self._dropped[error.reason.name.lower()] += 1
            return None
        return self._take_in(packet, arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> Outbound | None:
        """Process a packet that arrived undamaged: nothing is checked or copied.

        Otherwise like `receive`.
        """
        label_first = self._options.label_first
        packet = decode_undamaged(datagram.header, datagram.payload, label_first=label_first)
        return self._take_in(packet, arrival)

    def _take_in(self, packet: Packet, arrival: Arrival) -> Outbound | None:
        if isinstance(packet, EndpointRequest):
            return self._request(packet, arrival)
        if isinstance(packet, EndpointResponse):
            self._response(packet, arrival)
            return None
        qp = self._by_qpn.get(packet.qpn)
        if qp is None:
            self._dropped[_UNKNOWN_QP] += 1
        else:
            qp.receive(packet, arrival)
        return None

    def _request(self, request: EndpointRequest, arrival: Arrival) -> Outbound | None:
        if not self._is_from_peer(request):
            return None
        if request.op is EndpointOp.PORT_STATUS_UPDATE:
            self.endpoint.update_ports(request, arrival.rx_ns)
            self._touch(request.source)
        return Outbound(request.source, respond(request, self._dscp, self._options))

    def _response(self, response: EndpointResponse, arrival: Arrival) -> None:
        if not self._is_from_peer(response):
            return
        if self.endpoint.respond(response, arrival.rx_ns):
            self._touch(response.source)
        else:
            self._dropped[_UNKNOWN_REQUEST] += 1

    def _touch(self, peer: bytes) -> None:
        """Give the queue pairs with a peer a turn: its ports concern all, an answer one of them."""
        for qp in self._by_peer[peer]:
            qp.touched = True

    def _is_from_peer(self, packet: EndpointRequest | EndpointResponse) -> bool:
        """Whether a packet comes from a peer to this NIC; counts the reason if not."""
        if packet.source not in self._by_peer:
            self._dropped[_NOT_A_PEER] += 1
        elif packet.destination != self._address:
            self._dropped[_MISDIRECTED] += 1
        else:
            return True
        return False

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason: here and by the queue pairs."""
        counts = self._dropped.copy()
        for qp in self._by_qpn.values():
            counts.update(qp.counters.refusals())
        return dict(counts)
