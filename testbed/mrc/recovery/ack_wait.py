"""The transport layer of a requester: ACKs complete messages, and a missing ACK is asked for.

SACKs free packets, transport ACKs complete messages (OCP MRC 1.0, four sources). When every packet
of a message has arrived and its ACK has not, the ACK is on its way or lost. Half an RTT later (time
enough for an ACK on another path than the SACK's) the message's last packet is sent again, with
AckReq; the responder answers a packet from below its window by an ACK and a SACK. That is repeated
after the timeouts of `retry.py`, on another path if there is one, and when they are spent the queue
pair fails.

With `complete_on_sack` a message completes as soon as all its packets have arrived, and nothing is
waited for: an option for fabrics and peers without transport ACKs.
"""

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import MAX_EXPONENTIAL_RETRIES, NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.recovery.loss import LossReason
from testbed.mrc.recovery.retry import timeout_ns
from testbed.mrc.recovery.scoreboard import Scoreboard
from testbed.mrc.recovery.send_queue import SendQueue
from testbed.mrc.recovery.transmission import Transmission


class AckWait:
    """The wait of one queue pair for transport ACKs. Times in ns.

    Attributes:
        deadline_ns: when to call `expire`, or `NEVER`.
        due: whether an ACK is to be asked for now.
    """

    def __init__(
        self,
        config: QpConfig,
        rtt: RttEstimator,
        queue: SendQueue,
        scoreboard: Scoreboard,
        engine: EvEngine,
    ) -> None:
        self._rtt = rtt
        self._queue = queue
        self._scoreboard = scoreboard
        self._engine = engine
        self._mtu = config.mtu
        self._linear = config.linear_retries
        self._for_ever = config.exponential_retries == MAX_EXPONENTIAL_RETRIES
        self._retries = config.linear_retries + config.exponential_retries
        self._growing = config.growing_timeouts
        self._on_sack = config.complete_on_sack
        self._asked = 0
        self.deadline_ns = NEVER
        self.due = False
        self._last: Transmission | None = None

    def acknowledged(self, seq: int, now_ns: int) -> None:
        """Process an ACK: complete the messages that end at `seq` or before."""
        self._queue.acknowledged(seq + 1)
        self.deadline_ns = NEVER
        self._last = None
        self.update(now_ns)

    def update(self, now_ns: int) -> None:
        """Begin to wait if a message has arrived, end if none waits for its ACK."""
        if self._on_sack:
            self._queue.acknowledged(self._scoreboard.oldest_seq)
        elif self._queue.arrived(self._scoreboard.oldest_seq) is None:
            self.deadline_ns = NEVER
        elif self.deadline_ns == NEVER:
            self._asked = 0
            self.deadline_ns = now_ns + (self._rtt.smoothed_ns >> 1)

    def expire(self, now_ns: int) -> bool:
        """Ask for an ACK, as the deadline has passed; each time but the first takes a retry.

        If it was asked for before, the EV of that packet is reported as lossy: the packet or its
        answer was lost. Returns whether a retry was left.
        """
        if self._last is not None:
            self._engine.report_loss(self._last.ev.value, LossReason.TIMEOUT.value, now_ns)
        self.due = self._for_ever or self._asked <= self._retries
        self._asked += 1
        self.deadline_ns = now_ns + timeout_ns(
            self._rtt, self._asked, self._linear, growing=self._growing
        )
        return self.due

    def repetition(self, order: int, now_ns: int) -> Transmission | None:
        """Return the packet to repeat to get an ACK: the last of the newest message that arrived.

        It has arrived before, so it counts neither for the window nor for loss detection.
        """
        self.due = False
        avoid = None if self._last is None else self._last.ev
        ev = self._engine.pick_for_probe(now_ns, avoid)
        message = self._queue.arrived(self._scoreboard.oldest_seq)
        if message is None or ev is None:
            return None
        offset = max(0, message.length - 1) // self._mtu * self._mtu
        length = message.length - offset
        again = Transmission(message.last_seq, message, offset, length, ev, order, now_ns, None)
        again.repeated = True
        self._last = again
        return again
