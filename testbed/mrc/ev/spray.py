"""The two selectors of the project: the rotation of MRC, and blind spraying.

Both go round the planes and, within a plane, round its slots, so that planes carry equal load. They
use only some of the inputs of a selector: hence the unused arguments.
"""

from collections import deque
from random import Random
from typing import Final

from testbed.mrc.entropy import Ev, EvEvent, EvProfile, EvState, Plane
from testbed.mrc.ev.rotation import Rotation
from testbed.mrc.ev.selection import EvInfo, PathSelector, SelectorFactory


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
