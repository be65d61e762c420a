"""NSCC with rules of our own for incast: a window on ECN and queueing delay, clocked by SACKs.

Parameters have the names of the OCP MRC API. MRC's defaults are not public, so `CcProfile.derive`
starts from those of uet-htsim, the public simulator of Ultra Ethernet, whose NSCC this follows:

- no ECN, delay below target: proportional increase, and fast increase while there is no queue;
- no ECN, delay at target or above: fair (additive) increase;
- ECN, delay at target or above: multiplicative decrease, at most once per base RTT;
- ECN, delay below target: no change, the spray reacts;
- quick adapt: after a trim, a timeout or an extreme delay, and if little was acknowledged in the
  last RTT, the window becomes what was acknowledged; packets that were in flight then neither
  shrink it further nor start another quick adapt (where uet-htsim looks at ECN, here a delay above
  target counts as congestion too).

MRC switches do not mark on the last hop (MRC paper, section 2), so an incast never causes ECN
marks: delay alone must bound its queue and share it fairly. Therefore these rules are ours, the
first two after Swift (Kumar et al., SIGCOMM 2020):

- no ECN, *average* delay above target: the multiplicative decrease of the ECN rule. If the sample
  is above the target and the average is not, the window stays; it grows by fair increase only while
  the average is below half of the target.
- The target grows as the window shrinks (`flow_scale`). Of flows that see the same queue, those
  with small windows grow and those with large ones shrink, until they are equal; otherwise only
  `eta` makes them equal, over hundreds of round trips.
- The average covers one window of packets, if that is less than uet-htsim's 80: with a small window
  it would otherwise follow a queue that is long gone.
- A packet sent before a decrease causes no further decrease: once per base RTT is too often while
  the queue makes round trips longer.
- Round trips of retransmissions are not used: they overtake the queue.
- The window may fall below one packet, as in Swift: with more senders than the last hop's queue
  holds packets, one packet each is too much, and their trimmed headers fill the link. A window of
  one packet is halved when its packet is trimmed, and doubled when one arrives, so that about half
  of the packets arrive, however many senders there are. It is one packet again as soon as a round
  trip shows that the queue is short.

With trimming, congestion shows as trims, and the loss of a whole packet as a sign of a broken path,
to which the EVs react; so only without trimming does such a loss shrink the window by its size or
start quick adapt. A sender that waits for others has achieved little in any RTT: one lost packet
would leave it with a fraction of its window.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Final, Self

from testbed.mrc.congestion.control import LossReport, SackReport, scaling
from testbed.mrc.constants import PENALTY_UNIT

_LONG_AGO_NS: Final = 1 << 62
_NO_QUEUE_SHIFT: Final = 3
"""A delay below base RTT / 8 counts as no queue: uet-htsim has 1 us of 12, but the delay of an idle
path here includes the serialisation of a few hops."""

_MOST_HALVINGS: Final = 4
"""The least window is 1/16 of a packet. With less, a sender that was unlucky waits for so long that
the others are done before it (256 to 1,023 senders of 25 packets each). Ours."""

_SMALL_WINDOW: Final = 32
"""Windows of 1/32 of the largest, and smaller ones, get all of the target's `flow_scale`."""


