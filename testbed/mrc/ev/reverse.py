"""Which EV a SACK or NACK travels on: the reverse paths of one queue pair.

Each plane has one *reverse EV*, which is known to reach the peer: the last one of the plane on
which own data was acknowledged or an own probe answered. While data arrives and none is sent, one
EV chosen at random is probed each RTT, and becomes the reverse EV of its plane when the probe is
answered (MRC paper, section 2).

The rest is ours. A path may die at any time, while the packet that a SACK answers has just shown
that its own path works (a carrier takes the same path both ways here). So every second SACK travels
on the EV of that packet, an answer to a reliability probe always does, and a reverse EV without a
recent proof is not used. Overlapping SACKs then survive the death of either path. An EV does not
become a reverse EV if its round trip exceeds that of another plane's reverse EV by an eighth of the
base RTT: its SACKs would make packets look late.

A blind sprayer has no reverse EVs and probes none, as nothing that is learnt about a path changes
its use: each of its SACKs travels on the EV of the packet that it answers.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.entropy import EvState
from testbed.mrc.ev.engine import EvEngine

_FRESH_RTTS: Final = 2
"""A proof is valid for this many smoothed RTTs times planes: with one random probe an RTT, each
plane is probed in that time with a probability of 86%. Ours."""

_SLOWER_SHIFT: Final = 3
"""An eighth of the base RTT. Ours."""

_PROBES_KEPT: Final = 8
"""The number of unanswered probes that are remembered: one is sent each RTT, answers to older ones
are useless. Ours."""


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
        return {plane: proof.ev for plane, proof in self._proofs.items()}

    def record_proof(self, ev: int, rtt_ns: int, now_ns: int) -> None:
        """Note that a packet sent on `ev` reached the peer and was answered after `rtt_ns`."""
        if ev not in self._engine or not self._engine.adaptive:
            return
        slower_ns = self._rtt.base_ns >> _SLOWER_SHIFT
        fresh = [proof.rtt_ns for proof in self._proofs.values() if self._is_fresh(proof, now_ns)]
        if rtt_ns <= min(fresh, default=rtt_ns) + slower_ns:
            self._proofs[self._engine[ev].plane] = _Proof(ev, rtt_ns, now_ns)

    def probe_answered(self, ev: int, probe_id: int, now_ns: int) -> None:
        """Process the answer to a probe; answers to probes of the EV engine are ignored."""
        sent_ns = self._probes.pop(probe_id, None)
        if sent_ns is not None:
            self.record_proof(ev, now_ns - sent_ns, now_ns)

    def _is_fresh(self, proof: _Proof, now_ns: int) -> bool:
        return now_ns - proof.time_ns <= _FRESH_RTTS * self._planes * self._rtt.smoothed_ns

    def for_sack(self, data_ev: int, now_ns: int) -> int:
        """Return the EV for a SACK that answers a packet on `data_ev`."""
        self._turn ^= 1
        return data_ev if self._turn else self.for_nack(data_ev, now_ns)

    def for_nack(self, data_ev: int, now_ns: int) -> int:
        """Return the reverse EV of the plane of `data_ev`, or `data_ev` if there is none."""
        if data_ev not in self._engine:
            return data_ev
        proof = self._proofs.get(self._engine[data_ev].plane)
        if proof is None or not self._is_fresh(proof, now_ns):
            return data_ev
        bad = self._engine[proof.ev].state is EvState.ASSUMED_BAD
        return data_ev if bad or not self._engine.usable(proof.ev) else proof.ev

    def data_arrived(self, now_ns: int) -> None:
        """Note that data has arrived: the inbound direction is active for an RTT."""
        self._inbound_until_ns = now_ns + self._rtt.smoothed_ns
        if self._probe_at_ns == NEVER and self._engine.adaptive:
            self._probe_at_ns = now_ns

    @property
    def deadline_ns(self) -> int:
        """When to call `due_probe`, or `NEVER`."""
        return self._probe_at_ns

    def due_probe(self, now_ns: int, *, outbound: bool) -> tuple[int, int] | None:
        """Return (EV, probe id) of the probe to send now, if any; `outbound`: data is in flight."""
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
