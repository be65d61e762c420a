"""What to do when the peer is silent: tail probes, then timeouts, then failure.

These steps are a ladder, which restarts with every progress: bytes newly acknowledged, or a trim.
The first rungs are reliability probes, due when a packet of normal delay would have been judged
(RFC 8985's tail probe; "reliability probes may replace waiting", MRC transport). Then come
timeouts: some of one length (two sources) or, as an option, of linearly growing length (one
source), then doubling ones (MRC's structure; its ACK timeout is a constant, ours derives from the
measured RTT), and in the end the QP fails. Probes continue between the timeouts, so that the end of
an outage is noticed soon; after the first rungs the time before the next one doubles, up to four
times, until one is answered (as the retransmission timer of RFC 8985 does after its probe).

In an incast no packet is late before `INCAST_RTTS` (`loss.py`). So no probe is sent before that:
its answer would change nothing, and it would wait in the same queue. A queue pair whose window is
about one packet expects an incast for longer than others (`ProbeRoom.crowded`).

A NACK that is not for a trim takes a retry too (two sources); those of one RTT together take one.

An answer without progress does not restart the ladder: where data is lost and control packets pass,
for example on a link with too small an MTU, the retries are used up as well. But if the peer
answered during a rung, its end declares no packet lost: loss detection then knows more than the
clock.

The ladder is climbed too when data waits and no EV may carry it: all EVs are condemned or denied,
or every port is down. So each posted message completes or fails. The first packet that can be sent
restarts the ladder.
"""

from enum import Enum
from typing import Final

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import MAX_EXPONENTIAL_RETRIES, NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.recovery.loss import INCAST_RTTS, LossReason
from testbed.mrc.recovery.scoreboard import Scoreboard
from testbed.mrc.recovery.send_queue import SendQueue
from testbed.mrc.transmission import Transmission

_MAX_DOUBLINGS: Final = 24
"""As the API's ACK timeout is a power of two with an exponent of at most 24."""

_MOST_PROBE_DOUBLINGS: Final = 2
"""The end of an outage of all paths is noticed within six RTTs. Ours."""

_TAIL_MARGIN_SHIFT: Final = 3
"""A probe waits an eighth of the base RTT longer than loss detection would have. Ours."""


def timeout_ns(
    rtt: RttEstimator, attempt: int, linear_retries: int, *, growing: bool = False
) -> int:
    """Return how long the `attempt`-th timeout lasts, counted from 1; `growing`: linearly first."""
    first_ns = rtt.timeout_ns * (max(1, min(attempt, linear_retries)) if growing else 1)
    return first_ns << min(max(0, attempt - linear_retries), _MAX_DOUBLINGS)


class RetryAction(Enum):
    """What to do when a rung of the ladder ends."""

    PROBE = "send a reliability probe"
    TIMEOUT = "declare everything in flight lost"
    GIVE_UP = "fail the queue pair"


