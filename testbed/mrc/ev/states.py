"""The states of an EV and the transitions between them, as one table.

`TRANSITIONS` maps (state, event) to (new state, action), in the manner of h11. The engine looks up
every event here. A pair that is absent from the table is impossible and raises. The states are
those of MRC transport and OCP MRC 1.0; backups and their substitution are the MRC paper's (section
2). The picture of the states in the documentation is drawn from this table.

Events are applied after the engine has decided about them: `PACKET_LOST` is a loss that condemns
the EV, `LOSS_TOLERATED` one that must not (see `EvEngine.report_loss`). `CONGESTION_SEEN` and
`PORT_DOWN` apply to EVs in the rotation only. A port that comes up changes no state: its EVs are
probed again.
"""

from enum import Enum, StrEnum
from typing import Final


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
