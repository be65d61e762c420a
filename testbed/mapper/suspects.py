"""What can be ill, and what losses it would cause."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from testbed.mapper.paths import ProbePath
from testbed.model.topology import Node, Tier, Topology


class SuspectKind(StrEnum):
    """What a suspect is."""

    DIRECTION = "direction"
    LINK = "link"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, order=True)
class Suspect:
    """Something that may lose packets: `p0_t0_0>p0_t1_1`, `p0_t0_0--p0_t1_1` or `p0_t1_1`."""

    kind: SuspectKind
    name: str

    @property
    def link(self) -> frozenset[str]:
        """The names of a link's two ends; of a switch its own name."""
        return frozenset(re.split("--|>", self.name))


def suspects_on(path: ProbePath) -> Iterator[Suspect]:
    """Everything that could lose a probe on its way; what it passes twice comes twice."""
    for near, far in pairwise(path.nodes):
        lower, upper = sorted((near, far), key=_height)
        yield Suspect(SuspectKind.DIRECTION, f"{near.name}>{far.name}")
        yield Suspect(SuspectKind.LINK, f"{lower.name}--{upper.name}")
        if far.tier is not Tier.HOST:
            yield Suspect(SuspectKind.SWITCH, far.name)


def directions_of(topology: Topology, suspect: Suspect) -> frozenset[str]:
    """The link directions that a suspect takes with it."""
    if suspect.kind is SuspectKind.DIRECTION:
        return frozenset({suspect.name})
    if suspect.kind is SuspectKind.LINK:
        links = [topology.links[suspect.name]]
    else:
        links = [link for _, _, link in topology.adjacency[topology.nodes[suspect.name]]]
    ends = [(link.lower.node.name, link.upper.node.name) for link in links]
    return frozenset(way for low, up in ends for way in (f"{low}>{up}", f"{up}>{low}"))


def _height(node: Node) -> int:
    return (Tier.HOST, Tier.T0, Tier.T1).index(node.tier)