@dataclass(frozen=True, slots=True)
class CcProfile:
    """The parameters of NSCC (names: OCP MRC API). Sizes in bytes, times in ns.

    `base_rtt` is that of the queue pair's own paths, so that flows of near and far senders measure
    the same delay in the same queue; the target is the fabric's.

    `alpha` is in bytes per RTT and ns of delay below target, `eta` and `fi` in bytes per RTT;
    `fi_scale` multiplies the bytes acknowledged, `gamma` the relative excess of delay,
    `max_md_jump` is the smallest factor of one decrease. Quick adapt runs when less than
    `max_cwnd >> qa_gate` was achieved, on trim, timeout or a delay above `qa_threshold`, unless
    `disable_qa`. Increases are granted every `adjust_bytes_threshold` or
    `adjust_period_threshold`. `delay_alpha` is the least weight of one packet in the average delay.
    `flow_scale` is the share of the target that the smallest windows are allowed on top of it.

    Raises:
        ValueError: a value is out of its range.
    """

    base_rtt: int
    target_delay: int
    alpha: float
    eta: float
    fi: float
    fi_scale: float
    max_cwnd: int
    mss: int
    qa_threshold: int
    adjust_bytes_threshold: int
    adjust_period_threshold: int
    trimming: bool = True
    gamma: float = 0.8
    max_md_jump: float = 0.5
    qa_gate: int = 2
    delay_alpha: float = 0.0125
    flow_scale: float = 1 / 3
    disable_qa: bool = False

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if min(self.base_rtt, self.target_delay, self.mss) <= 0:
            raise ValueError("base_rtt, target_delay and mss must be positive")
        if self.max_cwnd < self.mss:
            raise ValueError(f"max_cwnd must hold a packet, not {self.max_cwnd} bytes")
        if min(self.alpha, self.eta, self.fi, self.fi_scale, self.gamma, self.flow_scale) < 0:
            raise ValueError("alpha, eta, fi, fi_scale, gamma, flow_scale must not be negative")
        if not 0 < self.max_md_jump <= 1 or not 0 < self.delay_alpha <= 1:
            raise ValueError("max_md_jump and delay_alpha must lie in (0, 1]")
        if min(self.qa_gate, self.adjust_bytes_threshold, self.adjust_period_threshold) < 0:
            raise ValueError("qa_gate and the adjust thresholds must not be negative")

    @classmethod
    def derive(
        cls,
        *,
        base_rtt_ns: int,
        rate_bps: float,
        path_rtt_ns: int | None = None,
        mss: int = 4096,
        trimming: bool = True,
        dilation: float = 1.0,
    ) -> Self:
        """Return the defaults for a host of `rate_bps` (all its ports) in a fabric of a base RTT.

        `path_rtt_ns` is the base RTT of the queue pair's own paths, where it is another one.
        `dilation` says how many times slower than real the clock runs: `base_rtt_ns` contains it,
        the constants of the simulator do not.

        The defaults are uet-htsim's, except for three that govern incast, which uet-htsim leaves to
        its receivers (measured in tests/sim/test_congestion.py). `eta` is twice as large, so that
        shares become equal sooner. `fi_scale` does not grow with the network: windows would double
        each round trip. `qa_gate` is 2 instead of 3, so that quick adapt also starts in a 7:1
        incast; the new window is what arrived in a base RTT and a target delay, which is what a
        fair share needs in flight.

        Raises:
            ValueError: the bandwidth-delay product does not hold a packet.
        """
        scaled = scaling(base_rtt_ns, rate_bps, dilation, trimming=trimming)
        target_ns = scaled.target_ns
        return cls(
            base_rtt=base_rtt_ns if path_rtt_ns is None else path_rtt_ns,
            target_delay=target_ns,
            alpha=4 * mss * scaled.bdp_ratio * scaled.target_ratio / target_ns,
            eta=0.3 * mss * scaled.bdp_ratio,
            fi=5 * mss * scaled.bdp_ratio,
            fi_scale=0.25,
            max_cwnd=int(1.5 * scaled.bdp),
            mss=mss,
            qa_threshold=4 * target_ns,
            adjust_bytes_threshold=8 * mss,
            adjust_period_threshold=base_rtt_ns,
            trimming=trimming,
        )


