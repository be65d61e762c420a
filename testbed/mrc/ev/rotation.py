"""The rotation: which EV carries the next packet, and the transitions that change it.

Each plane has a number of *slots*, one for each EV that is active at the start. The rotation goes
round the planes and, within a plane, round its slots, so that planes carry equal load. The slot of
an EV that has left is lent to a backup of the same plane; when its owner returns, it takes the slot
back. (The MRC paper, section 2, gives the substitution within the plane; slots are ours.)

The order of a plane's slots is drawn anew every `reshuffle_rounds` rounds, so that queue pairs do
not march in step (OCP MRC 1.0, two sources; the number is ours).

A rotation that is not adaptive sprays blindly: it goes round whatever happens, and a packet that
was lost takes its next EV like any other, which may be the EV that it was lost on. Each round of a
plane then has a random order, as in uet-htsim's oblivious spraying: with a fixed order losses,
SACKs and retransmissions stay in step, and either never meet a dead EV again or meet it every time.
"""

from random import Random
from typing import Final

from testbed.mrc.ev.ev import Ev, Plane, Slot
from testbed.mrc.ev.profile import EvProfile
from testbed.mrc.ev.states import EvAction, EvEvent, EvState, transition
from testbed.mrc.events import EvChanged, Event


class Rotation:
    """The EVs of one queue pair, their slots, and whose turn it is.

    `events` receives an `EvChanged` for every change of state or role.

    Attributes:
        evs: every EV by its value.
        planes: every plane by its number.
        active: how many EVs hold a slot.
    """

    def __init__(self, profile: EvProfile, rng: Random, events: list[Event]) -> None:
        self._adaptive: Final = profile.adaptive
        self._reshuffle_rounds: Final = profile.reshuffle_rounds
        self._rng: Final = rng
        self._events: Final = events
        self.evs: Final[dict[int, Ev]] = {}
        self.planes: Final[dict[int, Plane]] = {}
        for entry in profile.entries:
            ev = Ev(entry.ev, entry.plane, entry.path_key)
            self.evs[entry.ev] = ev
            plane = self.planes.setdefault(entry.plane, Plane())
            plane.evs.append(ev)
            if entry.active:
                ev.home = ev.slot = Slot(ev)
                plane.slots.append(ev.slot)
        self._order: Final = list(self.planes.values())
        rng.shuffle(self._order)
        for plane in self._order:
            rng.shuffle(plane.slots)
        self._turn = 0
        self.active = sum(len(plane.slots) for plane in self._order)

    def pick(self, now_ns: int, avoid: Ev | None = None) -> Ev | None:
        """Return the EV for the next data packet, or None if no EV may carry data.

        A SKIP EV that the rotation passes becomes GOOD again, at most one in a call. With `avoid`,
        an EV of another path is preferred, then another EV of the same path, then any; blind
        spraying avoids nothing.
        """
        if not self._adaptive:
            return self._pick_blindly()
        planes = self._order
        restored: Ev | None = None
        same_path: Ev | None = None
        for _ in range(len(planes)):
            plane = planes[self._turn]
            self._turn = (self._turn + 1) % len(planes)
            slots = plane.slots
            for _ in range(len(slots)):
                ev = slots[plane.cursor].occupant
                plane.cursor = (plane.cursor + 1) % len(slots) or self._end_round(plane)
                if ev is None:
                    continue
                if ev.state is EvState.SKIP:
                    if restored is None:
                        self.apply(ev, EvEvent.PASSED_BY_ROTATION, now_ns)
                        restored = ev
                    continue
                if avoid is not None and ev.path_key == avoid.path_key:
                    if same_path is None or same_path is avoid:
                        same_path = ev
                    continue
                return ev
        if restored is not None and (same_path is None or restored.path_key != same_path.path_key):
            return restored
        return same_path

    def _end_round(self, plane: Plane) -> int:
        """Draw the order of a plane's slots anew when it is time; returns where to begin."""
        plane.rounds += 1
        if plane.rounds == self._reshuffle_rounds:
            plane.rounds = 0
            self._rng.shuffle(plane.slots)
        return 0

    def _pick_blindly(self) -> Ev | None:
        planes = self._order
        for _ in range(len(planes)):
            plane = planes[self._turn]
            self._turn = (self._turn + 1) % len(planes)
            slots = plane.slots
            for _ in range(len(slots)):
                if plane.cursor == 0:
                    self._rng.shuffle(slots)
                ev = slots[plane.cursor].occupant
                plane.cursor = (plane.cursor + 1) % len(slots)
                if ev is not None:
                    return ev
        return None

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
            self._seat(ev, slot)
        elif action is EvAction.RETURN:
            self._seat(ev, ev.home)
        old, ev.state = ev.state, state
        active = ev.slot is not None
        if state is not old or active is not was_active:
            why = event.value if reason is None else reason
            self._events.append(EvChanged(ev.value, ev.plane, old, state, why, active, now_ns))

    def _vacate(self, ev: Ev) -> None:
        if ev.slot is not None:
            ev.slot.occupant = None
            ev.slot = None
            self.active -= 1

    def _seat(self, ev: Ev, slot: Slot | None) -> None:
        if slot is not None:
            slot.occupant = ev
            ev.slot = slot
            ev.stop_probing()
            self.active += 1
