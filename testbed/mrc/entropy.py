"""Entropy values: those of a queue pair, the states of one, and what holds one while it is used.

An EV chooses a packet's path (MRC paper, section 2). A profile says which EVs a queue pair has; the
engine in `ev/` moves each through the states below.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from testbed.mrc.constants import NEVER

# --------------------------------------------------------------------------------------------------
# Which EVs a queue pair has, and the parameters of its engine (values: ours).


@dataclass(frozen=True, slots=True)
class EvEntry:
    """One EV: its plane, its path (EVs with equal `path_key` share it), its first role."""

    ev: int
    plane: int
    path_key: Hashable
    active: bool


@dataclass(frozen=True, slots=True)
class EvProfile:
    """The EVs of a queue pair and the parameters of its EV engine. Intervals are in smoothed RTTs.

    A condemned EV returns after `probe_successes` answers in a row, doubled (to at most
    `max_probe_successes`) for each time that it was condemned within `forgiveness` of its return.
    An EV on a grey path returns after `grey_probe_successes`: a path that loses 3 / 48 of the round
    trips, 3% each way, answers 48 probes in a row with a probability of 5% (the rule of three).
    A condemned EV is probed every `probe_interval` (in minimum RTTs), a backup every
    `backup_probe_interval`; an answer counts if it arrives within `probe_timeout`, and where the
    RTT varies within the smoothed RTT and two variations. A loss condemns no EV if fewer than
    `ev_min_active` EVs (a name of the OCP MRC API) would then carry data, or if more than
    `max_condemned_share` of the EVs would be condemned within one RTT.

    Raises:
        ValueError: no active EV, an EV twice, or a number out of its range.
    """

    entries: tuple[EvEntry, ...]
    probe_successes: int = 3
    grey_probe_successes: int = 48
    max_probe_successes: int = 24
    forgiveness: float = 64.0
    probe_interval: float = 1.0
    backup_probe_interval: float = 8.0
    probe_timeout: float = 1.5
    ev_min_active: int = 1
    adaptive: bool = True
    """If false, packets are sprayed blindly: nothing learnt about a path changes its use."""
    max_condemned_share: float = 0.5
    compared: bool = False
    """If true, a loss condemns an EV only if the others lose less (`ev/engine.py`)."""
    reshuffle_rounds: int = 64
    """The rounds of a plane after which the order of its EVs is drawn anew; 0: never."""

    def __post_init__(self) -> None:
        """Refuse a profile that cannot work."""
        if not any(entry.active for entry in self.entries):
            raise ValueError("an EV profile needs at least one active EV")
        if len({entry.ev for entry in self.entries}) != len(self.entries):
            raise ValueError("the profile has an EV twice")
        if min(self.probe_interval, self.backup_probe_interval, self.probe_timeout) <= 0:
            raise ValueError("probe intervals and the probe timeout must be positive")
        if self.max_probe_successes < 1 or self.forgiveness <= 0:
            raise ValueError("max_probe_successes and the forgiveness of probes must be positive")
        if min(self.probe_successes, self.grey_probe_successes) < 1 or self.ev_min_active < 0:
            raise ValueError("probe_successes must be at least 1, ev_min_active at least 0")
        if not 0 < self.max_condemned_share <= 1:
            raise ValueError("max_condemned_share must lie in (0, 1]")


# --------------------------------------------------------------------------------------------------
# The states of an EV and the transitions between them, as one table.
#
# `TRANSITIONS` maps (state, event) to (new state, action), in the manner of h11. The engine looks
# up every event here. A pair that is absent from the table is impossible and raises. The states are
# those of MRC transport and OCP MRC 1.0; backups and their substitution are the MRC paper's
# (section 2). The picture of the states in the documentation is drawn from this table.
#
# Events are applied after the engine has decided about them: `PACKET_LOST` is a loss that condemns
# the EV, `LOSS_TOLERATED` one that must not (see `EvEngine.report_loss`). `CONGESTION_SEEN` and
# `PORT_DOWN` apply to EVs in the rotation only. A port that comes up changes no state: its EVs are
# probed again.


class EvState(StrEnum):
    """State of an EV. Only GOOD ones carry data."""

    GOOD = "GOOD"
    SKIP = "SKIP"
    ASSUMED_BAD = "ASSUMED_BAD"
    DENIED = "DENIED"


class EvEvent(Enum):
    """What happens to an EV. The value is the reason that `EvChanged` gives, if no other is."""

    CONGESTION_SEEN = "congestion seen"
    PASSED_BY_ROTATION = "skipped once"
    PACKET_LOST = "packet lost"
    LOSS_TOLERATED = "condemnation withheld"
    LOSSES_SPURIOUS = "spurious loss"
    PROBE_ANSWERED = "probe answered"
    ENOUGH_PROBES_ANSWERED = "probes answered"
    PROBE_UNANSWERED = "probe unanswered"
    SUBSTITUTE_NEEDED = "substitute"
    OWNER_RETURNED = "owner returned"
    PORT_DOWN = "port down"
    DENIED = "denied"
    ALLOWED = "allowed"
    ALLOWED_UNPROBED = "allowed without probes"


class EvAction(Enum):
    """What a transition does to the EV's place in the rotation."""

    STAY = "none: in the rotation or outside, as before"
    JOIN = "take the slot that is offered"
    LEAVE = "give up the slot, if it has one"
    RETURN = "take its own slot, if it owns one"


