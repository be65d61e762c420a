"""The interface of congestion controllers: the reports that they get, and what they decide.

NSCC (`nscc_incast.py`, `nscc_uec.py`), the fixed window (`window.py`) and a class of the user's own
(docs/algorithms.md) implement it. `window.py` counts what is in flight for all of them.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from testbed.mrc.constants import NS_PER_S


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


# --------------------------------------------------------------------------------------------------
# The scaling of NSCC's parameters to a network, as uet-htsim and Ultra Ethernet have it.


BITS: Final = 8
"""Bits of a byte."""

_REFERENCE_BDP: Final = 150_000
"""Bytes: 100 Gbit/s x 12 us, the network that NSCC's constants are scaled from."""

_REFERENCE_RTT_NS: Final = 12_000


@dataclass(frozen=True, slots=True)
class Scaling:
    """What NSCC's parameters derive from.

    Attributes:
        bdp: the bandwidth-delay product of all ports of the host, in bytes.
        target_ns: the target delay.
        bdp_ratio: `bdp` over that of the reference network.
        target_ratio: the target delay over the reference network's round trip, as the clock runs.
    """

    bdp: float
    target_ns: int
    bdp_ratio: float
    target_ratio: float


def scaling(base_rtt_ns: int, rate_bps: float, dilation: float, *, trimming: bool) -> Scaling:
    """The scaling for a host.

    Args:
        base_rtt_ns: the base RTT of the longest path.
        rate_bps: the rate of all ports together.
        dilation: how many times slower than real the clock runs.
        trimming: whether the fabric trims.
    """
    bdp = rate_bps * base_rtt_ns / BITS / NS_PER_S
    target_ns = base_rtt_ns * 3 // 4 if trimming else base_rtt_ns
    return Scaling(bdp, target_ns, bdp / _REFERENCE_BDP, target_ns / (_REFERENCE_RTT_NS * dilation))


# --------------------------------------------------------------------------------------------------
# Round-trip time of one queue pair, over all of its paths.


_SMOOTHED_SHIFT: Final = 3
_VARIATION_SHIFT: Final = 2
"""RFC 6298's alpha of 1/8 and beta of 1/4."""


class RttEstimator:
    """Smoothed RTT and variation (RFC 6298), and the minimum; starts from the base RTT. All ns."""

    def __init__(self, base_ns: int) -> None:
        if base_ns <= 0:
            raise ValueError(f"base RTT must be positive, not {base_ns} ns")
        self.base_ns = base_ns
        self.smoothed_ns = base_ns
        self.variation_ns = base_ns >> 2
        self.minimum_ns = base_ns
        self.sampled_ns = -1
        """When the last sample was measured."""

    def sample(self, rtt_ns: int, now_ns: int) -> None:
        """Add a measured round trip."""
        self.sampled_ns = now_ns
        deviation = abs(rtt_ns - self.smoothed_ns)
        self.variation_ns += (deviation - self.variation_ns) >> _VARIATION_SHIFT
        self.smoothed_ns += (rtt_ns - self.smoothed_ns) >> _SMOOTHED_SHIFT
        self.minimum_ns = min(self.minimum_ns, rtt_ns)

    @property
    def timeout_ns(self) -> int:
        """How long to wait for an answer: RFC 6298's RTO, at least two smoothed RTTs."""
        return self.smoothed_ns + max(self.smoothed_ns, 4 * self.variation_ns)
