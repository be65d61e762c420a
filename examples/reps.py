r"""REPS, recycled entropy packet spraying, as a path selector with parameters.

    testbed simulate permutation --set transport.spray=examples/reps.py:Reps
    testbed simulate link-failure --set transport.spray=examples/reps.py:Reps \
        --sweep transport.spray.cache=4,8,16

After Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure
Mitigation" (arXiv 2407.21625), from its text. An EV whose packet has arrived without an ECN mark
comes into a small cache, and a later packet takes it from there; without one an EV is drawn at
random. After a failure the cache is frozen for a while: nothing is drawn, and the EVs of the cache
are used again and again, since they have worked.

REPS knows one port. Here each EV is in a plane, and each plane has a port: only EVs whose port has
room are taken. MRC's EV states are kept beside it; of them it follows denials alone.
"""

from collections.abc import Sequence
from random import Random

from testbed.algorithms import Duration, EvInfo, Ports, Record


class Reps:
    """Takes EVs that have just worked; draws one at random if it knows none."""

    def __init__(
        self,
        evs: Sequence[EvInfo],
        seed: int,
        *,
        record: Record,
        cache: int = 8,
        freeze: Duration = "2 RTT",
        explore: int = 32,
    ) -> None:
        """Begin with an empty cache.

        Args:
            evs: the EVs; backups are used like others.
            seed: for what is drawn.
            record: counts what was recycled and drawn, and notes when the cache is frozen.
            cache: EVs that it holds.
            freeze: how long it is frozen after a loss, at least.
            explore: packets whose EVs are drawn when it thaws.
        """
        self.plane = {info.ev: info.plane for info in evs}
        self.usable = list(self.plane)
        self.random = Random(seed)
        self.record = record
        self.size, self.freeze_ns, self.explore = cache, freeze, explore
        self.fresh: list[int] = []  # EVs that have worked and were not used since, oldest first
        self.known: list[int] = []  # the last EVs that have worked, used since or not
        self.frozen_until_ns = 0
        self.frozen = False
        self.to_draw = 0

    def pick(self, now_ns: int, flight: int, avoid: int | None, ports: Ports) -> int | None:
        """Return the oldest EV of the cache whose port has room, else one that is drawn."""
        if self.frozen and now_ns > self.frozen_until_ns:
            self.frozen, self.to_draw = False, self.explore
        if not self.usable:
            return None
        if self.to_draw == 0:
            for cached in (self.fresh, self.known if self.frozen else []):
                ev = next((ev for ev in cached if ports.room[self.plane[ev]]), None)
                if ev is not None:
                    cached.remove(ev)
                    if cached is self.known:
                        cached.append(ev)  # while it is frozen, they take turns
                    self.record.count("recycled")
                    return ev
        self.to_draw = max(self.to_draw - 1, 0)
        self.record.count("drawn")
        with_room = [ev for ev in self.usable if ports.room[self.plane[ev]]]
        return self.random.choice(with_room or self.usable)

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Put an EV that worked into the cache."""
        if ecn or ev not in self.usable:
            return
        for cached in (self.fresh, self.known):
            cached.append(ev)
            del cached[: -self.size]

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Freeze the cache: a path has failed."""
        if not self.frozen and self.to_draw == 0:
            self.record.event("freeze", ev)
            self.frozen, self.frozen_until_ns = True, now_ns + self.freeze_ns

    def on_state(self, ev: int, state: str, *, active: bool, now_ns: int) -> None:
        """Follow what an operator denies and allows."""
        if state == "DENIED" and ev in self.usable:
            self.usable.remove(ev)
            self.fresh, self.known = ([e for e in c if e != ev] for c in (self.fresh, self.known))
        elif state != "DENIED" and ev in self.plane and ev not in self.usable:
            self.usable.append(ev)
