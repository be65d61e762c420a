"""NSCC as Ultra Ethernet 1.0 defines it, as far as two independent readings of it agree.

The numbers 1 to 18 are those of the rules in docs/congestion.md; tests/mrc/test_nscc_uec.py has a
test for each. Notation there: W window, F bytes in flight, r newly received bytes, d queueing delay
of a sample, d* the target delay, B the base RTT. All sizes are those of inner packets ("nominal").
`ReceiverWindow` counts them (rule 2).

Where the readings leave a choice:

- The average delay (rule 10) weights a sample by the share of the window that it reports.
- "No delay" (rule 6) is at most B / 12: the 1 us of one reading, at the 12 us that UEC's constants
  are scaled from.
- A SACK that measured no round trip decides nothing; its bytes count with the next that did.
- The F that bounds a penalised window (rule 17) is that before the first SACK of the penalty. Each
  SACK lowers F by r until the sender has sent again: bounded by that F, the window would lose all
  of r, whatever the penalty.
"""

from dataclasses import dataclass
from typing import Final, Self

from testbed.mrc.congestion.control import BITS, LossReport, SackReport, scaling
from testbed.mrc.constants import NS_PER_S

_NO_DELAY_SHARE: Final = 12
_PENALTY_SHIFT: Final = 7


@dataclass(frozen=True, slots=True)
class UecProfile:
    """The parameters of NSCC (rule 1). Sizes in bytes, times in ns, `rate_bps` of all ports.

    `alpha` is in bytes per RTT and ns of delay below target, `eta` and `fi` are in bytes per RTT,
    `fast` multiplies received bytes. `qa_threshold` None switches the delay trigger of quick adapt
    off.

    Raises:
        ValueError: a value cannot work.
    """

    base_rtt: int
    rate_bps: float
    target_delay: int
    mtu: int
    alpha: float
    eta: float
    fi: float
    fast: float
    qa_threshold: int | None
    gamma: float = 0.8
    max_md_jump: float = 0.5
    qa_gate: int = 3

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if min(self.base_rtt, self.target_delay, self.mtu, self.rate_bps) <= 0:
            raise ValueError("base_rtt, rate_bps, target_delay and mtu must be positive")
        if self.max_window(self.base_rtt) < self.mtu:
            raise ValueError(f"1.5 BDP must hold a packet of {self.mtu} bytes")

    def max_window(self, base_rtt_ns: int) -> int:
        """The largest window, and the first: 1.5 bandwidth-delay products."""
        return int(1.5 * self.rate_bps * base_rtt_ns / BITS / NS_PER_S)

    @classmethod
    def derive(
        cls,
        *,
        base_rtt_ns: int,
        rate_bps: float,
        mtu: int,
        path_rtt_ns: int | None = None,
        trimming: bool = True,
        dilation: float = 1.0,
    ) -> Self:
        """Return UEC's parameters for a host of `rate_bps` in a fabric of a base RTT.

        Args:
            base_rtt_ns: of the longest path; the target delay and the scaling follow from it.
            rate_bps: of all ports together.
            mtu: the size of a full inner packet.
            path_rtt_ns: the base RTT of the queue pair's own paths, where it is another one.
            trimming: whether the fabric trims.
            dilation: how many times slower than real the clock runs.

        Raises:
            ValueError: the bandwidth-delay product does not hold a packet.
        """
        scaled = scaling(base_rtt_ns, rate_bps, dilation, trimming=trimming)
        target_ns = scaled.target_ns
        return cls(
            base_rtt=base_rtt_ns if path_rtt_ns is None else path_rtt_ns,
            rate_bps=rate_bps,
            target_delay=target_ns,
            mtu=mtu,
            alpha=4 * scaled.bdp_ratio * scaled.target_ratio * mtu / target_ns,
            eta=0.15 * scaled.bdp_ratio * mtu,
            fi=5 * scaled.bdp_ratio * mtu,
            fast=0.25 * scaled.bdp_ratio,
            qa_threshold=None if trimming else 4 * target_ns,
        )


