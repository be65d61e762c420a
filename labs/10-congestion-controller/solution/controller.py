"""A congestion controller: the delay of the queue decides, a trimmed packet gives up its bytes."""


class Controller:
    TARGET, GAIN, BETA = 1.5, 4, 0.4

    def __init__(self, path):
        self.path = path
        self.most = 1.5 * path.bdp_bytes
        self.window = self.most
        self.cut_ns = 0

    def on_sack(self, acked, rtt_ns, *, ecn, now_ns):
        if rtt_ns is None:
            return
        delay = rtt_ns / self.path.base_rtt_ns
        if delay < self.TARGET:
            self.window += self.GAIN * self.path.mtu * acked / self.window
            self.window = min(self.window, self.most)
        elif now_ns - self.cut_ns > rtt_ns:  # at most once in a round trip
            self.window *= 1 - self.BETA * (delay - self.TARGET) / delay
            self.cut_ns = now_ns

    def on_loss(self, lost, *, trimmed, now_ns):
        self.window = max(self.window - lost, self.path.mtu)
