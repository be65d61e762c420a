"""A congestion controller: the delay of the queue decides, a trimmed packet gives up its bytes."""


class Controller:
    TARGET, GAIN, BETA = 1.5, 4, 0.4

    def __init__(self, path):
        self.path = path
        self.most = 1.5 * path.bdp_bytes
        self.window = self.most
        self.cut_ns = 0

    def on_sack(self, sack):
        if sack.rtt_ns is None or sack.repeated:  # a packet sent again overtakes the queue
            return
        delay = sack.rtt_ns / self.path.base_rtt_ns
        if delay < self.TARGET:
            self.window += self.GAIN * self.path.mtu * sack.acked / self.window
            self.window = min(self.window, self.most)
        elif sack.now_ns - self.cut_ns > sack.rtt_ns:  # at most once in a round trip
            self.window *= 1 - self.BETA * (delay - self.TARGET) / delay
            self.cut_ns = sack.now_ns

    def on_nack(self, nack):
        self.window = max(self.window - nack.lost, self.path.mtu)

    def on_loss(self, loss):
        self.window = max(self.window - loss.lost, self.path.mtu)
