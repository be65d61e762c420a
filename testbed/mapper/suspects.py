"""What can be faulty, and which probes it would lose."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from testbed.mapper.paths import ProbePath
from testbed.model.fabric.names import link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.targets import target_directions


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
    def link(self) -> str:
        """The name of the link, also of a direction; of a switch its own name."""
        return link_of(self.name) if self.kind is SuspectKind.DIRECTION else self.name

    def ends_at(self, switch: "Suspect") -> bool:
        """Whether it is a link, or a direction of one, of this switch."""
        return self.kind is not SuspectKind.SWITCH and switch.name in self.link.split("--")


def suspects_on(path: ProbePath) -> Iterator[Suspect]:
    """Everything that could lose a probe on its path; what the path crosses twice comes twice."""
    for direction, node in zip(path.directions, path.nodes[1:], strict=True):
        yield Suspect(SuspectKind.DIRECTION, direction)
        yield Suspect(SuspectKind.LINK, link_of(direction))
        if node.tier is not Tier.HOST:
            yield Suspect(SuspectKind.SWITCH, node.name)


def suspect_directions(topology: Topology, suspect: Suspect) -> frozenset[str]:
    """The link directions on which a suspect loses packets if it is faulty."""
    return frozenset(target_directions(topology, suspect.name) or ())
