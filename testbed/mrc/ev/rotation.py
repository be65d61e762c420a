"""The rotation: the EVs that may carry data, and the transitions that change which they are.

Each plane has a number of *slots*, one for each EV that is active at the start. The slot of an EV
that has left is lent to a backup of the same plane; when its owner returns, it takes the slot back.
(The MRC paper, section 2, gives the substitution within the plane; slots are ours.) The selectors
of `spray.py` go round the slots.
"""

from random import Random
from typing import Final

from testbed.mrc.entropy import (
    FAILURES,
    Ev,
    EvAction,
    EvEntry,
    EvEvent,
    EvProfile,
    EvState,
    Plane,
    Slot,
    transition,
)
from testbed.mrc.ev.selection import PathSelector
from testbed.mrc.events import EvChanged, Event


class Rotation:
    """The EVs of one queue pair and their slots.

    `events` receives an `EvChanged` for every change of state or role.

    Attributes:
        evs: every EV by its value.
        planes: every plane by its number.
        order: the planes in the order in which they take turns.
        active: how many EVs hold a slot.
    """

    def __init__(self, profile: EvProfile, rng: Random, events: list[Event]) -> None:
        self._events: Final = events
        self._selectors: Final = list[PathSelector]()
        self.evs: Final[dict[int, Ev]] = {}
        self.planes: Final[dict[int, Plane]] = {}
        for entry in profile.entries:
            ev = Ev(entry.ev, entry.plane, entry.path_key)
            self.evs[entry.ev] = ev
            plane = self.planes.setdefault(entry.plane, Plane())
            plane.evs.append(ev)
            if entry.active:
                ev.own_slot = ev.slot = Slot(ev)
                plane.slots.append(ev.slot)
        self.order: Final = list(self.planes.values())
        rng.shuffle(self.order)
        for plane in self.order:
            rng.shuffle(plane.slots)
        self.active = sum(len(plane.slots) for plane in self.order)

    def report_to(self, selector: PathSelector) -> None:
        """Report every further change of an EV to a selector."""
        self._selectors.append(selector)

    def apply(
        self,
        ev: Ev,
        event: EvEvent,
        now_ns: int,
        reason: str | None = None,
        slot: Slot | None = None,
    ) -> None:
        """Make the transition that the table has for this event, and report what it changes.

        Args:
            ev: the EV that it happens to.
            event: what happens.
            now_ns: the time.
            reason: the reason to report, in place of the event's own.
            slot: the slot to take, where the transition says JOIN.

        Raises:
            ImpossibleTransitionError: the event cannot happen in the state of `ev`.
        """
        state, action = transition(ev.state, event)
        was_active = ev.slot is not None
        if action is EvAction.LEAVE:
            self._vacate(ev)
        elif action is EvAction.JOIN:
            self._occupy(ev, slot)
        elif action is EvAction.RETURN:
            self._occupy(ev, ev.own_slot)
        old, ev.state = ev.state, state
        active = ev.slot is not None
        if state is not old or active is not was_active:
            why = event.value if reason is None else reason
            ev.changed_ns, ev.reason = now_ns, why
            failed = state is EvState.ASSUMED_BAD is not old and event in FAILURES
            ev.condemnations += failed
            self._events.append(EvChanged(ev.value, ev.plane, old, state, why, active, now_ns))
            for selector in self._selectors:
                selector.on_state(ev.value, state, active=active, now_ns=now_ns)

    def add_in_place_of(self, old: Ev, entry: EvEntry) -> Ev:
        """Add an EV, denied at first, and pass the slot of EV `old` to it.

        Raises:
            ValueError: the queue pair has the EV already, or it is of another plane.
        """
        if entry.ev in self.evs:
            raise ValueError(f"EV {entry.ev} is in the profile already")
        if entry.plane != old.plane:
            raise ValueError(f"the EV is of plane {entry.plane}, the replaced one of {old.plane}")
        ev = Ev(entry.ev, entry.plane, entry.path_key, EvState.DENIED, own_slot=old.own_slot)
        old.own_slot = None
        self.evs[entry.ev] = ev
        self.planes[entry.plane].evs.append(ev)
        return ev

    def _vacate(self, ev: Ev) -> None:
        if ev.slot is not None:
            ev.slot.occupant = None
            ev.slot = None
            self.active -= 1

    def _occupy(self, ev: Ev, slot: Slot | None) -> None:
        if slot is not None:
            slot.occupant = ev
            ev.slot = slot
            ev.stop_probing()
            self.active += 1
