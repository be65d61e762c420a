"""DCQCN, RoCE's congestion control: marks become CNPs, CNPs lower the sender's rate.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015: section 3.1 has the
algorithm, section 5 the parameters (figure 14). The *notification point* (the receiver) sends at
most one CNP in an interval; the *reaction point* (the sender) cuts its rate with each, and raises
it by a timer and by a byte counter: fast recovery towards the rate before the cut, then additive,
then hyper increase of that target.

Times are dilated like all others; rates and their steps scale with the rate of the port, as the
paper's are for 40 Gb/s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from testbed.mrc.constants import NS_PER_S

_US: Final = 1_000

G: Final = 5 / 1024
"""Weight of a new CNP in alpha: dce_tcp_g of ConnectX NICs, 1019 of 1024 is kept (NVIDIA, "DCQCN
Parameters"). The paper's figure 14 has 1/256."""

CNP_INTERVAL_NS: Final = 50 * _US
"""N: a receiver sends a flow at most one CNP in that time (section 3.1), real time."""

ALPHA_TIMER_NS: Final = 1 * _US
"""K: after this time without a CNP, alpha decays (section 3.1), real time:
dce_tcp_rtt of these NICs.

The paper has 55 us. Alpha, which begins at 1, then needs 14 ms to sink, in which every CNP halves
the rate: a QP is in that state for all of a run here, but for a moment only of the minutes that the
MRC paper's NICs ran."""

PAPER_G: Final = 1 / 256
PAPER_ALPHA_TIMER_NS: Final = 55 * _US
"""g and K of figure 14. Alpha hardly sinks between CNPs, so that each cuts the rate deeply."""

NIC_CNP_INTERVAL_NS: Final = 4 * _US
"""The same as N, min_time_between_cnps of ConnectX NICs (NVIDIA, "DCQCN Parameters"), real time."""

RATE_TIMER_NS: Final = 55 * _US
"""T: between timed increases (figure 14), real time."""

BYTE_COUNTER: Final = 10_000_000
"""B: bytes sent between counted increases (figure 14)."""

FAST_RECOVERY: Final = 5
"""F: increases of either kind that only halve the way back (section 3.1)."""

ADDITIVE_SHARE: Final = 40e6 / 40e9
"""R_AI over the port's rate: 40 Mb/s of 40 Gb/s (section 5)."""

HYPER_FACTOR: Final = 10
"""R_HAI over R_AI. Not in the paper; the ratio of a common NIC's defaults (50 and 5 Mb/s)."""

MIN_SHARE: Final = 1 / 1000
"""Least rate over the port's rate. Not in the paper; ours."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Parameters in which vendors and the DCQCN paper differ; times in ns of real time.

    Attributes:
        g: weight of a new CNP in alpha.
        alpha_timer_ns: after this time without a CNP, alpha decays (K).
        cnp_interval_ns: a receiver sends a flow at most one CNP in that time (N); None: never.
    """

    g: float = G
    alpha_timer_ns: int = ALPHA_TIMER_NS
    cnp_interval_ns: int | None = CNP_INTERVAL_NS


DEFAULT: Final = Tuning()
TUNINGS: Final[Mapping[str, Tuning]] = {
    "default": DEFAULT,
    "aggressive": Tuning(cnp_interval_ns=NIC_CNP_INTERVAL_NS),
    "most-aggressive": Tuning(PAPER_G, PAPER_ALPHA_TIMER_NS, NIC_CNP_INTERVAL_NS),
    "off": Tuning(cnp_interval_ns=None),
}
"""By the name that a scenario gives: from little to much reaction to a mark, and none."""


@dataclass(frozen=True, slots=True)
class DcqcnProfile:
    """Parameters of the reaction point; times in ns, rates in bits/s, as they run."""

    line_rate_bps: float
    base_rtt_ns: int
    alpha_timer_ns: int = ALPHA_TIMER_NS
    rate_timer_ns: int = RATE_TIMER_NS
    byte_counter: int = BYTE_COUNTER
    g: float = G
    fast_recovery: int = FAST_RECOVERY
    additive_share: float = ADDITIVE_SHARE
    hyper_factor: float = HYPER_FACTOR
    min_share: float = MIN_SHARE

    @classmethod
    def derive(
        cls,
        *,
        line_rate_bps: float,
        base_rtt_ns: int,
        dilation: float,
        tuning: Tuning = DEFAULT,
    ) -> Self:
        """Return the parameters for a port.

        Args:
            line_rate_bps: of the port, as dilated.
            base_rtt_ns: as dilated.
            dilation: what the real times below are multiplied by.
            tuning: the parameters in which vendors and the DCQCN paper differ.
        """
        return cls(
            line_rate_bps,
            base_rtt_ns,
            round(tuning.alpha_timer_ns * dilation),
            round(RATE_TIMER_NS * dilation),
            g=tuning.g,
        )


class Dcqcn:
    """The reaction point of one queue pair: how fast it may send.

    It begins at line rate. Timers need no wake-up: call `advance` before reading the rate.

    Attributes:
        rate_bps: the current rate, R_C.
        target_bps: the rate that it returns to, R_T.
        alpha: the estimate of how congested the path is, 0 to 1, as of the last CNP.
    """

    def __init__(self, profile: DcqcnProfile) -> None:
        """Begin unlimited."""
        self._profile = profile
        self.rate_bps = self.target_bps = profile.line_rate_bps
        self.alpha = 1.0
        self._timed = self._counted = self._bytes = 0
        self._alpha_due_ns = self._rate_due_ns = 0

    @property
    def window(self) -> int:
        """The bytes that DCQCN's rate sends in a base RTT; RoCE has no window of its own."""
        return int(self.rate_bps * self._profile.base_rtt_ns / 8 / NS_PER_S)

    @property
    def _unlimited(self) -> bool:
        return self.rate_bps >= self._profile.line_rate_bps

    def advance(self, now_ns: int) -> None:
        """Do what the timers have called for up to now."""
        profile = self._profile
        while self._rate_due_ns <= now_ns and not self._unlimited:
            self._rate_due_ns += profile.rate_timer_ns
            self._timed += 1
            self._increase()

    def on_cnp(self, now_ns: int) -> None:
        """Cut the rate."""
        self.advance(now_ns)
        self._decay(now_ns)
        profile = self._profile
        self.target_bps = self.rate_bps
        least = profile.min_share * profile.line_rate_bps
        self.rate_bps = max(self.rate_bps * (1 - self.alpha / 2), least)
        self.alpha += profile.g * (1 - self.alpha)
        self._timed = self._counted = self._bytes = 0
        self._alpha_due_ns = now_ns + profile.alpha_timer_ns
        self._rate_due_ns = now_ns + profile.rate_timer_ns

    def on_sent(self, size: int) -> None:
        if self._unlimited:
            return
        self._bytes += size
        if self._bytes >= self._profile.byte_counter:
            self._bytes -= self._profile.byte_counter
            self._counted += 1
            self._increase()

    def _decay(self, now_ns: int) -> None:
        """Let alpha sink for every alpha timer that ended without a CNP."""
        if self._alpha_due_ns and now_ns >= self._alpha_due_ns:
            periods = 1 + (now_ns - self._alpha_due_ns) // self._profile.alpha_timer_ns
            self.alpha *= (1 - self._profile.g) ** periods

    def _increase(self) -> None:
        profile = self._profile
        line = profile.line_rate_bps
        most, least = max(self._timed, self._counted), min(self._timed, self._counted)
        if most > profile.fast_recovery:
            step = profile.additive_share * line
            if least > profile.fast_recovery:
                step *= profile.hyper_factor
            self.target_bps = min(self.target_bps + step, line)
        self.rate_bps = (self.rate_bps + self.target_bps) / 2
        if self.rate_bps > line * (1 - profile.additive_share / 2):
            self.rate_bps = self.target_bps = line