class UecNscc:
    """The window of one queue pair, or of all to one destination. It begins at its maximum.

    Attributes:
        base_rtt_ns: the least round trip so far (rule 3).
    """

    def __init__(self, profile: UecProfile) -> None:
        self.profile = profile
        self.base_rtt_ns = profile.base_rtt
        self.average_delay_ns = 0.0
        self._largest = profile.max_window(profile.base_rtt)
        self._window = float(self._largest)
        self._increase = 0.0
        self._undecided = 0  # bytes of SACKs that measured no round trip
        self._since_applied = 0
        self._applied_ns = 0
        self._decreased_ns: int | None = None
        self._undelayed = 0
        self._fast = False
        self._armed = False
        self._achieved = 0
        self._epoch_ends_ns: int | None = None
        self._to_ignore = 0
        self._ignored = 0
        self._penalised = False
        self._saved: float | None = None

    @property
    def window(self) -> int:
        return int(self._window)

    @property
    def _ignoring(self) -> bool:
        return self._ignored < self._to_ignore

    def on_sack(self, sack: SackReport) -> None:
        """Process a SACK (rules 3 to 13, 17, 18)."""
        profile, now_ns, received = self.profile, sack.now_ns, sack.acked
        self._achieved += received
        self._since_applied += received
        self._ignored += received
        may_increase = self._apply_penalty(sack)
        if sack.rtt_ns is None:
            self._undecided += received
            self._apply(now_ns)
            return
        received += self._undecided
        self._undecided = 0
        self._lower_base(sack.rtt_ns)
        delay_ns = max(0, sack.rtt_ns - self.base_rtt_ns)
        self._average(delay_ns, received)
        if sack.ecn and self._ignoring:
            return
        if self._quick_adapt(now_ns, delay_ns, sack.flight):
            return
        if delay_ns >= profile.target_delay:
            self._stop_fast_increase()
            if sack.ecn:
                self._decrease(now_ns)
            elif may_increase:
                self._increase += profile.fi * received
        elif not sack.ecn and may_increase:
            self._increase_proportionally(received, delay_ns)
        self._apply(now_ns)

    def on_nack(self, nack: LossReport) -> None:
        """Process a trim (rule 14) or a refusal (rule 15)."""
        if not nack.trimmed:
            if nack.rtt_ns is not None:
                self._lower_base(nack.rtt_ns)
            return
        self._ignored += nack.lost
        self._stop_fast_increase()
        self._average(self.base_rtt_ns, nack.lost)
        self._armed = True
        if self._ignoring or self._quick_adapt(nack.now_ns, 0, nack.flight):
            return
        self._bound(self._window - nack.lost)

    def on_loss(self, loss: LossReport) -> None:
        self._ignored += loss.lost
        self._stop_fast_increase()
        self._bound(self._window - loss.lost)

    def _apply_penalty(self, sack: SackReport) -> bool:
        """Obey the responder (rules 17, 18); returns whether this SACK may increase the window."""
        if sack.penalty is None:
            return True
        if sack.penalty == 0:
            self._penalised = False
            if sack.restore and self._saved is not None:
                self._bound(self._saved)
                self._saved = None
            return True
        if self._saved is None:
            self._saved = self._window
        if not self._penalised:
            self._penalised = True
            self._bound(min(self._window, sack.flight + sack.acked))
        self._bound(self._window - (sack.penalty * sack.acked >> _PENALTY_SHIFT))
        self._stop_fast_increase()
        return False

    def _lower_base(self, rtt_ns: int) -> None:
        if 0 < rtt_ns < self.base_rtt_ns:
            self.base_rtt_ns = rtt_ns
            self._largest = max(self.profile.max_window(rtt_ns), self.profile.mtu)
            self._bound(self._window)

    def _average(self, delay_ns: int, size: int) -> None:
        """Average a sample over the bytes of the last window, which is those of the last RTT."""
        weight = min(size / self._window, 1.0)
        self.average_delay_ns += weight * (delay_ns - self.average_delay_ns)

    def _quick_adapt(self, now_ns: int, delay_ns: int, flight: int) -> bool:
        """Adapt the window to what was achieved, once in an epoch (rules 11, 12)."""
        profile, first = self.profile, self._epoch_ends_ns is None
        if self._epoch_ends_ns is not None and now_ns <= self._epoch_ends_ns:
            return False
        extreme = profile.qa_threshold is not None and delay_ns > profile.qa_threshold
        adapt = (
            not first
            and (self._armed or extreme)
            and self._achieved < self._largest >> profile.qa_gate
        )
        if adapt:
            self._bound(self._achieved)
            self._to_ignore = max(flight, 0)
            self._ignored = 0
            self._forget_increase()
            self._stop_fast_increase()
        self._armed = False
        self._achieved = 0
        self._epoch_ends_ns = now_ns + self.base_rtt_ns + profile.target_delay
        return adapt

    def _increase_proportionally(self, received: int, delay_ns: int) -> None:
        profile = self.profile
        if delay_ns <= self.base_rtt_ns // _NO_DELAY_SHARE:
            self._undelayed += received
            if self._fast or self._undelayed > self._window:
                self._fast = True
                self._bound(self._window + profile.fast * received)
                return
        else:
            self._stop_fast_increase()
        self._increase += profile.alpha * received * (profile.target_delay - delay_ns)

    def _stop_fast_increase(self) -> None:
        self._undelayed = 0
        self._fast = False

    def _decrease(self, now_ns: int) -> None:
        profile, average_ns = self.profile, self.average_delay_ns
        since = self._decreased_ns
        if average_ns <= profile.target_delay:
            return
        if since is not None and now_ns - since < self.base_rtt_ns:
            return
        excess = (average_ns - profile.target_delay) / average_ns
        self._bound(self._window * max(1 - profile.gamma * excess, profile.max_md_jump))
        self._decreased_ns = now_ns

    def _apply(self, now_ns: int) -> None:
        """Apply what was gained every 8 packets or base RTT (rule 9)."""
        period = now_ns - self._applied_ns >= self.base_rtt_ns
        if self._since_applied < 8 * self.profile.mtu and not period:
            return
        self._bound(
            self._window + self._increase / self._window + (self.profile.eta if period else 0)
        )
        if period:
            self._applied_ns = now_ns
        self._forget_increase()

    def _forget_increase(self) -> None:
        self._increase = 0.0
        self._since_applied = 0

    def _bound(self, window: float) -> None:
        self._window = min(max(window, float(self.profile.mtu)), float(self._largest))
