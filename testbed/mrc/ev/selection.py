"""Path selection: which EV carries the next data packet.

`PathSelector` is the interface. EVs are integers in it, so that a selector can run in a process of
its own: a scenario can name one of the user's, which `host/own_code.py` calls.

The rotation has the EVs that may carry data, and the transitions that change which they are. Each
plane has a number of *slots*, one for each EV that is active at the start. The slot of an EV that
has left is lent to a backup of the same plane; when its owner returns, it takes the slot back. (The
MRC paper, section 2, gives the substitution within the plane; slots are ours.)

The two selectors of the project, that of MRC and blind spraying, go round the planes and, within a
plane, round its slots, so that planes carry equal load. They use only some of the inputs of a
selector: hence the unused arguments.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

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
from testbed.mrc.events import EvChanged, Event


@dataclass(frozen=True, slots=True)
class EvInfo:
    """What is known about an EV before the first packet.

    Attributes:
        ev: the EV, 0 to 2^32 - 1.
        plane: the number of its plane.
        path: EVs with the same number share a path.
        active: whether it is in the active set at the start; the others are backups.
    """

    ev: int
    plane: int
    path: int
    active: bool


class PathSelector(Protocol):
    """Chooses the EV of each data packet. Times in ns of one clock, sizes in bytes of payload."""

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return the EV for the next data packet, or None to send nothing now.

        It is asked for each data packet, and for each probe that looks for a lost tail.

        Args:
            now_ns: the time.
            flight: bytes in flight.
            avoid: for a packet that is sent again, the EV on which it was lost.
        """

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Note that a packet that was sent on an EV has arrived.

        Args:
            ev: the EV.
            acked: bytes of the packet.
            rtt_ns: its round trip, where the SACK measured it.
            ecn: whether the SACK that measured it reported an ECN mark.
            now_ns: the time.
        """

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Note that a packet on an EV was refused, for instance as `TRIMMED`."""

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Note that a packet on an EV was declared lost.

        `reason`: `overtaken`, `late`, `silent EV` or `timeout`.
        """

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Note that an EV changed its state, or entered or left the active set."""


SelectorFactory = Callable[[Sequence[EvInfo], int], PathSelector]
"""Makes the selector of a queue pair from its EVs and a seed."""


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


class _Spray:
    """What both have in common: they follow the slots of the rotation, and need no reports."""

    def __init__(self, rotation: Rotation, rng: Random) -> None:
        self._rotation: Final = rotation
        self._rng: Final = rng
        self._turn = 0

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Do nothing."""

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Do nothing: the engine skips the EV."""

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Do nothing: the engine condemns the EV."""

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Do nothing: the slot of the EV shows it."""


class AdaptiveSpray(_Spray):
    """MRC's rotation. It passes over empty slots and, once, over EVs in SKIP.

    The order of a plane's slots is drawn anew every `reshuffle_rounds` rounds, so that queue pairs
    do not stay synchronised (OCP MRC 1.0, two sources; the number is ours).
    """

    def __init__(self, rotation: Rotation, rng: Random, reshuffle_rounds: int) -> None:
        super().__init__(rotation, rng)
        self._reshuffle_rounds: Final = reshuffle_rounds

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:  # noqa: ARG002
        """Return the next EV, or None if none is in the active set.

        A SKIP EV that the rotation passes becomes GOOD again, at most one in a call. With `avoid`,
        an EV of another path is preferred, then another EV of the same path, then any.
        """
        planes = self._rotation.order
        avoided = None if avoid is None else self._rotation.evs[avoid]
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
                        self._rotation.apply(ev, EvEvent.PASSED_BY_ROTATION, now_ns)
                        restored = ev
                    continue
                if avoided is not None and ev.path_key == avoided.path_key:
                    if same_path is None or same_path is avoided:
                        same_path = ev
                    continue
                return ev.value
        if restored is not None and (same_path is None or restored.path_key != same_path.path_key):
            return restored.value
        return same_path.value if same_path is not None else None

    def _end_round(self, plane: Plane) -> int:
        """Draw the order of a plane's slots anew when it is time; returns where to begin."""
        plane.rounds += 1
        if plane.rounds == self._reshuffle_rounds:
            plane.rounds = 0
            self._rng.shuffle(plane.slots)
        return 0


class BlindSpray(_Spray):
    """Rotates over all EVs that are not denied, whatever is lost on them.

    A packet that was lost takes its next EV like any other, which may be the EV that it was lost
    on. Each round of a plane has a random order, as in uet-htsim's oblivious spraying: with a fixed
    order losses, SACKs and retransmissions stay in step, and either never meet a dead EV again or
    meet it every time.
    """

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:  # noqa: ARG002
        """Return the next EV, or None if all are denied."""
        planes = self._rotation.order
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
                    return ev.value
        return None


# --------------------------------------------------------------------------------------------------
# A path selector of the user's own, in the place of the project's.


class OwnSelection:
    """Calls the selector and checks its picks.

    The engine keeps the states of the EVs as it does for its own selectors. An EV in SKIP becomes
    GOOD again when as many packets have been sent as there are active EVs, or when the selector
    picks it.
    """

    def __init__(self, rotation: Rotation, selector: PathSelector) -> None:
        self._rotation: Final = rotation
        self._selector: Final = selector
        self._picks = 0
        self._skipped: Final[deque[tuple[int, int]]] = deque()

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return what the selector picks.

        Raises:
            LookupError: the pick is no EV of this queue pair, or a denied one.
        """
        self._picks += 1
        while self._skipped and self._skipped[0][0] <= self._picks:
            self._restore(self._skipped.popleft()[1], now_ns)
        ev = self._selector.pick(now_ns, flight, avoid)
        if ev is None:
            return None
        if ev not in self._rotation.evs:
            raise LookupError(f"{ev!r}, which is no EV of this queue pair")
        if self._rotation.evs[ev].state is EvState.DENIED:
            raise LookupError(f"{ev}, which is denied")
        self._restore(ev, now_ns)
        return ev

    def _restore(self, value: int, now_ns: int) -> None:
        ev = self._rotation.evs[value]
        if ev.state is EvState.SKIP:
            self._rotation.apply(ev, EvEvent.PASSED_BY_ROTATION, now_ns)

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        self._selector.on_sack(ev, acked, rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        self._selector.on_nack(ev, reason, now_ns)

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        self._selector.on_loss(ev, reason, now_ns)

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Report the change to the selector; remember an EV that is now in SKIP."""
        if state is EvState.SKIP:
            self._skipped.append((self._picks + self._rotation.active, ev))
        self._selector.on_state(ev, state, active=active, now_ns=now_ns)


# --------------------------------------------------------------------------------------------------
# Which path selector a queue pair has.


def selector_of(
    profile: EvProfile, rotation: Rotation, rng: Random, select: SelectorFactory | None
) -> PathSelector:
    """The selector of a queue pair: the user's own (`select`), or the profile's."""
    if select is None:
        if profile.adaptive:
            return AdaptiveSpray(rotation, rng, profile.reshuffle_rounds)
        return BlindSpray(rotation, rng)
    keys = list(dict.fromkeys(entry.path_key for entry in profile.entries))
    evs = [
        EvInfo(entry.ev, entry.plane, keys.index(entry.path_key), active=entry.active)
        for entry in profile.entries
    ]
    return OwnSelection(rotation, select(evs, rng.getrandbits(32)))
