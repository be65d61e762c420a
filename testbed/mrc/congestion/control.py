"""The interface of congestion controllers: the reports that they get, and what they decide.

NSCC (`nscc_incast.py`, `nscc_uec.py`), the fixed window (`window.py`) and a class of the user's own
(docs/algorithms.md) implement it. `window.py` counts what is in flight for all of them.
"""

from typing import NamedTuple, Protocol


class SackReport(NamedTuple):
    """What a SACK or a transport ACK says. Sizes in bytes, times in ns.

    Attributes:
        acked: bytes that have newly arrived; 0 if none.
        rtt_ns: the round trip that it measured; None if it measured none.
        repeated: whether that round trip is of a packet that was sent a second time. Such packets
            have priority in the fabric and overtake the queues.
        ecn: whether it reports an ECN mark.
        penalty: by how many 128ths the receiver asks to shrink the window (`rcv_cwnd_pen`); None if
            it says nothing about that.
        restore: whether the receiver asks for the window from before the penalty (`restore_cwnd`).
        flight: bytes in flight now.
        now_ns: the time.
    """

    acked: int
    rtt_ns: int | None
    repeated: bool
    ecn: bool
    penalty: int | None
    restore: bool
    flight: int
    now_ns: int


class LossReport(NamedTuple):
    """A packet that did not get through and is sent again. Sizes in bytes, times in ns.

    Attributes:
        lost: its size.
        reason: of a NACK: its reason, such as `TRIMMED`, `TRIMMED_LASTHOP` or `NO_PKT_BUFFER`. Of a
            loss: `overtaken`, `late`, `silent EV` or `timeout`.
        trimmed: whether a NACK says that a switch cut off its payload, because a queue was full.
        rtt_ns: the round trip to the receiver that refused it; None if none was measured.
        flight: bytes in flight now, without this packet.
        now_ns: the time.
    """

    lost: int
    reason: str
    trimmed: bool
    rtt_ns: int | None
    flight: int
    now_ns: int


class CongestionController(Protocol):
    """Decides how much may be in flight, of one queue pair or of several to one destination.

    Sizes are payload bytes, except for UEC's NSCC, which counts whole inner packets.
    """

    @property
    def window(self) -> float:
        """Bytes that may be in flight; read when the controller is made and after each report."""

    def on_sack(self, sack: SackReport) -> None:
        """Process a SACK or a transport ACK."""

    def on_nack(self, nack: LossReport) -> None:
        """Process a NACK: a packet was trimmed, or the receiver refused it."""

    def on_loss(self, loss: LossReport) -> None:
        """Process a loss declaration: a packet was overtaken, or timed out."""
