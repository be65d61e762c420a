"""Round-trip time of one queue pair, over all of its paths."""

from typing import Final

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
