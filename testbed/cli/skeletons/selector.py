r"""A path selector.

    testbed simulate link-failure --set transport.spray=mine.py:Mine
    testbed simulate link-failure --set transport.spray=mine.py:Mine \
        --sweep transport.spray.width=8,16

The testbed's docs/algorithms.md says what each method is told.
"""

from collections.abc import Sequence
from random import Random

from testbed.algorithms import EvInfo, Ports, Record


class Mine:
    """Takes the EVs of the active set in turn, as far as their ports have room."""

    def __init__(
        self, evs: Sequence[EvInfo], seed: int, *, record: Record, width: int = 16
    ) -> None:
        """Begin with the EVs that are active; `width` of them are used."""
        self.plane = {info.ev: info.plane for info in evs}
        self.active = [info.ev for info in evs if info.active]
        Random(seed).shuffle(self.active)
        self.width = width
        self.record = record

    def pick(self, now_ns: int, flight: int, avoid: int | None, ports: Ports) -> int | None:
        """Return an EV for the next packet; None if no path is left."""
        used = self.active[: self.width]
        with_room = [ev for ev in used if ports.room[self.plane[ev]] and ev != avoid]
        for ev in with_room or used:
            self.active.remove(ev)
            self.active.insert(len(used) - 1, ev)
            return ev
        return None

    def on_state(self, ev: int, state: str, *, active: bool, now_ns: int) -> None:
        """Follow the active set: an EV that loses packets leaves it."""
        if active and ev not in self.active:
            self.active.append(ev)
        elif not active and ev in self.active:
            self.active.remove(ev)
            self.record.event("left", ev)
