r"""A congestion controller.

    testbed simulate incast --set transport.congestion=mine.py:Mine
    testbed simulate incast --set transport.congestion=mine.py:Mine \
        --sweep transport.congestion.cut=0.5,0.7

The testbed's docs/algorithms.md says what each method is told.
"""

from testbed.algorithms import CcPath, LossReport, Record, SackReport


class Mine:
    """Adds a packet to the window in each round trip, and cuts it where a queue shows."""

    def __init__(self, path: CcPath, *, record: Record, cut: float = 0.5) -> None:
        """Begin with a window of all ports; `cut` is what is left of it after a mark."""
        self.path = path
        self.window = float(path.bdp_bytes)
        self.cut = cut
        self.cut_ns = 0
        self.record = record

    def on_sack(self, sack: SackReport) -> None:
        """Grow, or shrink at an ECN mark."""
        if sack.ecn:
            self.shrink(sack.now_ns)
        else:
            self.window += self.path.mtu * sack.acked / self.window

    def on_nack(self, nack: LossReport) -> None:
        """Shrink: a queue trimmed the packet, or the receiver refused it."""
        self.shrink(nack.now_ns)

    def on_loss(self, loss: LossReport) -> None:
        """Shrink: the packet is lost."""
        self.shrink(loss.now_ns)

    def shrink(self, now_ns: int) -> None:
        """Cut the window, at most once in a round trip."""
        if now_ns - self.cut_ns > self.path.base_rtt_ns:
            self.window, self.cut_ns = self.window * self.cut, now_ns
            self.record.event("cut", self.window)
