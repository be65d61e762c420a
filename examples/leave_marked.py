r"""A path selector that leaves an EV for a while once a queue has marked it.

    testbed simulate scenarios/paper/forced-ev.yaml \
        --set transport.spray=examples/leave_marked.py:LeaveMarked

MRC passes over a marked EV once. docs/paper/studies.md compares both where two flows share an EV.
"""

from collections.abc import Sequence

from testbed.algorithms import EvInfo

PACKETS = 1024
"""So many packets are sent on others after a mark: at 100 Gbit/s 25 round trips."""


class LeaveMarked:
    """Takes the EVs of the active set in turn, but not those that were marked lately."""

    def __init__(self, evs: Sequence[EvInfo], seed: int) -> None:
        self.active = [info.ev for info in evs if info.active]
        self.sent = 0
        self.left_until = dict.fromkeys(self.active, 0)

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return the next EV that is not left; the next of all if each of them is."""
        self.sent += 1
        for ev in self.active:
            if ev != avoid and self.left_until.get(ev, 0) <= self.sent:
                break
        else:
            if not self.active:
                return None
            ev = self.active[0]
        self.active.remove(ev)
        self.active.append(ev)
        return ev

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Leave an EV that was marked."""
        if ecn:
            self.left_until[ev] = self.sent + PACKETS

    def on_state(self, ev: int, state: str, *, active: bool, now_ns: int) -> None:
        """Follow the active set."""
        if active and ev not in self.active:
            self.active.append(ev)
        elif not active and ev in self.active:
            self.active.remove(ev)
