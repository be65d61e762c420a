"""One EV of a queue pair, and what holds it: a slot of the rotation, a plane."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from testbed.mrc.constants import NEVER
from testbed.mrc.ev.states import EvState


class Greyness(Enum):
    """Whether the path of a condemned EV is grey: it delivers most packets and loses some."""

    NOT_GREY = "dead, or as lossy as all others"
    UNDECIDED = "its first probe decides"
    GREY = "it delivers, and loses what others do not"


class EvListing(NamedTuple):
    """What an operator sees of an EV.

    Attributes:
        ev: its value.
        plane: the number of its plane, and of the port that it leaves by.
        state: its state.
        active: whether it carries data.
        losses: losses on it since it was last good that have not proved spurious.
        condemnations: how often it has been taken out of use for losses, unanswered probes, or
            because the peer asked for it.
        changed_ns: when its state or role last changed.
        reason: why.
    """

    ev: int
    plane: int
    state: EvState
    active: bool
    losses: int
    condemnations: int
    changed_ns: int
    reason: str


@dataclass(slots=True, eq=False)
class Ev:
    """One EV as the engine keeps it; others read `value`, `plane`, `path_key` and `state`.

    Attributes:
        value: the EV itself.
        plane: the number of its plane.
        path_key: EVs with equal keys share a path.
        state: what the transitions of `states.py` have made of it.
        own_slot: the slot that it owns; None for a backup.
        slot: the slot that it holds, its own or another's; None outside the rotation.
        verified: whether it answered its last probe, so that it may be a substitute.
        answers: how many probes in a row it has answered.
        greyness: what its condemnation says about the path.
        recondemnations: how often it was condemned soon after its return, less those that have been
            forgotten.
        counted: whether `recondemnations` includes its last condemnation.
        lost_port: whether it was good until its port went down.
        returned_ns: when it last returned from ASSUMED_BAD.
        losses: losses on it that have not proved spurious.
        condemnations: how often it has become ASSUMED_BAD for losses, unanswered probes, or because
            the peer asked for it.
        changed_ns: when its state or role last changed, and `reason` why.
        probe_id: of the probe whose answer is awaited.
        probe_sent_ns: when its last probe was sent.
        deadline_ns: when to send the next probe.
    """

    value: int
    plane: int
    path_key: Hashable
    state: EvState = EvState.GOOD
    own_slot: "Slot | None" = None
    slot: "Slot | None" = None
    verified: bool = False
    answers: int = 0
    greyness: Greyness = Greyness.NOT_GREY
    recondemnations: int = 0
    counted: bool = False
    lost_port: bool = False
    returned_ns: int | None = None
    losses: int = 0
    condemnations: int = 0
    changed_ns: int = 0
    reason: str = "start"
    probe_id: int | None = None
    probe_sent_ns: int = 0
    deadline_ns: int = NEVER

    @property
    def listing(self) -> EvListing:
        """What an operator sees of it."""
        return EvListing(
            self.value,
            self.plane,
            self.state,
            self.slot is not None,
            self.losses,
            self.condemnations,
            self.changed_ns,
            self.reason,
        )

    def stop_probing(self) -> None:
        """Await no answer and send no further probe."""
        self.probe_id = None
        self.deadline_ns = NEVER


@dataclass(slots=True, eq=False)
class Slot:
    """A place in the rotation, and the EV that holds it."""

    occupant: Ev | None = None


@dataclass(slots=True, eq=False)
class Plane:
    """The slots and the EVs of one plane.

    `cursor` is the slot that the rotation takes next, `rounds` counts how often it has gone round
    since the order was drawn.
    """

    slots: list[Slot] = field(default_factory=list)
    evs: list[Ev] = field(default_factory=list)
    cursor: int = 0
    rounds: int = 0
    down: bool = False

    def substitute(self) -> Ev | None:
        """Return a backup that may take an empty slot: good, and its last probe was answered."""
        for ev in self.evs:
            if ev.slot is None and ev.verified and ev.state is EvState.GOOD:
                return ev
        return None
