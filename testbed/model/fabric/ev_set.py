"""The EVs of a QP: equally many in each plane, on random paths of the plane, some as backups.

MRC paper, section 3: typically 128-256 EVs per QP, equally many per plane, chosen at random by
senders that do not coordinate; a backup of the same plane replaces an EV that fails.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.model.fabric.addressing import Path, ev_for_path, path_count, path_of_ev, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

MAX_DEFAULT_EVS = 256
DEFAULT_BACKUPS = 0.25
"""Share of a plane's EVs that are backups if the plane has more paths than EVs. Ours: the paper has
more than 100 active EVs and does not give the size of the backup set."""


@dataclass(frozen=True, slots=True)
class EvChoice:
    """One entropy value chosen for a QP.

    Attributes:
        value: its 32 bits, which each packet carries.
        path: the path that it selects.
        active: whether it carries data from the start; otherwise it is a backup.
        hashed: whether a switch's hash selects the path, so that the sender does not know it.
    """

    value: int
    path: Path
    active: bool
    hashed: bool = False


def ev_count(topology: Topology, src: Node, dst: Node, evs: int | None) -> int:
    """The number of EVs of a QP: `evs`, or if None the number of distinct paths, up to 256.

    It is rounded down to a multiple of the planes, so that all planes carry the same load.
    """
    count = min(path_count(topology, src, dst), MAX_DEFAULT_EVS) if evs is None else evs
    return max(count // topology.planes, 1) * topology.planes


def backups_per_plane(
    topology: Topology, src: Node, dst: Node, per_plane: int, share: float | None
) -> int:
    """The number of backups among a plane's EVs: a share of them, rounded down.

    If `share` is None it is a quarter if the plane has more paths than EVs, otherwise none: a
    backup would then leave a path unused, whose capacity is needed when all hosts send at full
    rate.
    """
    if share is None:
        paths_per_plane = path_count(topology, src, dst) // topology.planes
        share = DEFAULT_BACKUPS if paths_per_plane > per_plane else 0.0
    return int(per_plane * share)


def choose_evs(
    topology: Topology,
    src: Node,
    dst: Node,
    *,
    evs: int | None,
    backups: float | None,
    seed: int,
    lane: int = 0,
    hashed: bool = False,
) -> tuple[EvChoice, ...]:
    """Choose a QP's EVs, planes interleaved.

    If a plane has fewer paths than EVs, EVs share paths and differ in their entropy bits.

    Args:
        topology: the fabric.
        src: the sending host.
        dst: the receiving host.
        evs: their number; None: see `ev_count`.
        backups: the share of each plane's EVs that are backups; None: see `backups_per_plane`.
        seed: of the random choice, which also depends on the hosts.
        lane: the number of the QP among those of the pair; the choice depends on it too.
        hashed: whether switches hash EVs to paths: each EV has a path of its plane by chance, so
            that some have more EVs than others. The hash is computed in advance, as for the
            transports of `ecmp.py`; the value of an EV names the path that it is hashed to.
    """
    suffix = f"/{lane}" if lane else ""
    chooser = random.Random(f"{seed}/{src.name}/{dst.name}{suffix}")  # noqa: S311 - repeatable
    per_plane = ev_count(topology, src, dst, evs) // topology.planes
    active = per_plane - backups_per_plane(topology, src, dst, per_plane, backups)
    planes: list[list[EvChoice]] = []
    for plane in range(topology.planes):
        candidates = [path for path in paths(topology, src, dst) if path.plane == plane]
        chooser.shuffle(candidates)
        evs_of_plane = []
        for i in range(per_plane):
            entropy, place = divmod(i, len(candidates))
            if hashed:
                entropy, place = i, chooser.randrange(len(candidates))
            path = candidates[place]
            evs_of_plane.append(EvChoice(ev_for_path(path, entropy), path, i < active, hashed))
        planes.append(evs_of_plane)
    return tuple(ev for row in zip(*planes, strict=True) for ev in row)


def listed_evs(
    topology: Topology, src: Node, dst: Node, values: Sequence[int], backups: float
) -> tuple[EvChoice, ...]:
    """The EVs of an explicit or generated profile; the last ones of each plane are backups.

    Args:
        topology: the fabric.
        src: the sending host.
        dst: the receiving host.
        values: the EVs.
        backups: the share of each plane's EVs that are backups, rounded down.
    """
    chosen = [(value, path_of_ev(topology, src, dst, value)) for value in values]
    counts = Counter(path.plane for _, path in chosen)
    active = {plane: count - int(count * backups) for plane, count in counts.items()}
    evs = []
    for value, path in chosen:
        active[path.plane] -= 1
        evs.append(EvChoice(value, path, active[path.plane] >= 0))
    return tuple(evs)
