"""What congestion control is to a requester: what it is told, and what it decides."""

from enum import Enum
from typing import NamedTuple, Protocol


class LossCause(Enum):
    """Why a packet is sent again."""

    INFERRED = "inferred"
    """It did not arrive, as far as can be told: overtaken, late, or timed out."""

    TRIMMED = "trimmed"
    """A switch cut off its payload, and the responder said so."""

    REFUSED = "refused"
    """It arrived, and the responder had no room for it."""


class Report(NamedTuple):
    """What a SACK or a transport ACK says. Sizes in bytes, times in ns.

    Attributes:
        acked: payload that it newly acknowledges; None if it acknowledges nothing.
        received: what the responder has newly counted in `rcvd_bytes`, in sizes of inner packets.
        rtt_ns: the round trip that it measured; None if it measured none.
        repeated: whether that round trip is of a packet that was sent a second time.
        ecn: whether it reports an ECN mark.
        penalty: its `rcv_cwnd_pen`; None if it has none, or is overtaken by a newer SACK.
        restore: its `restore_cwnd`.
        now_ns: the time.
    """

    acked: int | None
    received: int
    rtt_ns: int | None
    repeated: bool
    ecn: bool
    penalty: int | None
    restore: bool
    now_ns: int


class CongestionControl(Protocol):
    """Decides how much is in flight, of one queue pair or of several to the same destination.

    `payload` is the size of a packet's payload, `nominal` that of the inner packet, in bytes.
    """

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""

    def has_room(self, payload: int, nominal: int) -> bool:
        """Whether a packet of this size may be sent now."""

    def on_sent(self, payload: int, nominal: int) -> None:
        """Take in that a packet is in flight."""

    def on_delivered(self, payload: int) -> None:
        """Take in that packets in flight have been acknowledged, or were after all not lost."""

    def on_withdrawn(self, payload: int, nominal: int) -> None:
        """Take in that a queue pair no longer waits for packets in flight: nothing is said of them.

        `nominal` may be negative: more than was sent has been reported as received.
        """

    def on_report(self, report: Report) -> None:
        """Take in a SACK or a transport ACK."""

    def on_lost(
        self, cause: LossCause, payload: int, nominal: int, rtt_ns: int | None, now_ns: int
    ) -> None:
        """Take in that a packet in flight is lost; a refusal may have measured a round trip."""

    def reset(self) -> None:
        """Start again, as a queue pair has been reset; not while others have packets in flight."""
