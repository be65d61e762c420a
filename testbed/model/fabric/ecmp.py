"""What switches do where hosts choose no path: hash flows into paths, route around what is dead.

The fabric here has no ECMP and no routing protocol (MRC needs neither); for the transports that
MRC is compared with, both are computed: which path a flow is hashed into, and when routing, told of
the faults by the scenario and slow by its convergence time, moves it. Nothing in the fabric detects
anything. A flow moves only if its own path is dead (resilient hashing), to one of those left, and
back when it is healed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from itertools import pairwise

from testbed.model.fabric.addressing import Path, directions_of_path, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import Happening


@dataclass(frozen=True, slots=True)
class Outage:
    """Directions of links that carry nothing for a time, in ns from the start of the run."""

    directions: frozenset[str]
    at_ns: int
    until_ns: int


def outages_of(struck: Iterable[Happening]) -> tuple[Outage, ...]:
    """What of a run's faults a routing protocol would get to know: where nothing comes through."""
    return tuple(
        Outage(frozenset(one.places), step.at, after.at)
        for one in struck
        for step, after in pairwise(one.steps)
        if step.state.cut or step.state.blackhole
    )


@dataclass(frozen=True, slots=True)
class Move:
    """A flow takes another path from `at_ns` on, in ns from the start of the run."""

    at_ns: int
    path: Path


@dataclass(frozen=True, slots=True)
class HashedFlow:
    """What switches hash: the two hosts and the queue pair between them; `seed` is the hash's."""

    src: Node
    dst: Node
    lane: int
    seed: int

    def path(self, topology: Topology, dead: frozenset[str] = frozenset()) -> Path:
        """The path that the flow is hashed into while those directions are dead.

        Where no path is left it stays on its own.
        """
        every = paths(topology, self.src, self.dst)
        own = self._choose(every)
        if dead.isdisjoint(self._crossed(topology, own)):
            return own
        alive = tuple(path for path in every if dead.isdisjoint(self._crossed(topology, path)))
        return self._choose(alive) if alive else own

    def moves(
        self, topology: Topology, outages: Sequence[Outage], convergence_ns: int
    ) -> tuple[Move, ...]:
        """Where routing puts the flow when, each fault and healing being known so much later."""
        known = [
            Outage(one.directions, one.at_ns + convergence_ns, one.until_ns + convergence_ns)
            for one in outages
        ]
        path, moves = self.path(topology), []
        for now_ns in sorted({t for one in known for t in (one.at_ns, one.until_ns)}):
            dead = frozenset[str]().union(
                *(one.directions for one in known if one.at_ns <= now_ns < one.until_ns)
            )
            found = self.path(topology, dead)
            if found != path:
                path = found
                moves.append(Move(now_ns, path))
        return tuple(moves)

    def _choose(self, ways: Sequence[Path]) -> Path:
        key = f"{self.seed} {self.src.name} {self.dst.name} {self.lane}".encode()
        return ways[int.from_bytes(blake2s(key, digest_size=8).digest(), "big") % len(ways)]

    def _crossed(self, topology: Topology, path: Path) -> tuple[str, ...]:
        return directions_of_path(topology, self.src, self.dst, path)
