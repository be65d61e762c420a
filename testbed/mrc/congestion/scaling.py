"""The scaling of NSCC's parameters to a network, as uet-htsim and Ultra Ethernet have it."""

from dataclasses import dataclass
from typing import Final

from testbed.mrc.constants import NS_PER_S

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
