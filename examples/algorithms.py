"""A path selector and a congestion controller, as short as they can be.

    testbed simulate link-failure --set transport.spray=examples/algorithms.py:RandomEv
    testbed simulate incast --set transport.congestion=examples/algorithms.py:Aimd

docs/algorithms.md explains them.
"""

from collections.abc import Sequence
from random import Random

from testbed.host.own_code import CcPath
from testbed.mrc import EvInfo


class RandomEv:
    """Takes an EV of the active set at random, and another one to send a packet again."""

    def __init__(self, evs: Sequence[EvInfo], seed: int) -> None:
        self.active = [info.ev for info in evs if info.active]
        self.random = Random(seed)

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return an EV for the next packet; None if no path is left."""
        others = [ev for ev in self.active if ev != avoid]
        return self.random.choice(others or self.active) if self.active else None

    def on_state(self, ev: int, state: str, *, active: bool, now_ns: int) -> None:
        """Follow the active set."""
        if active and ev not in self.active:
            self.active.append(ev)
        elif not active and ev in self.active:
            self.active.remove(ev)


class Aimd:
    """Halves the window when a queue shows, and otherwise adds a packet in each round trip."""

    def __init__(self, path: CcPath) -> None:
        self.path = path
        self.window = float(path.bdp_bytes)
        self.halved_ns = 0

    def on_sack(self, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Grow; shrink at an ECN mark, or if the round trip is twice as long as without queues."""
        if ecn or (rtt_ns is not None and rtt_ns > 2 * self.path.base_rtt_ns):
            self.halve(now_ns)
        else:
            self.window += self.path.mtu * acked / self.window

    def on_loss(self, lost: int, *, trimmed: bool, now_ns: int) -> None:
        """Shrink."""
        self.halve(now_ns)

    def halve(self, now_ns: int) -> None:
        """Halve the window, at most once in a round trip."""
        if now_ns - self.halved_ns > self.path.base_rtt_ns:
            self.window, self.halved_ns = self.window / 2, now_ns
