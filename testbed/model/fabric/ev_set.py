"""Which EVs a QP uses: the same number in every plane, random paths within a plane, some backups.

MRC paper, section 3: typically 128-256 EVs per QP, equally many per plane, chosen at random by
senders that do not coordinate; a backup of the same plane replaces an EV that fails.
"""

import random
from dataclasses import dataclass

from testbed.model.fabric.addressing import Path, ev_for_path, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

MAX_DEFAULT_EVS = 256
DEFAULT_BACKUPS = 0.25
"""Share of a plane's EVs, where it has paths to spare. Ours: the paper has more than 100 active EVs
and a backup set of a size it does not tell."""


@dataclass(frozen=True, slots=True)
class EvChoice:
    """One entropy value of a QP.

    Attributes:
        value: the 32 bits that travel in every packet.
        path: the path that it takes.
        active: whether it carries data from the start; a backup otherwise.
    """

    value: int
    path: Path
    active: bool


def ev_count(topology: Topology, src: Node, dst: Node, evs: int | None) -> int:
    """How many EVs a QP gets: the distinct paths up to 256 unless `evs` says another number.

    A multiple of the planes, so that all planes carry the same load.
    """
    count = min(len(paths(topology, src, dst)), MAX_DEFAULT_EVS) if evs is None else evs
    return max(count // topology.planes, 1) * topology.planes


def backups_per_plane(
    topology: Topology, src: Node, dst: Node, per_plane: int, share: float | None
) -> int:
    """How many of a plane's EVs stand by: `share` of them, rounded down.

    If None, a quarter where a plane has more paths than EVs, and none where it has not: there a
    backup would hold a path of the plane back, and with it a part of the fabric that its neighbours
    cannot make good when all of them send at full rate.
    """
    if share is None:
        ways = len(paths(topology, src, dst)) // topology.planes
        share = DEFAULT_BACKUPS if ways > per_plane else 0.0
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
) -> tuple[EvChoice, ...]:
    """Choose a QP's EVs, planes interleaved.

    Args:
        topology: the fabric.
        src: the sending host.
        dst: the receiving host.
        evs: how many in all; the distinct paths if None.
        backups: the share of each plane's EVs kept as backups, rounded down; see
            `backups_per_plane` for None.
        seed: makes the choice repeatable; mixed with the hosts, so that pairs differ.
        lane: which of several QPs of the pair: these differ as well.

    Where a plane has fewer paths than EVs, EVs share paths and differ in their entropy bits.
    """
    of_lane = f"/{lane}" if lane else ""
    chooser = random.Random(f"{seed}/{src.name}/{dst.name}{of_lane}")  # noqa: S311 - repeatable
    per_plane = ev_count(topology, src, dst, evs) // topology.planes
    active = per_plane - backups_per_plane(topology, src, dst, per_plane, backups)
    columns = []
    for plane in range(topology.planes):
        ways = [path for path in paths(topology, src, dst) if path.plane == plane]
        chooser.shuffle(ways)
        columns.append(
            [
                EvChoice(
                    ev_for_path(ways[i % len(ways)], i // len(ways)),
                    ways[i % len(ways)],
                    i < active,
                )
                for i in range(per_plane)
            ]
        )
    return tuple(ev for row in zip(*columns, strict=True) for ev in row)
