"""One connection to the switch in OpenFlow 1.3: requests, replies, and the flows of wires.

A wire is two flows of the lower priority, one each way. A blackhole is a flow of the higher
priority with no action for each direction that it strikes: packets that come in at that end are
dropped, and both ends keep carrier.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.emulation.controller._ryu import hub, ofproto, parser
from testbed.emulation.controller.plan import DROP_PRIORITY, WIRE_PRIORITY
from testbed.emulation.fabric.openvswitch import OpenFlowWire
from testbed.model.errors import RunFailedError

REPLY_TIMEOUT_S = 2.0

log = logging.getLogger("testbed.emulation.controller")


class SwitchError(RunFailedError):
    """The switch refused a request, did not answer in time, or is gone."""


Message = bytes
"""A serialised OpenFlow message without its transaction ID; it may be sent more than once."""

_XID = slice(4, 8)
"""The transaction ID within a message: OpenFlow 1.3.5, 7.1."""


@dataclass(slots=True)
class _Request:
    """A request that waits for its reply."""

    xid: int = 0
    done: Any = field(default_factory=hub.Event)
    body: list[Any] = field(default_factory=list)
    answered_ns: int = 0
    error: str | None = None

    def set_xid(self, xid: int) -> None:
        """Take the transaction ID; Ryu calls this."""
        self.xid = xid


class Session:
    """One connection of the switch, from its handshake to its end.

    Attributes:
        datapath: Ryu's object for the connection.
        port_status_ns: when each port last reported a new state.
    """

    def __init__(self, datapath: Any) -> None:
        """Take over a connection whose handshake Ryu has completed."""
        self.datapath = datapath
        self.port_status_ns: dict[int, int] = {}
        self._requests: dict[int, _Request] = {}
        self._hardware: dict[int, str] = {}
        self._flows: dict[tuple[int, int, int, int | None], Message] = {}
        self._barrier = _serialised(parser.OFPBarrierRequest(datapath))

    # --- messages -------------------------------------------------------------------------

    def add_patch(self, wire: OpenFlowWire) -> list[Message]:
        """Join the two ends of a wire."""
        lower, upper = wire.ports
        return [
            self._flow(ofproto.OFPFC_ADD, WIRE_PRIORITY, a, output=b)
            for a, b in ((lower, upper), (upper, lower))
        ]

    def add_drops(self, ports: Sequence[int]) -> list[Message]:
        """Drop what comes in at these ports."""
        return [self._flow(ofproto.OFPFC_ADD, DROP_PRIORITY, port) for port in ports]

    def remove_drops(self, ports: Sequence[int]) -> list[Message]:
        """Drop it no longer; a port without a drop is left as it is."""
        return [self._flow(ofproto.OFPFC_DELETE_STRICT, DROP_PRIORITY, port) for port in ports]

    def _flow(
        self, command: int, priority: int, in_port: int, output: int | None = None
    ) -> Message:
        """A change of the flow table; serialised once, as Ryu takes a tenth of a ms for it."""
        key = command, priority, in_port, output
        if key not in self._flows:
            actions = [] if output is None else [parser.OFPActionOutput(output)]
            apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)
            self._flows[key] = _serialised(
                parser.OFPFlowMod(
                    self.datapath,
                    command=command,
                    priority=priority,
                    match=parser.OFPMatch(in_port=in_port),
                    instructions=[apply],
                    out_port=ofproto.OFPP_ANY,
                    out_group=ofproto.OFPG_ANY,
                )
            )
        return self._flows[key]

    def set_ports(self, wire: OpenFlowWire, *, up: bool) -> list[Message]:
        """Set both ends up or down, which gives carrier to the nodes or takes it away."""
        return [
            _serialised(
                parser.OFPPortMod(
                    self.datapath,
                    port_no=port,
                    hw_addr=self._hardware[port],
                    config=0 if up else ofproto.OFPPC_PORT_DOWN,
                    mask=ofproto.OFPPC_PORT_DOWN,
                )
            )
            for port in wire.ports
        ]

    # --- requests -------------------------------------------------------------------------

    def commit(self, messages: Sequence[Message]) -> int:
        """Make changes, and wait until the switch has made them.

        They and the barrier are sent at once, so that the switch wakes up once.

        Returns:
            When the switch had confirmed them, in ns of CLOCK_MONOTONIC.

        Raises:
            SwitchError: it refused one, did not answer in time, or the connection ended.
        """
        # an error comes before the barrier's reply
        return self._request(*messages, self._barrier).answered_ns

    def learn_ports(self, wires: Sequence[OpenFlowWire]) -> None:
        """Read the switch's ports, and serialise the drops of these wires.

        Raises:
            SwitchError: a port is not the end of a wire that it should be, or no reply came.
        """
        ports = self._request(_serialised(parser.OFPPortDescStatsRequest(self.datapath, 0))).body
        names = {port.port_no: port.name.decode() for port in ports}
        self._hardware = {port.port_no: port.hw_addr for port in ports}
        for wire in wires:
            for end, number in zip(wire.ends, wire.ports, strict=True):
                if names.get(number) != end:
                    raise SwitchError(f"port {number} is {names.get(number)}, not {end}")
            self.add_drops(wire.ports)  # serialises them before one is due
            self.remove_drops(wire.ports)

    def flows(self) -> Mapping[tuple[int, int], int]:
        """The packets of every flow, by (priority, input port).

        Raises:
            SwitchError: no reply came.
        """
        every = parser.OFPFlowStatsRequest(
            self.datapath, out_port=ofproto.OFPP_ANY, out_group=ofproto.OFPG_ANY
        )
        flows = self._request(_serialised(every)).body
        return {(flow.priority, flow.match["in_port"]): flow.packet_count for flow in flows}

    def _request(self, *messages: Message) -> _Request:
        """Send messages at once, and wait for the reply to the last."""
        requests = [_Request() for _ in messages]
        for request in requests:
            self._requests[self.datapath.set_xid(request)] = request
        try:
            self.datapath.send(
                b"".join(
                    _with_xid(message, request.xid)
                    for message, request in zip(messages, requests, strict=True)
                )
            )
            if not requests[-1].done.wait(REPLY_TIMEOUT_S):
                raise SwitchError(f"the switch did not answer within {REPLY_TIMEOUT_S:g} s")
            for request in requests:
                if request.error is not None:
                    raise SwitchError(request.error)
        finally:
            for request in requests:
                self._requests.pop(request.xid, None)
        return requests[-1]

    # --- replies --------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        """Take in a reply, an error or a port's new state."""
        match message:
            case parser.OFPPortStatus():
                self.port_status_ns[message.desc.port_no] = time.monotonic_ns()
            case parser.OFPErrorMsg():
                error = f"the switch refused: type {message.type}, code {message.code}"
                log.error(error)
                self._complete(message.xid, error)
            case parser.OFPBarrierReply():
                self._complete(message.xid)
            case _ if message.xid in self._requests:  # one part of a multipart reply
                self._requests[message.xid].body.extend(message.body)
                if not message.flags & ofproto.OFPMPF_REPLY_MORE:
                    self._complete(message.xid)

    def close(self) -> None:
        """Fail the requests that still wait: the connection has ended."""
        for xid in list(self._requests):
            self._complete(xid, "the switch disconnected")

    def _complete(self, xid: int, error: str | None = None) -> None:
        request = self._requests.get(xid)
        if request is not None and not request.done.is_set():
            request.answered_ns = time.monotonic_ns()
            request.error = error
            request.done.set()


def _serialised(message: Any) -> Message:
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def _with_xid(message: Message, xid: int) -> bytes:
    return message[: _XID.start] + xid.to_bytes(4, "big") + message[_XID.stop :]


SessionSource = Callable[[], Session]
"""Returns the present session; raises SwitchError if there is none in time."""
