"""A path selector of the user's own, in the place of the project's."""

from collections import deque
from typing import Final

from testbed.mrc.ev.rotation import Rotation
from testbed.mrc.ev.selection import PathSelector
from testbed.mrc.ev.states import EvEvent, EvState


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
        """Pass the report on to the selector."""
        self._selector.on_sack(ev, acked, rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Pass the report on to the selector."""
        self._selector.on_nack(ev, reason, now_ns)

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Pass the report on to the selector."""
        self._selector.on_loss(ev, reason, now_ns)

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Report the change to the selector; remember an EV that is now in SKIP."""
        if state is EvState.SKIP:
            self._skipped.append((self._picks + self._rotation.active, ev))
        self._selector.on_state(ev, state, active=active, now_ns=now_ns)
