"""One path of a queue pair, and what holds it: a slot of the rotation, a plane."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from testbed.mrc.constants import NEVER
from testbed.mrc.events import EvState


@dataclass(slots=True, eq=False)
class Path:
    """One EV as the engine keeps it; others read `ev`, `plane`, `path_key` and `state`.

    `grey`: condemned though it delivers; None while its first probe is to tell.
    """

    ev: int
    plane: int
    path_key: Hashable
    state: EvState = EvState.GOOD
    home: "Slot | None" = None
    slot: "Slot | None" = None
    verified: bool = False
    successes: int = 0
    grey: bool | None = False
    relapses: int = 0
    relapsed: bool = False
    unplugged: bool = False
    returned_ns: int | None = None
    blamed: int = 0
    probe_id: int | None = None
    probe_sent_ns: int = 0
    deadline_ns: int = NEVER


@dataclass(slots=True, eq=False)
class Slot:
    """A place in the rotation, and the path that holds it."""

    occupant: Path | None = None


@dataclass(slots=True, eq=False)
class Plane:
    """The slots and the paths of one plane; `cursor` is where the rotation stands."""

    slots: list[Slot] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    cursor: int = 0
    down: bool = False
