"""What the queue pairs of one NIC share: the endpoint requests under way, the state of ports.

An endpoint request goes to QPN 2 of the peer, and its response names nothing but the 16-bit id of
the request (OCP MRC 1.0). So the NIC has one table of the ids that are outstanding.

A port status update has the state of all ports in one mask and holds for every queue pair with that
peer. So there is one `PortStatus` for each peer.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from testbed.mrc.constants import REQUEST_ID_MASK, DscpClasses, EndpointOp
from testbed.mrc.ports import PortStatus
from testbed.mrc.wire.codec import seal
from testbed.mrc.wire.control import EndpointRequest, EndpointResponse
from testbed.mrc.wire.datagram import Datagram
from testbed.mrc.wire.options import DEFAULT_OPTIONS, WireOptions

_MAX_OUTSTANDING: Final = 1 << 13
"""The most requests that await an answer; beyond it the oldest counts as lost. Ours."""

Answered = Callable[[int], None]
"""Called with the time in ns when a request has been answered."""


class _Outstanding(NamedTuple):
    peer: bytes
    op: EndpointOp
    answered: Answered


class Endpoint:
    """The endpoint of one NIC.

    Attributes:
        other_ops: responses whose op is not that of the request: counted, not refused, since
            sources disagree on the place of this field.
    """

    def __init__(self, first_id: int = 0) -> None:
        """Begin with nothing outstanding; the first request has the id after `first_id`."""
        self._last_id = first_id
        self._outstanding: dict[int, _Outstanding] = {}
        self._ports: dict[bytes, PortStatus] = {}
        self.other_ops = 0

    def ask(self, peer: bytes, op: EndpointOp, answered: Answered) -> int:
        """Register a request to a peer; returns its id, which no other outstanding request has."""
        outstanding = self._outstanding
        if len(outstanding) >= _MAX_OUTSTANDING:
            del outstanding[next(iter(outstanding))]
        request_id = (self._last_id + 1) & REQUEST_ID_MASK
        while request_id in outstanding:
            request_id = (request_id + 1) & REQUEST_ID_MASK
        self._last_id = request_id
        outstanding[request_id] = _Outstanding(peer, op, answered)
        return request_id

    def respond(self, response: EndpointResponse, now_ns: int) -> bool:
        """Process a response; returns whether it answers an outstanding request to its source."""
        request = self._outstanding.get(response.request_id)
        if request is None or request.peer != response.source:
            return False
        del self._outstanding[response.request_id]
        self.other_ops += response.op != request.op
        request.answered(now_ns)
        return True

    def ports(self, peer: bytes, base_rtt_ns: int) -> PortStatus:
        """The ports of this NIC and of a peer, for all queue pairs with it."""
        ports = self._ports.get(peer)
        if ports is None:
            ports = self._ports[peer] = PortStatus(base_rtt_ns)
        return ports

    def update_ports(self, update: EndpointRequest, now_ns: int) -> None:
        """Process a port status update of a peer; its queue pairs see it when they next send."""
        ports = self._ports.get(update.source)
        if ports is not None:
            timestamp = update.tx_timestamp if update.ftype == 1 else None
            ports.set_peer(update.port_mask, timestamp, now_ns)


def respond(
    request: EndpointRequest, dscp: DscpClasses, options: WireOptions = DEFAULT_OPTIONS
) -> Datagram:
    """Answer an endpoint request (QPN 2) on the EV that it came on, in the control class."""
    response = EndpointResponse(
        request.destination,
        request.source,
        request.ev,
        request.op,
        request.request_id,
        request.tx_timestamp,
    )
    return seal(response, dscp.control, options)