class Nscc:
    """The window of one queue pair. It begins at its maximum, as in uet-htsim."""

    def __init__(self, profile: CcProfile) -> None:
        self.profile = profile
        self.average_delay_ns = 0.0
        self._window = float(profile.max_cwnd)
        self._increase = 0.0
        self._since_adjusted = 0
        self._adjusted_ns = 0
        self._decreased_ns = -_LONG_AGO_NS
        self._idle_acked = 0
        self._fast = False
        self._achieved = 0
        self._epoch_ends_ns = -_LONG_AGO_NS
        self._adapt = False
        self._to_ignore = 0
        self._halvings = 0  # of a window of one packet
        self._penalty = 0
        self._before_penalty = 0.0

    @property
    def window(self) -> int:
        """Bytes that may be in flight: less than a packet only where one at a time is trimmed."""
        window = self._window * (PENALTY_UNIT - self._penalty) / PENALTY_UNIT
        return max(int(window), self.profile.mss) >> self._halvings

    @property
    def target_ns(self) -> float:
        """The target delay: longer for a smaller window, by 1 / sqrt(window) as in Swift."""
        profile = self.profile
        smallness = (sqrt(profile.max_cwnd / self._window) - 1) / (sqrt(_SMALL_WINDOW) - 1)
        return profile.target_delay * (1 + profile.flow_scale * min(smallness, 1))

    def on_sack(self, sack: SackReport) -> None:
        """Process a SACK; one that measured no RTT counts its bytes and decides nothing."""
        profile = self.profile
        acked, rtt_ns, repeated, ecn, penalty, restore, _, now_ns = sack
        if penalty is not None:
            self._penalise(penalty, restore=restore)
        if not acked and rtt_ns is None:
            return
        self._double(acked, None if repeated else rtt_ns)
        self._achieved += acked
        self._since_adjusted += acked
        stale = self._to_ignore > 0
        self._to_ignore = max(0, self._to_ignore - acked)
        if rtt_ns is None or repeated:
            self._grant(now_ns)
            return
        delay_ns = max(0, rtt_ns - profile.base_rtt)
        target_ns = self.target_ns
        if not stale:
            self._average(delay_ns, acked)
        congested = ecn or delay_ns >= target_ns
        if (stale and congested) or self._quick_adapt(
            now_ns, extreme=delay_ns > profile.qa_threshold
        ):
            self._forget_increase()
            return
        if not congested:
            self._increase_proportionally(acked, target_ns, delay_ns)
        elif delay_ns >= target_ns:
            self._no_longer_idle()
            if ecn or self.average_delay_ns > target_ns:
                self._decrease(target_ns, rtt_ns, now_ns)
            elif self.average_delay_ns < target_ns / 2:
                self._increase += profile.fi * acked
        self._grant(now_ns)

    def _double(self, acked: int, rtt_ns: int | None) -> None:
        """Double a window below one packet; it is one packet where a round trip was short."""
        if not self._halvings or not acked:
            return
        short = rtt_ns is not None and rtt_ns - self.profile.base_rtt < self.target_ns
        self._halvings = 0 if short else self._halvings - 1

    def on_nack(self, nack: LossReport) -> None:
        """Process a trim, or a refusal: like a loss without trimming."""
        self._adapt = True
        self._on_lost(nack)

    def on_loss(self, loss: LossReport) -> None:
        """Process a loss: (without trimming) a drop shrinks the window by it."""
        if not self.profile.trimming or loss.reason == "timeout":
            self._adapt = True
        self._on_lost(loss)

    def _on_lost(self, loss: LossReport) -> None:
        profile = self.profile
        lost, _, trimmed, _, flight, now_ns = loss
        if trimmed and flight <= 0 and self._window <= profile.mss:
            self._halvings = min(self._halvings + 1, _MOST_HALVINGS)
        stale = self._to_ignore > 0
        self._to_ignore = max(0, self._to_ignore - lost)
        if stale:
            self._forget_increase()
            return
        if trimmed:  # a queue at its trimming threshold, about one BDP
            self._average(profile.base_rtt, lost)
            self._no_longer_idle()
        if self._quick_adapt(now_ns, extreme=False):
            self._forget_increase()
        elif trimmed or not profile.trimming:
            self._bound(self._window - lost)

    def _penalise(self, penalty: int, *, restore: bool) -> None:
        """Reduce the window by `penalty` / 128, as long as the responder asks for it.

        A reduced window does not grow. With `restore` and no penalty it is at least what it was
        when the last penalty began. The exact meaning of the fields is not public.
        """
        if penalty and not self._penalty:
            self._before_penalty = self._window
        self._penalty = penalty
        if restore and not penalty and self._before_penalty:
            self._bound(max(self._window, self._before_penalty))
            self._before_penalty = 0.0

    def _average(self, delay_ns: int, acked: int) -> None:
        """Average a sample, with the weight of as many samples as it acknowledges packets."""
        profile = self.profile
        packets = max(1.0, acked / profile.mss)
        alpha = max(profile.delay_alpha, min(profile.mss / self._window, 0.5))
        weight = 1 - (1 - alpha) ** packets
        self.average_delay_ns += weight * (delay_ns - self.average_delay_ns)

    def _quick_adapt(self, now_ns: int, *, extreme: bool) -> bool:
        profile = self.profile
        if profile.disable_qa or now_ns <= self._epoch_ends_ns:
            return False
        epoch_ns = profile.base_rtt + profile.target_delay
        adapt = (
            now_ns - self._epoch_ends_ns < profile.base_rtt  # else it had nothing to send
            and (self._adapt or extreme)
            and self._achieved < profile.max_cwnd >> profile.qa_gate
        )
        if adapt:
            self._to_ignore = int(self._window)
            self._decreased_ns = now_ns
            self._bound(min(self._window, self._achieved))
        self._adapt = False
        self._achieved = 0
        self._epoch_ends_ns = now_ns + epoch_ns
        return adapt

    def _increase_proportionally(self, acked: int, target_ns: float, delay_ns: int) -> None:
        profile = self.profile
        if delay_ns < profile.base_rtt >> _NO_QUEUE_SHIFT:
            self._idle_acked += acked
            if self._fast or self._idle_acked > self._window:
                self._fast = True
                if not self._penalty:
                    self._bound(self._window + acked * profile.fi_scale)
                return
        else:
            self._no_longer_idle()
        self._increase += profile.alpha * acked * (target_ns - delay_ns)

    def _no_longer_idle(self) -> None:
        self._idle_acked = 0
        self._fast = False

    def _decrease(self, target_ns: float, rtt_ns: int, now_ns: int) -> None:
        profile = self.profile
        average_ns = self.average_delay_ns
        pause_ns = max(rtt_ns, profile.base_rtt)
        if average_ns <= target_ns or now_ns - self._decreased_ns <= pause_ns:
            return
        excess = (average_ns - target_ns) / average_ns
        self._bound(self._window * max(1 - profile.gamma * excess, profile.max_md_jump))
        self._decreased_ns = now_ns

    def _grant(self, now_ns: int) -> None:
        profile = self.profile
        elapsed_ns = now_ns - self._adjusted_ns
        if (
            self._since_adjusted <= profile.adjust_bytes_threshold
            and elapsed_ns <= profile.adjust_period_threshold
        ):
            return
        if not self._penalty:
            increase = self._increase / self._window
            if elapsed_ns >= profile.adjust_period_threshold:
                increase += profile.eta
            self._bound(self._window + increase)
        if elapsed_ns >= profile.adjust_period_threshold:
            self._adjusted_ns = now_ns
        self._forget_increase()

    def _forget_increase(self) -> None:
        self._increase = 0.0
        self._since_adjusted = 0

    def _bound(self, window: float) -> None:
        self._window = min(max(window, float(self.profile.mss)), float(self.profile.max_cwnd))