class RetryTimer:
    """The ladder of one queue pair. Times in ns.

    Attributes:
        without_path: whether the ladder is climbed because data waits and no EV may carry it.
    """

    def __init__(
        self,
        rtt: RttEstimator,
        *,
        probes: int,
        linear_retries: int,
        exponential_retries: int,
        growing: bool = False,
    ) -> None:
        self._rtt = rtt
        self._growing = growing
        self._probes = probes
        self._linear = linear_retries
        self._for_ever = exponential_retries == MAX_EXPONENTIAL_RETRIES
        self._retries = linear_retries + exponential_retries
        self._rung = 0
        self._progress_ns = 0
        self._sent_ns = 0
        self._probed_ns = 0
        self._unanswered = 0  # probes and timeouts in a row
        self._incast_until_ns = 0
        self._answered = False
        self._refused = 0
        self._refused_ns = 0
        self.without_path = False

    @classmethod
    def of(cls, config: QpConfig, rtt: RttEstimator) -> "RetryTimer":
        """The ladder of a queue pair with this configuration."""
        return cls(
            rtt,
            probes=config.tail_probes,
            linear_retries=config.linear_retries,
            exponential_retries=config.exponential_retries,
            growing=config.growing_timeouts,
        )

    @property
    def timeouts(self) -> int:
        """Retries spent since the last progress."""
        return max(0, self._rung - self._probes)

    def sent(self, now_ns: int, *, was_idle: bool, crowded: bool = False) -> None:
        """Note that a data packet was sent.

        `was_idle`: nothing was outstanding before it; `crowded`: the last hop is known to be full.
        """
        if crowded:
            self.report_incast(now_ns)
        if was_idle:
            self.restart(now_ns)
        if not self._answered or self._rung < self._probes:
            self._sent_ns = now_ns

    def wait_without_path(self, now_ns: int) -> None:
        """Climb the ladder while data waits, nothing is outstanding and no EV may carry data."""
        if not self.without_path:
            self.restart(now_ns)
            self._sent_ns = now_ns
            self.without_path = True

    def restart(self, now_ns: int) -> None:
        """Return to the first rung: the peer has received something new."""
        self._rung = self._refused = self._unanswered = 0
        self._progress_ns = now_ns
        self._answered = False
        self.without_path = False

    def answered(self, now_ns: int) -> None:
        """Stay on the rung and postpone a probe: the peer answered, but received nothing new."""
        if self._rung < self._probes:
            self._progress_ns = now_ns
        self._unanswered = 0
        self._answered = True

    def report_incast(self, now_ns: int) -> None:
        """Be patient with what is sent in the next RTTs: it waits in a full last hop."""
        self._incast_until_ns = now_ns + INCAST_RTTS * self._rtt.base_ns

    def pause(self, until_ns: int) -> None:
        """Do not climb before that time: nothing is in flight, and the next packet waits for it.

        It waits because of an incast, into which it will be sent.
        """
        self._progress_ns = self._sent_ns = until_ns
        self._incast_until_ns = max(self._incast_until_ns, until_ns + self._rtt.base_ns)

    def refused(self, now_ns: int) -> bool:
        """Process a NACK that is not for a trim; returns whether a retry was left for it."""
        self.answered(now_ns)
        if not self._refused or now_ns - self._refused_ns >= self._rtt.smoothed_ns:
            self._refused_ns = now_ns
            self._refused += 1
        return self._for_ever or self.timeouts + self._refused <= self._retries

    def deadline_ns(self, reorder_window_ns: int) -> int:
        """Return when to call `expire`, if packets are outstanding or data waits without a path."""
        patience_ns = (
            self._rtt.smoothed_ns + reorder_window_ns + (self._rtt.base_ns >> _TAIL_MARGIN_SHIFT)
        )
        if self._sent_ns < self._incast_until_ns:
            patience_ns = max(patience_ns, INCAST_RTTS * self._rtt.base_ns)
        doublings = self._unanswered - self._probes + 1
        if doublings > 0:
            patience_ns <<= min(doublings, _MOST_PROBE_DOUBLINGS)
        if self._rung < self._probes:
            return min(self._progress_ns, self._sent_ns) + patience_ns
        return min(self._climb_ns(), self._probed_ns + patience_ns)

    def expire(self, now_ns: int) -> RetryAction:
        """Return what to do, as the deadline has passed; climb a rung if its time is over."""
        self._probed_ns = now_ns
        self._unanswered += 1
        if self._rung >= self._probes and now_ns < self._climb_ns():
            return RetryAction.PROBE
        self._progress_ns = self._sent_ns = now_ns
        self._rung += 1
        answered, self._answered = self._answered, False
        if self.timeouts + self._refused > self._retries and not self._for_ever:
            return RetryAction.GIVE_UP
        return RetryAction.PROBE if answered or not self.timeouts else RetryAction.TIMEOUT

    def _climb_ns(self) -> int:
        return max(self._progress_ns, self._sent_ns) + self._timeout_ns()

    def _timeout_ns(self) -> int:
        return timeout_ns(self._rtt, self.timeouts + 1, self._linear, growing=self._growing)


# --------------------------------------------------------------------------------------------------
# The transport layer of a requester: ACKs complete messages, and a missing ACK is asked for.
#
# SACKs free packets, transport ACKs complete messages (OCP MRC 1.0, four sources). When every
# packet of a message has arrived and its ACK has not, the ACK is on its way or lost. Half an RTT
# later (time enough for an ACK on another path than the SACK's) the message's last packet is sent
# again, with AckReq; the responder answers a packet from below its window by an ACK and a SACK.
# That is repeated after the timeouts of `retry.py`, on another path if there is one, and when they
# are spent the queue pair fails.
#
# With `complete_on_sack` a message completes as soon as all its packets have arrived, and nothing
# is waited for: an option for fabrics and peers without transport ACKs.


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