class ImpossibleTransitionError(Exception):
    """An event came in a state in which it cannot happen: a defect of the engine."""


_GOOD: Final = EvState.GOOD
_SKIP: Final = EvState.SKIP
_BAD: Final = EvState.ASSUMED_BAD
_DENIED: Final = EvState.DENIED

TRANSITIONS: Final[dict[tuple[EvState, EvEvent], tuple[EvState, EvAction]]] = {
    (_GOOD, EvEvent.CONGESTION_SEEN): (_SKIP, EvAction.STAY),
    (_GOOD, EvEvent.PACKET_LOST): (_BAD, EvAction.LEAVE),
    (_GOOD, EvEvent.LOSS_TOLERATED): (_SKIP, EvAction.STAY),
    (_GOOD, EvEvent.PROBE_ANSWERED): (_GOOD, EvAction.STAY),
    (_GOOD, EvEvent.PROBE_UNANSWERED): (_BAD, EvAction.STAY),
    (_GOOD, EvEvent.SUBSTITUTE_NEEDED): (_GOOD, EvAction.JOIN),
    (_GOOD, EvEvent.OWNER_RETURNED): (_GOOD, EvAction.LEAVE),
    (_GOOD, EvEvent.PORT_DOWN): (_BAD, EvAction.LEAVE),
    (_GOOD, EvEvent.DENIED): (_DENIED, EvAction.LEAVE),
    (_SKIP, EvEvent.CONGESTION_SEEN): (_SKIP, EvAction.STAY),
    (_SKIP, EvEvent.PASSED_BY_ROTATION): (_GOOD, EvAction.STAY),
    (_SKIP, EvEvent.PACKET_LOST): (_BAD, EvAction.LEAVE),
    (_SKIP, EvEvent.LOSS_TOLERATED): (_SKIP, EvAction.STAY),
    (_SKIP, EvEvent.OWNER_RETURNED): (_GOOD, EvAction.LEAVE),
    (_SKIP, EvEvent.PORT_DOWN): (_BAD, EvAction.LEAVE),
    (_SKIP, EvEvent.DENIED): (_DENIED, EvAction.LEAVE),
    (_BAD, EvEvent.PACKET_LOST): (_BAD, EvAction.STAY),
    (_BAD, EvEvent.LOSSES_SPURIOUS): (_GOOD, EvAction.RETURN),
    (_BAD, EvEvent.PROBE_ANSWERED): (_BAD, EvAction.STAY),
    (_BAD, EvEvent.ENOUGH_PROBES_ANSWERED): (_GOOD, EvAction.RETURN),
    (_BAD, EvEvent.PROBE_UNANSWERED): (_BAD, EvAction.STAY),
    (_BAD, EvEvent.DENIED): (_DENIED, EvAction.LEAVE),
    (_DENIED, EvEvent.ALLOWED): (_BAD, EvAction.STAY),
    (_DENIED, EvEvent.ALLOWED_UNPROBED): (_GOOD, EvAction.RETURN),
}

FAILURES: Final = frozenset((EvEvent.PACKET_LOST, EvEvent.PROBE_UNANSWERED))
"""What condemns an EV for what happened on it; a port that is down, and a new EV or one that is
allowed again, which must answer probes first, say nothing of its path."""


def transition(state: EvState, event: EvEvent) -> tuple[EvState, EvAction]:
    """Return the new state and what the EV does in the rotation.

    Raises:
        ImpossibleTransitionError: the event cannot happen in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ImpossibleTransitionError(f"{event.name} of an EV in {state}") from None


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
        state: what the transitions have made of it.
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
