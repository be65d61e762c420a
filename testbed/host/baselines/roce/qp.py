"""The RoCE queue pair, with the methods of `mrc.QueuePair`.

Nothing here reads a clock or touches a socket. All times are ns of one monotonic clock.
"""

from testbed.host.baselines.roce.config import RoceConfig, Shared
from testbed.host.baselines.roce.dcqcn import Dcqcn
from testbed.host.baselines.roce.requester import Requester
from testbed.host.baselines.roce.responder import Responder
from testbed.host.baselines.roce.wire import Ack, Packet, Write, encode
from testbed.mrc import (
    NEVER,
    Arrival,
    Completion,
    Datagram,
    EvChanged,
    Event,
    EvState,
    MemoryTable,
    QpSample,
    ReceiveCompletion,
)
from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import ECN_CE
from testbed.mrc.message import check_write


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
        """Whether the transport has given up."""
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
