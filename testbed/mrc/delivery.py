"""Messages at the responder: when they are complete, what they consume, what is acknowledged.

Packets are placed in any order, messages complete in order. A transport ACK (opcode D1) is due when
the left edge of what has arrived passes the end of a message or a packet with AckReq, one for all
that it passes; and when a packet from below the edge arrives again, since its ACK may be lost.

Each WRITE with immediate consumes a posted receive (OCP MRC API). A WRITE that cannot be carried
out is answered by a NAK in place of an ACK, once all before it has arrived, and nothing completes
after it. Codes are IBTA's; which of them MRC uses for a missing receive is not public.
"""

from collections import deque
from heapq import heappop, heappush

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import AETH_MSN_MASK, NEVER, NakCode
from testbed.mrc.counters import Counters
from testbed.mrc.events import Event, MessageDelivered
from testbed.mrc.message import CompletionStatus, ReceiveCompletion
from testbed.mrc.wire.control import Ack
from testbed.mrc.wire.packets import Write
from testbed.mrc.wire.psn import unwrap_msn, wrap_psn


class Delivery:
    """What a responder has received, message by message.

    Attributes:
        ack_due: whether an ACK, or a NAK, is to be sent.
        delivered: messages completed.
        next_seq: the oldest packet at which `advance` has something to do.
    """

    def __init__(self, config: QpConfig, events: list[Event], counters: Counters) -> None:
        self._config = config
        self._events = events
        self._counters = counters
        self._ends: list[tuple[int, int, int, int, int, int | None]] = []
        self._ack_requests: list[int] = []
        self._immediates = 0
        self._receives: deque[int] = deque()
        self._completions: list[ReceiveCompletion] = []
        self._failed_seq = NEVER
        self._error: NakCode | None = None
        self.ack_due = False
        self.delivered = 0
        self.next_seq = NEVER

    def end_of_message(self, packet: Write, seq: int) -> None:
        """Note that the last packet of a message has arrived."""
        immediate, length = packet.immediate, packet.dma_length
        start = packet.va + len(packet.payload) - length
        heappush(self._ends, (seq, packet.msn, start, packet.rkey, length, immediate))
        self.next_seq = min(self.next_seq, seq)
        if immediate is not None:
            self._immediates += 1
            if self._immediates > self._config.capabilities.immediates:
                self._counters.excess_immediates += 1
                self.fail(seq, NakCode.INVALID_REQUEST)

    def ack_request(self, seq: int) -> None:
        """Note that packet `seq` asks for an ACK."""
        heappush(self._ack_requests, seq)
        self.next_seq = min(self.next_seq, seq)

    def fail(self, seq: int, error: NakCode) -> None:
        """Note that packet `seq` cannot be carried out; the first such packet decides."""
        if seq < self._failed_seq:
            self._failed_seq, self._error = seq, error
            self.next_seq = min(self.next_seq, seq)

    def advance(self, cack: int, now_ns: int) -> None:
        """Complete the messages that end at `cack` or before: all packets so far have arrived."""
        requests = self._ack_requests
        while requests and requests[0] <= cack:
            heappop(requests)
            self.ack_due = True
        ends = self._ends
        while ends and ends[0][0] <= cack and ends[0][0] < self._failed_seq:
            seq, msn, va, rkey, length, immediate = ends[0]
            if immediate is not None and not self._receives:
                self._counters.no_receive += 1
                self.fail(seq, NakCode.REMOTE_OPERATION_ERROR)
                break
            heappop(ends)
            message = unwrap_msn(msn, self.delivered)
            self.delivered = message + 1
            self.ack_due = True
            self._events.append(MessageDelivered(message, va, rkey, length, now_ns))
            if immediate is not None:
                self._immediates -= 1
                wr_id = self._receives.popleft()
                self._completions.append(ReceiveCompletion(message, immediate, length, wr_id))
        if cack >= self._failed_seq:
            self.ack_due = True
        self.next_seq = min(
            requests[0] if requests else NEVER, ends[0][0] if ends else NEVER, self._failed_seq
        )

    def take_ack(self, cack: int, ev: int) -> Ack:
        """Return the ACK of everything up to `cack`, or the NAK, to be sent on `ev`."""
        config = self._config
        self.ack_due = False
        failed = cack >= self._failed_seq
        self._counters.naks_sent += failed
        return Ack(
            config.local_address,
            config.peer_address,
            ev,
            config.peer_qpn,
            wrap_psn(self._failed_seq if failed else cack),
            self.delivered & AETH_MSN_MASK,
            self._error if failed else None,
        )

    def post_receive(self, wr_id: int, *, flushed: bool) -> None:
        """Post a receive, or flush it."""
        self._receives.append(wr_id)
        if flushed:
            self.flush()

    def flush(self) -> None:
        """Complete all posted receives as flushed."""
        while self._receives:
            wr_id = self._receives.popleft()
            self._completions.append(ReceiveCompletion(0, 0, 0, wr_id, CompletionStatus.FLUSHED))

    def take_completions(self) -> list[ReceiveCompletion]:
        """Return the receives that have completed since the last call."""
        completions, self._completions = self._completions, []
        return completions
