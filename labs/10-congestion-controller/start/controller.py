"""Your congestion controller. docs/algorithms.md lists all methods."""


class Controller:
    """Ten packets may be in flight, whatever happens."""

    def __init__(self, path):
        # path has base_rtt_ns, bdp_bytes (of all ports of the host), mtu, trimming and seed.
        self.path = path
        self.window = 10 * path.mtu

    def on_sack(self, acked, rtt_ns, *, ecn, now_ns):
        """A SACK has arrived: `acked` bytes are new; rtt_ns is the round trip, or None."""

    def on_loss(self, lost, *, trimmed, now_ns):
        """`lost` bytes were lost, or were trimmed by a full queue."""
