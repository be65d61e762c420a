"""Which EV a SACK or NACK travels on: the reverse paths of one queue pair.

Each plane has one *reverse EV*, known to work towards the peer: the last one of the plane on which
data of ours was acknowledged or a probe of ours answered. While data comes in and none goes out,
one EV picked at random is probed each RTT, and becomes its plane's reverse EV when it answers (MRC
paper, section 2).

A path may die at any time, and the packet that a SACK answers has just proved its own path (a
carrier is the same both ways here). So, and this is ours, every other SACK mirrors the EV of that
packet, an answer to a reliability probe always does, and a reverse EV without fresh proof is not
used: overlapping SACKs then survive the death of either. Nor does an EV become a reverse EV whose
round trip is an eighth of the base RTT longer than that of another plane's: its SACKs would make
packets look late.

A blind sprayer has no reverse EVs, as nothing that is learnt of a path changes its use: it probes
none, and each of its SACKs goes back on the EV of the packet that it answers.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.states import EvState

_FRESH_RTTS: Final = 2
"""A proof holds for so many smoothed RTTs times planes: at one probe an RTT, each plane's turn has
then come with a probability of 86%. Ours."""

_SLOWER_SHIFT: Final = 3
"""An eighth of the base RTT. Ours."""

_PROBES_KEPT: Final = 8
"""Of those under way: one an RTT is sent, so an answer to an older one is RTTs late. Ours."""


@dataclass(frozen=True, slots=True)
class _Proof:
    ev: int
    rtt_ns: int
    time_ns: int


class ReversePaths:
    """The reverse EV of each plane. Times in ns."""

    def __init__(self, engine: EvEngine, rtt: RttEstimator, rng: Random) -> None:
        self._engine = engine
        self._rtt = rtt
        self._rng = rng
        self._evs = tuple(engine.states())
        self._planes = len({engine[ev].plane for ev in self._evs})
        self._proofs: dict[int, _Proof] = {}
        self._probes: dict[int, int] = {}
        self._turn = 0
        self._inbound_until_ns = 0
        self._probe_at_ns = NEVER

    def evs(self) -> dict[int, int]:
        """Return the reverse EV of each plane that has one."""
        return {plane: proof.ev for plane, proof in self._proofs.items()}

    def proved(self, ev: int, rtt_ns: int, now_ns: int) -> None:
        """A packet of ours on `ev` has reached the peer and was answered after `rtt_ns`."""
        if ev not in self._engine or not self._engine.adaptive:
            return
        slower_ns = self._rtt.base_ns >> _SLOWER_SHIFT
        fresh = [proof.rtt_ns for proof in self._proofs.values() if self._is_fresh(proof, now_ns)]
        if rtt_ns <= min(fresh, default=rtt_ns) + slower_ns:
            self._proofs[self._engine[ev].plane] = _Proof(ev, rtt_ns, now_ns)

    def probe_answered(self, ev: int, probe_id: int, now_ns: int) -> None:
        """Take in the answer to a probe; one to somebody else's changes nothing."""
        sent_ns = self._probes.pop(probe_id, None)
        if sent_ns is not None:
            self.proved(ev, now_ns - sent_ns, now_ns)

    def _is_fresh(self, proof: _Proof, now_ns: int) -> bool:
        return now_ns - proof.time_ns <= _FRESH_RTTS * self._planes * self._rtt.smoothed_ns

    def for_sack(self, mirrored: int, now_ns: int) -> int:
        """Return the EV for a SACK that answers a packet on `mirrored`."""
        self._turn ^= 1
        return mirrored if self._turn else self.for_nack(mirrored, now_ns)

    def for_nack(self, mirrored: int, now_ns: int) -> int:
        """Return the reverse EV of the plane of `mirrored`, or `mirrored` if there is none."""
        if mirrored not in self._engine:
            return mirrored
        proof = self._proofs.get(self._engine[mirrored].plane)
        if proof is None or not self._is_fresh(proof, now_ns):
            return mirrored
        bad = self._engine[proof.ev].state is EvState.ASSUMED_BAD
        return mirrored if bad or not self._engine.usable(proof.ev) else proof.ev

    def data_came(self, now_ns: int) -> None:
        """Data has come in: inbound is active for an RTT."""
        self._inbound_until_ns = now_ns + self._rtt.smoothed_ns
        if self._probe_at_ns == NEVER and self._engine.adaptive:
            self._probe_at_ns = now_ns

    @property
    def deadline_ns(self) -> int:
        """When to call `due_probe`, or `NEVER`."""
        return self._probe_at_ns

    def due_probe(self, now_ns: int, *, outbound: bool) -> tuple[int, int] | None:
        """Return (EV, probe id) of the probe to send now, if any; `outbound`: data goes out."""
        if now_ns < self._probe_at_ns:
            return None
        if now_ns > self._inbound_until_ns:
            self._probe_at_ns = NEVER
            return None
        self._probe_at_ns = now_ns + self._rtt.smoothed_ns
        if outbound:
            return None
        allowed = [ev for ev in self._evs if self._engine.usable(ev)]
        if not allowed:
            return None
        probe_id = self._engine.take_probe_id()
        self._probes[probe_id] = now_ns
        if len(self._probes) > _PROBES_KEPT:
            del self._probes[next(iter(self._probes))]
        return self._rng.choice(allowed), probe_id
