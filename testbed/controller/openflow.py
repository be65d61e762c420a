"""One connection to the switch: its requests, and a wire's messages in OpenFlow 1.3."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.controller._ryu import hub, ofproto, parser
from testbed.controller.flows import DROP_PRIORITY, PATCH_PRIORITY
from testbed.fabric.openvswitch.daemons import Wire
from testbed.model.errors import RunFailedError

REPLY_TIMEOUT_S = 2.0


class SwitchError(RunFailedError):
    """The switch refused a request, did not answer in time, or is gone."""


Message = bytes
"""A message in the format of the wire, for any transaction ID: it may be sent more than once."""

_XID = slice(4, 8)
"""Where the transaction ID is: OpenFlow 1.3.5, 7.1."""


@dataclass(slots=True)
class _Request:
    """What awaits the reply to one transaction ID."""

    xid: int = 0
    done: Any = field(default_factory=hub.Event)
    body: list[Any] = field(default_factory=list)
    answered_ns: int = 0
    error: str | None = None

    def set_xid(self, xid: int) -> None:
        """Take the ID that Ryu gives to whatever is sent."""
        self.xid = xid


class Session:
    """One connection of the switch, from its handshake to its end."""

    def __init__(self, datapath: Any) -> None:
        """Take over a connection that Ryu has completed the handshake of."""
        self.datapath = datapath
        self.port_status_ns: dict[int, int] = {}
        self._requests: dict[int, _Request] = {}
        self._hardware: dict[int, str] = {}
        self._flows: dict[tuple[int, int, int, int | None], Message] = {}
        self._barrier = _written(parser.OFPBarrierRequest(datapath))

    # --- messages -------------------------------------------------------------------------

    def patch(self, wire: Wire) -> list[Message]:
        """Join the two ends of a wire."""
        lower, upper = wire.ports
        return [
            self._flow(ofproto.OFPFC_ADD, PATCH_PRIORITY, a, output=b)
            for a, b in ((lower, upper), (upper, lower))
        ]

    def drop(self, ports: Sequence[int]) -> list[Message]:
        """Drop what comes in at these ports."""
        return [self._flow(ofproto.OFPFC_ADD, DROP_PRIORITY, port) for port in ports]

    def undrop(self, ports: Sequence[int]) -> list[Message]:
        """Take back `drop`; nothing happens where there was none."""
        return [self._flow(ofproto.OFPFC_DELETE_STRICT, DROP_PRIORITY, port) for port in ports]

    def _flow(
        self, command: int, priority: int, in_port: int, output: int | None = None
    ) -> Message:
        """A change of the flow table; written out once, as Ryu takes a tenth of a ms for it."""
        key = command, priority, in_port, output
        if key not in self._flows:
            actions = [] if output is None else [parser.OFPActionOutput(output)]
            apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)
            self._flows[key] = _written(
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

    def power(self, wire: Wire, *, up: bool) -> list[Message]:
        """Set both ends up or down, which gives the nodes carrier or takes it from them."""
        return [
            _written(
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

        All of them, and the barrier, are sent at once: it wakes up for them once.

        Returns:
            When the switch had told that they are made, in ns of CLOCK_MONOTONIC.

        Raises:
            SwitchError: it refused one, did not answer in time, or the connection ended.
        """
        # errors come before the barrier's reply
        return self._ask(*messages, self._barrier).answered_ns

    def learn_ports(self, wires: Sequence[Wire]) -> None:
        """Read the switch's ports, and write out what will be asked of these wires.

        Raises:
            SwitchError: an end of a wire is not there under its number, or no answer came.
        """
        ports = self._ask(_written(parser.OFPPortDescStatsRequest(self.datapath, 0))).body
        names = {port.port_no: port.name.decode() for port in ports}
        self._hardware = {port.port_no: port.hw_addr for port in ports}
        for wire in wires:
            for end, number in zip(wire.ends, wire.ports, strict=True):
                if names.get(number) != end:
                    raise SwitchError(f"port {number} is {names.get(number)}, not {end}")
            self.drop(wire.ports)  # written out before one is due
            self.undrop(wire.ports)

    def flows(self) -> Mapping[tuple[int, int], int]:
        """Packets of every flow, by (priority, port it comes in at).

        Raises:
            SwitchError: no answer came.
        """
        every = parser.OFPFlowStatsRequest(
            self.datapath, out_port=ofproto.OFPP_ANY, out_group=ofproto.OFPG_ANY
        )
        flows = self._ask(_written(every)).body
        return {(flow.priority, flow.match["in_port"]): flow.packet_count for flow in flows}

    def _ask(self, *messages: Message) -> _Request:
        """Send messages at once, and wait for the answer to the last."""
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

    def barrier_replied(self, message: Any) -> None:
        """Take in a barrier reply."""
        self._complete(message.xid)

    def stats_replied(self, message: Any) -> None:
        """Take in one part of a multipart reply."""
        request = self._requests.get(message.xid)
        if request is not None:
            request.body.extend(message.body)
            if not message.flags & ofproto.OFPMPF_REPLY_MORE:
                self._complete(message.xid)

    def refused(self, message: Any) -> None:
        """Take in an error message."""
        self._complete(message.xid, f"the switch refused: type {message.type}, code {message.code}")

    def port_changed(self, message: Any) -> None:
        """Take in a port's new state."""
        self.port_status_ns[message.desc.port_no] = time.monotonic_ns()

    def close(self) -> None:
        """Fail everything that still waits: the connection has ended."""
        for xid in list(self._requests):
            self._complete(xid, "the switch disconnected")

    def _complete(self, xid: int, error: str | None = None) -> None:
        request = self._requests.get(xid)
        if request is not None and not request.done.is_set():
            request.answered_ns = time.monotonic_ns()
            request.error = error
            request.done.set()


def _written(message: Any) -> Message:
    """What Ryu makes of a message of its own."""
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def _with_xid(message: Message, xid: int) -> bytes:
    return message[: _XID.start] + xid.to_bytes(4, "big") + message[_XID.stop :]


SessionSource = Callable[[], Session]
"""Returns the present session; raises SwitchError where there is none in time."""
