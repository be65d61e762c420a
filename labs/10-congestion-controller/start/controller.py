"""Your congestion controller. algorithms.md lists all methods, and what they are told."""


class Controller:
    """Ten packets may be in flight, whatever happens."""

    def __init__(self, path):
        # path has base_rtt_ns, bdp_bytes (of all ports of the host), mtu, trimming and seed.
        self.path = path
        self.window = 10 * path.mtu

    def on_sack(self, sack):
        """A SACK has arrived: sack.acked bytes are new; sack.rtt_ns is the round trip, or None."""

    def on_nack(self, nack):
        """A packet of nack.lost bytes was refused; nack.trimmed: by a full queue."""

    def on_loss(self, loss):
        """A packet of loss.lost bytes is lost; loss.reason says how that is known."""
