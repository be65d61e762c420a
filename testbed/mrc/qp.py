"""The queue pair: requester and responder behind one sans-IO face.

Nothing here reads a clock or touches a socket. The I/O layer calls `receive` for every packet that
has arrived, then `transmit`, sends what that returns, and comes back no later than
`next_deadline`. All times are ns of one monotonic clock.
"""

from random import Random

from testbed.mrc.cc import CongestionControl, FixedWindow
from testbed.mrc.config import Counters, QpConfig
from testbed.mrc.constants import ECN_CE, DscpClasses
from testbed.mrc.datagram import Arrival, Datagram
from testbed.mrc.ev import NEVER, EvEngine
from testbed.mrc.events import Event, EvState
from testbed.mrc.memory import MemoryTable
from testbed.mrc.message import Completion
from testbed.mrc.requester import Requester
from testbed.mrc.responder import Responder
from testbed.mrc.rtt import RttEstimator
from testbed.mrc.wire import (
    Control,
    EndpointRequest,
    EndpointResponse,
    Nack,
    Packet,
    ReliabilityProbe,
    Sack,
    TrimmedWrite,
    Write,
    encode,
)

_VA_END = 1 << 64
_LENGTH_END = 1 << 32


def _seal(packet: Control, dscp: int) -> Datagram:
    header, trailer = encode(packet, dscp)
    return Datagram(packet.ev, dscp, header, b"", trailer)


def respond(request: EndpointRequest, dscp: DscpClasses) -> Datagram:
    """Answer an endpoint request (QPN 2) on the EV that it came on, in the control class."""
    response = EndpointResponse(
        request.destination,
        request.source,
        request.ev,
        request.op,
        request.request_id,
        request.requester_qpn,
        request.port_mask,
        request.ev,
    )
    return _seal(response, dscp.control)


class QueuePair:
    """One end of a reliable connection: RDMA WRITEs out, the peer's WRITEs into `memory`."""

    def __init__(
        self,
        config: QpConfig,
        memory: MemoryTable,
        congestion: CongestionControl | None = None,
    ) -> None:
        self.config = config
        self.counters = Counters()
        self.congestion = congestion if congestion is not None else FixedWindow(config.cwnd)
        self.rtt = RttEstimator(config.base_rtt_ns)
        self._events: list[Event] = []
        rng = Random(config.seed)  # noqa: S311 - repeatable, not secret
        self._engine = EvEngine(config.ev_profile, self.rtt, rng, self._events)
        self._requester = Requester(
            config, self._engine, self.rtt, self.congestion, self._events, self.counters
        )
        self._responder = Responder(config, memory, self._events, self.counters)

    def post_write(self, wr_id: int, payload: memoryview, remote_va: int, rkey: int) -> None:
        """Queue an RDMA WRITE of `payload` (bytes) to `remote_va` under `rkey`.

        The payload is not copied: leave it alone until its completion has been polled. In state
        ERROR the request is flushed: its completion says so.

        Raises:
            ValueError: the message or the addresses do not fit the wire's fields.
        """
        if payload.itemsize != 1 or not payload.contiguous:
            raise ValueError("the payload must be a contiguous view of bytes")
        if len(payload) >= _LENGTH_END or not 0 <= rkey < _LENGTH_END:
            raise ValueError("a message is shorter than 2^32 bytes, an rkey less than 2^32")
        if not 0 <= remote_va <= _VA_END - len(payload):
            raise ValueError("the message must end within the 64-bit address space")
        self._requester.post_write(wr_id, payload, remote_va, rkey)

    def receive(self, packet: Packet, arrival: Arrival) -> None:
        """Take in a packet addressed to this QP (`packet.qpn`), as it came at `arrival.rx_ns`.

        Raises:
            ValueError: an endpoint request, which is for `respond`.
        """
        if packet.source != self.config.peer_address:
            self.counters.misdirected += 1
            return
        now_ns = arrival.rx_ns
        if isinstance(packet, Write):
            self._responder.on_write(packet, ecn=arrival.ecn == ECN_CE, now_ns=now_ns)
        elif isinstance(packet, Sack):
            self._requester.on_sack(packet, now_ns)
        elif isinstance(packet, Nack):
            self._requester.on_nack(packet, now_ns)
        elif isinstance(packet, EndpointResponse):
            self._requester.on_response(packet, now_ns)
        elif isinstance(packet, ReliabilityProbe):
            self._responder.on_probe(packet)
        elif isinstance(packet, TrimmedWrite):
            self._responder.on_trimmed(
                packet, last_hop=arrival.dscp == self.config.dscp.trimmed_lasthop
            )
        else:
            raise ValueError("endpoint requests are answered by respond(), not by a queue pair")  # noqa: TRY004 - the type is right, the place is not

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return at most `limit` datagrams to send now: control, retransmissions, new data.

        Call it after everything that has arrived went through `receive`: it is here that losses
        are judged.
        """
        self._requester.on_time(now_ns)
        datagrams: list[Datagram] = []
        control = self.config.dscp.control
        reports = self._responder.transmit(now_ns)
        while reports and len(datagrams) < limit:
            datagrams.append(_seal(reports.popleft(), control))
        probes = self._requester.control()
        while probes and len(datagrams) < limit:
            datagrams.append(_seal(probes.popleft(), control))
        datagrams += self._requester.transmit(now_ns, limit - len(datagrams))
        return datagrams

    def next_deadline(self) -> int | None:
        """Return when to call `transmit` even if nothing arrives; None if never.

        A time that has passed (0, for one) means that something waits to be sent now.
        """
        deadline_ns = min(self._responder.deadline_ns, self._requester.deadline_ns)
        return None if deadline_ns == NEVER else deadline_ns

    def poll_cq(self) -> list[Completion]:
        """Return the completions since the last call, in the order of posting."""
        return self._requester.take_completions()

    def events(self) -> list[Event]:
        """Return what happened since the last call, for observers."""
        events = self._events[:]
        self._events.clear()
        return events

    @property
    def failed(self) -> bool:
        """Whether the QP is in state ERROR."""
        return self._requester.failed

    @property
    def flight(self) -> int:
        """Payload bytes in flight."""
        return self._requester.flight

    def ev_states(self) -> dict[int, EvState]:
        """Return the state of every EV."""
        return self._engine.states()

    def active_evs(self) -> frozenset[int]:
        """Return the EVs of the active set."""
        return self._engine.active()

    def deny_ev(self, ev: int, now_ns: int) -> None:
        """Take an EV out of service by administrative order. KeyError if it is not known."""
        self._engine.deny(ev, now_ns)

    def allow_ev(self, ev: int, now_ns: int) -> None:
        """Lift a denial; the EV must answer probes first. KeyError if it is not known."""
        self._engine.allow(ev, now_ns)
