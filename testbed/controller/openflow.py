"""One connection to the switch: its requests, and a wire's messages in OpenFlow 1.3."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.controller._ryu import hub, ofproto, parser
from testbed.controller.flows import DROP_PRIORITY, PATCH_PRIORITY
from testbed.fabric.openvswitch import Wire
from testbed.model.errors import RunFailedError

REPLY_TIMEOUT_S = 2.0


class SwitchError(RunFailedError):
    """The switch refused a request, did not answer in time, or is gone."""


@dataclass(slots=True)
class _Request:
    """What awaits the reply to one transaction ID."""

    done: Any = field(default_factory=hub.Event)
    body: list[Any] = field(default_factory=list)
    error: str | None = None


class Session:
    """One connection of the switch, from its handshake to its end."""

    def __init__(self, datapath: Any) -> None:
        """Take over a connection that Ryu has completed the handshake of."""
        self.datapath = datapath
        self.port_status_ns: dict[int, int] = {}
        self._requests: dict[int, _Request] = {}
        self._hardware: dict[int, str] = {}

    # --- messages -------------------------------------------------------------------------

    def patch(self, wire: Wire) -> list[Any]:
        """Join the two ends of a wire."""
        lower, upper = wire.ports
        return [
            self._flow(ofproto.OFPFC_ADD, PATCH_PRIORITY, a, output=b)
            for a, b in ((lower, upper), (upper, lower))
        ]

    def drop(self, ports: Sequence[int]) -> list[Any]:
        """Drop what comes in at these ports."""
        return [self._flow(ofproto.OFPFC_ADD, DROP_PRIORITY, port) for port in ports]

    def undrop(self, ports: Sequence[int]) -> list[Any]:
        """Take back `drop`; nothing happens where there was none."""
        return [self._flow(ofproto.OFPFC_DELETE_STRICT, DROP_PRIORITY, port) for port in ports]

    def _flow(self, command: int, priority: int, in_port: int, output: int | None = None) -> Any:
        actions = [] if output is None else [parser.OFPActionOutput(output)]
        return parser.OFPFlowMod(
            self.datapath,
            command=command,
            priority=priority,
            match=parser.OFPMatch(in_port=in_port),
            instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
            out_port=ofproto.OFPP_ANY,
            out_group=ofproto.OFPG_ANY,
        )

    def power(self, wire: Wire, *, up: bool) -> list[Any]:
        """Set both ends up or down, which gives the nodes carrier or takes it from them."""
        return [
            parser.OFPPortMod(
                self.datapath,
                port_no=port,
                hw_addr=self._hardware[port],
                config=0 if up else ofproto.OFPPC_PORT_DOWN,
                mask=ofproto.OFPPC_PORT_DOWN,
            )
            for port in wire.ports
        ]

    # --- requests -------------------------------------------------------------------------

    def commit(self, messages: Sequence[Any]) -> None:
        """Make changes, and wait until the switch has made them.

        All of them, and the barrier, are sent at once: it wakes up for them once.

        Raises:
            SwitchError: it refused one, did not answer in time, or the connection ended.
        """
        barrier = parser.OFPBarrierRequest(self.datapath)
        requests = [self._expect(message) for message in (*messages, barrier)]
        for message in (*messages, barrier):
            message.serialize()
        try:
            self.datapath.send(b"".join(bytes(one.buf) for one in (*messages, barrier)))
            self._wait(requests[-1])
            for request in requests:  # errors come before the barrier's reply
                self._raise_error(request)
        finally:
            self._forget((*messages, barrier))

    def learn_ports(self, wires: Sequence[Wire]) -> None:
        """Read the switch's ports.

        Raises:
            SwitchError: an end of a wire is not there under its number, or no answer came.
        """
        ports = self._ask(parser.OFPPortDescStatsRequest(self.datapath, 0))
        names = {port.port_no: port.name.decode() for port in ports}
        self._hardware = {port.port_no: port.hw_addr for port in ports}
        for wire in wires:
            for end, number in zip(wire.ends, wire.ports, strict=True):
                if names.get(number) != end:
                    raise SwitchError(f"port {number} is {names.get(number)}, not {end}")

    def flows(self) -> Mapping[tuple[int, int], int]:
        """Packets of every flow, by (priority, port it comes in at).

        Raises:
            SwitchError: no answer came.
        """
        flows = self._ask(
            parser.OFPFlowStatsRequest(
                self.datapath, out_port=ofproto.OFPP_ANY, out_group=ofproto.OFPG_ANY
            )
        )
        return {(flow.priority, flow.match["in_port"]): flow.packet_count for flow in flows}

    def _ask(self, message: Any) -> list[Any]:
        request = self._expect(message)
        try:
            self.datapath.send_msg(message)
            self._wait(request)
            self._raise_error(request)
        finally:
            self._forget([message])
        return request.body

    def _expect(self, message: Any) -> _Request:
        request = self._requests[self.datapath.set_xid(message)] = _Request()
        return request

    def _forget(self, messages: Sequence[Any]) -> None:
        for message in messages:
            self._requests.pop(message.xid, None)

    def _wait(self, request: _Request) -> None:
        if not request.done.wait(REPLY_TIMEOUT_S):
            raise SwitchError(f"the switch did not answer within {REPLY_TIMEOUT_S:g} s")

    def _raise_error(self, request: _Request) -> None:
        if request.error is not None:
            raise SwitchError(request.error)

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
            request.error = error
            request.done.set()


SessionSource = Callable[[], Session]
"""Returns the present session; raises SwitchError where there is none in time."""
