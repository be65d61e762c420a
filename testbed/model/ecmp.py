"""ECMP and routing for the transports that MRC is compared with: which path a flow is hashed into.

The fabric has neither (MRC needs neither), so both are computed in advance: the path that a flow's
hash selects, and the times at which routing moves the flow. Routing detects nothing here: it knows
the faults from the scenario, each a convergence time late. A flow moves only if its own path is
dead (resilient hashing), to one of the paths that are left, and back when its path is healed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from itertools import pairwise

from testbed.model.fabric.addressing import Path, directions_of_path, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import ScheduledFault


@dataclass(frozen=True, slots=True)
class Outage:
    """Directions of links that carry nothing for a time, in ns from the start of the run."""

    directions: frozenset[str]
    at_ns: int
    until_ns: int


def outages_of(faults: Iterable[ScheduledFault]) -> tuple[Outage, ...]:
    """The outages that a routing protocol would learn of: where faults let nothing pass."""
    return tuple(
        Outage(frozenset(fault.places), step.at_ns, after.at_ns)
        for fault in faults
        for step, after in pairwise(fault.steps)
        if step.state.cut or step.state.blackhole
    )


@dataclass(frozen=True, slots=True)
class Move:
    """A flow takes another path from `at_ns` on, in ns from the start of the run."""

    at_ns: int
    path: Path


@dataclass(frozen=True, slots=True)
class HashedFlow:
    """The input of a switch's hash: two hosts, the queue pair between them, the hash's seed."""

    src: Node
    dst: Node
    lane: int
    seed: int

    def path(self, topology: Topology, dead: frozenset[str] = frozenset()) -> Path:
        """The path of the flow while some directions are dead.

        If every path is dead the flow stays on its own.
        """
        all_paths = paths(topology, self.src, self.dst)
        own = self._select(all_paths)
        if self._is_alive(topology, own, dead):
            return own
        alive = [path for path in all_paths if self._is_alive(topology, path, dead)]
        return self._select(alive) if alive else own

    def moves(
        self, topology: Topology, outages: Sequence[Outage], convergence_ns: int
    ) -> tuple[Move, ...]:
        """When routing moves the flow to which path, a convergence time after each change."""
        path, moves = self.path(topology), []
        for time_ns in sorted({t for outage in outages for t in (outage.at_ns, outage.until_ns)}):
            active = (
                outage.directions for outage in outages if outage.at_ns <= time_ns < outage.until_ns
            )
            next_path = self.path(topology, frozenset[str]().union(*active))
            if next_path != path:
                path = next_path
                moves.append(Move(time_ns + convergence_ns, path))
        return tuple(moves)

    def _select(self, candidates: Sequence[Path]) -> Path:
        key = f"{self.seed} {self.src.name} {self.dst.name} {self.lane}".encode()
        digest = blake2s(key, digest_size=8).digest()
        return candidates[int.from_bytes(digest, "big") % len(candidates)]

    def _is_alive(self, topology: Topology, path: Path, dead: frozenset[str]) -> bool:
        return dead.isdisjoint(directions_of_path(topology, self.src, self.dst, path))
