"""The RoCE queue pair, with the methods of `mrc.QueuePair`.

Nothing here reads a clock or touches a socket. All times are ns of one monotonic clock.
"""

from collections import Counter
from typing import Final

from testbed.host.roce.config import REFUSALS, RoceConfig, Shared
from testbed.host.roce.dcqcn import Dcqcn
from testbed.host.roce.requester import Requester
from testbed.host.roce.responder import Responder
from testbed.host.roce.wire import Ack, Packet, Write, decode, encode
from testbed.mrc import (
    NEVER,
    Arrival,
    Completion,
    Datagram,
    DecodeError,
    DecodeReason,
    EvChanged,
    Event,
    EvState,
    MemoryTable,
    QpSample,
    ReceiveCompletion,
)
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import ECN_CE
from testbed.mrc.message import check_write
from testbed.mrc.wire.kinds import Buffer


class RoceQp:
    """One end of a reliable connection over one path: RDMA WRITEs out, the peer's into `memory`.

    Data and acknowledgements travel in one class that no switch trims, CNPs ahead of them in the
    control class, as RoCE is commonly deployed (Zhu et al., SIGCOMM 2015, section 3.1).

    Attributes:
        touched: whether it needs a turn: something has happened since the last `transmit`.
    """

    def __init__(self, config: RoceConfig, memory: MemoryTable) -> None:
        self.config = config
        self.touched = True
        self.rtt = RttEstimator(config.base_rtt_ns)
        self.congestion = Dcqcn(config.dcqcn)
        self._shared = Shared(config, config.ev, config.plane)
        self.counters = self._shared.counters
        self._requester = Requester(self._shared, self.rtt, self.congestion)
        self._responder = Responder(self._shared, memory)

    def post_write(
        self,
        wr_id: int,
        payload: memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Queue an RDMA WRITE, with 32 bits of `immediate` data or without (as `mrc.QueuePair`).

        After a failure of the QP the request completes as flushed.

        Raises:
            ValueError: the message, the addresses or the immediate do not fit the wire's fields.
        """
        check_write(payload, remote_va, rkey, immediate)
        self.touched = True
        self._requester.queue.post(wr_id, payload, remote_va, rkey, immediate)

    def receive(self, packet: Packet, arrival: Arrival) -> None:
        """Take in a packet addressed to this QP (`packet.qpn`), received at `arrival.rx_ns`."""
        self.touched = True
        if packet.source != self.config.peer_address:
            self.counters.not_a_peer += 1
        elif packet.destination != self.config.local_address:
            self.counters.misdirected += 1  # the iCRC does not cover the outer destination
        elif self.failed:
            self.counters.wrong_state += 1
        elif isinstance(packet, Write):
            self._responder.on_write(packet, ecn=arrival.ecn == ECN_CE, now_ns=arrival.rx_ns)
        elif isinstance(packet, Ack):
            self._requester.on_ack(packet, arrival.rx_ns)
        else:
            self._requester.on_cnp(arrival.rx_ns)

    def transmit(self, now_ns: int, limit: int) -> list[Datagram]:
        """Return what to send now: all answers, and at most `limit` data packets."""
        self.touched = False
        if self.failed:
            return []
        self._requester.on_time(now_ns)
        datagrams: list[Datagram] = []
        outbox, dscp = self._responder.outbox, self.config.dscp
        while outbox:
            packet = outbox.popleft()
            in_class = dscp.no_trim if isinstance(packet, Ack) else dscp.control
            header, trailer = encode(packet, in_class)
            datagrams.append(Datagram(packet.ev, in_class, header, b"", trailer))
        return datagrams + self._requester.transmit(now_ns, limit)

    def deadlines(self) -> tuple[int, int]:
        """Return when to call `transmit` even if no packet arrives: for timers, and for data.

        `NEVER` if not at all; a time in the past, such as 0, means now.
        """
        if self.failed:
            return NEVER, NEVER
        timer_ns = 0 if self._responder.outbox else self._requester.timeout_ns
        return timer_ns, self._requester.data_ns

    def next_deadline(self) -> int | None:
        """Return the earlier of the two deadlines; None if never."""
        deadline_ns = min(self.deadlines())
        return None if deadline_ns == NEVER else deadline_ns

    def poll_cq(self) -> list[Completion]:
        """Return the completions since the last call, in the order of posting."""
        return self._requester.queue.take_completions()

    def poll_recv_cq(self) -> list[ReceiveCompletion]:
        """Return the peer's WRITEs with immediate that completed here since the last call."""
        return self._responder.take_receive_completions()

    def events(self) -> list[Event]:
        """Return the events since the last call, for observers."""
        events = self._shared.events[:]
        self._shared.events.clear()
        return events

    @property
    def failed(self) -> bool:
        return self._requester.queue.failed

    def sample(self) -> QpSample:
        """Return the state of the requester, for observers."""
        return QpSample(self.congestion.window, self._requester.flight, self.rtt.smoothed_ns)

    def reroute(self, ev: int, plane: int, now_ns: int) -> None:
        """Use another path from now on: the routing of the fabric has converged.

        A routing protocol and ECMP would do this unseen by the NIC; nothing is sent again for it.
        """
        shared, good = self._shared, EvState.GOOD
        if ev == shared.ev:
            return
        self.touched = True
        for path, active in (((shared.ev, shared.plane), False), ((ev, plane), True)):
            shared.events.append(EvChanged(*path, good, good, "routing converged", active, now_ns))
        shared.ev, shared.plane = ev, plane


# --------------------------------------------------------------------------------------------------
# The demultiplexer: it decodes arrivals and hands them to their queue pair.


_UNKNOWN_QP: Final = "unknown_qp"
_REASONS: Final = (*(reason.name.lower() for reason in DecodeReason), _UNKNOWN_QP, *REFUSALS)


class Demux:
    """The queue pairs of one endpoint, looked up by QPN; like `mrc.Demux`."""

    def __init__(self) -> None:
        self._by_qpn: dict[int, RoceQp] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))

    def add(self, qp: RoceQp) -> None:
        """Add a queue pair.

        Raises:
            ValueError: its number is taken.
        """
        if qp.config.qpn in self._by_qpn:
            raise ValueError(f"there is a queue pair {qp.config.qpn} already")
        self._by_qpn[qp.config.qpn] = qp

    def receive(self, data: Buffer, arrival: Arrival) -> None:
        """Take in a packet, from the IPv6 header on, whatever it is; keeps no view of `data`."""
        try:
            packet = decode(data)
        except DecodeError as error:
            self._dropped[error.reason.name.lower()] += 1
            return
        qp = self._by_qpn.get(packet.qpn)
        if qp is None:
            self._dropped[_UNKNOWN_QP] += 1
        else:
            qp.receive(packet, arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Process a packet that arrived undamaged; it is checked nevertheless."""
        self.receive(memoryview(datagram.join()), arrival)

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason: here and by the queue pairs."""
        counts = self._dropped.copy()
        for qp in self._by_qpn.values():
            counts.update(qp.counters.refusals())
        return dict(counts)
