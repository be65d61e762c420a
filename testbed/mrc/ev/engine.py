"""The EV engine of one queue pair: which path carries the next packet, and which paths are trusted.

Each plane has a number of *slots*, one for each EV that is active at the start. The rotation goes
round the planes and, within a plane, round its slots, so that planes carry equal load. A slot whose
EV is condemned (ASSUMED_BAD) is lent to a backup of the same plane that has answered a probe; when
the owner has answered enough probes in a row it takes its slot back. (MRC paper, section 2, gives
the states, the substitution within the plane and the probing; slots are ours.)

An answer that comes after its probe was given up is no success, but it may be all that tells the
round trip: where every path that answers is slower than what was measured before, each probe would
be given up for ever. So if nothing was measured since that probe went out, its answer is a sample
of the RTT (each probe has an id of its own, so that Karn's ambiguity does not arise).

Two brakes keep congestion, which without trimming looks like path death, from emptying the set: a
condemnation that would leave fewer than `ev_min_active` EVs, or that would be more than
`max_condemned_share` of the slots within one smoothed RTT, makes the EV be skipped once instead.
How many answers bring an EV back is told in `ev_trust.py`.

An engine that is not adaptive sprays blindly: the rotation goes round whatever happens, and a
packet that was lost takes its next EV like any other, which may be the one that it was lost on.
Each round of a plane has an order of its own, as in uet-htsim's oblivious spraying: with a fixed
one losses, SACKs and what is sent again keep step, and never meet a dead EV again, or each time.
Nothing is probed. Only administrative orders change what it uses.
"""

from random import Random
from typing import Final

from testbed.mrc.congestion.rtt import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.ev.path import Path, Plane, Slot
from testbed.mrc.ev.profile import EvProfile
from testbed.mrc.ev.trust import EvTrust
from testbed.mrc.events import EvChanged, Event, EvState

_PROBE_IDS: Final = 1 << 16
"""The id of an endpoint request stands in 16 bits of the PSN (OCP MRC 1.0)."""

_OVERDUE_KEPT: Final = 1024
"""So many probes that were given up are kept, since their answer may tell the RTT. Ours."""


class EvEngine:
    """EV states, the rotation, and the background probes of one queue pair.

    `events` receives an `EvChanged` for every change of state or role.

    Attributes:
        adaptive: whether what is learnt of a path changes its use.
    """

    def __init__(
        self, profile: EvProfile, rtt: RttEstimator, rng: Random, events: list[Event]
    ) -> None:
        self._profile = profile
        self.adaptive: Final = profile.adaptive
        self._rtt = rtt
        self._rng: Final = rng
        self._events = events
        self._paths: dict[int, Path] = {}
        planes: dict[int, Plane] = {}
        for entry in profile.entries:
            path = Path(entry.ev, entry.plane, entry.path_key)
            self._paths[entry.ev] = path
            plane = planes.setdefault(entry.plane, Plane())
            plane.paths.append(path)
            if entry.active:
                slot = Slot(path)
                path.home = path.slot = slot
                plane.slots.append(slot)
        self._plane_of = planes
        self._planes = list(planes.values())
        rng.shuffle(self._planes)
        for plane in self._planes:
            rng.shuffle(plane.slots)
        self._turn = 0
        self._active = sum(len(plane.slots) for plane in self._planes)
        self._trust = EvTrust(profile, rtt, planes=len(planes), slots=self._active)
        self._probe_id = rng.randrange(_PROBE_IDS)
        self._probe_turn = 0
        self._overdue: dict[int, int] = {}
        self._deadline_ns = NEVER

    # Choosing

    def pick(self, now_ns: int, avoid: Path | None = None) -> Path | None:
        """Return the EV for the next data packet, or None if no EV may carry data.

        A SKIP EV that the rotation passes becomes GOOD again, at most one in a call. With `avoid`,
        an EV of another path is preferred, then another EV of the same path, then any; a blind
        sprayer avoids nothing.
        """
        if not self.adaptive:
            return self._pick_blindly()
        planes = self._planes
        restored: Path | None = None
        same_path: Path | None = None
        for _ in range(len(planes)):
            plane = planes[self._turn]
            self._turn = (self._turn + 1) % len(planes)
            slots = plane.slots
            for _ in range(len(slots)):
                path = slots[plane.cursor].occupant
                plane.cursor = (plane.cursor + 1) % len(slots)
                if path is None:
                    continue
                if path.state is EvState.SKIP:
                    if restored is None:
                        self._change(path, EvState.GOOD, "skipped once", now_ns)
                        restored = path
                    continue
                if avoid is not None and path.path_key == avoid.path_key:
                    if same_path is None or same_path is avoid:
                        same_path = path
                    continue
                return path
        if restored is not None and (same_path is None or restored.path_key != same_path.path_key):
            return restored
        return same_path

    def _pick_blindly(self) -> Path | None:
        planes = self._planes
        for _ in range(len(planes)):
            plane = planes[self._turn]
            self._turn = (self._turn + 1) % len(planes)
            slots = plane.slots
            for _ in range(len(slots)):
                if plane.cursor == 0:
                    self._rng.shuffle(slots)
                path = slots[plane.cursor].occupant
                plane.cursor = (plane.cursor + 1) % len(slots)
                if path is not None:
                    return path
        return None

    def pick_for_probe(self, now_ns: int, avoid: Path | None = None) -> Path | None:
        """Return an EV for a reliability probe: one that carries data, else any that may."""
        path = self.pick(now_ns, avoid)
        if path is not None:
            return path
        allowed = [path for path in self._paths.values() if path.state is not EvState.DENIED]
        allowed = [path for path in allowed if self.usable(path.ev)] or allowed
        if not allowed:
            return None
        self._probe_turn += 1
        return allowed[self._probe_turn % len(allowed)]

    def __getitem__(self, ev: int) -> Path:
        """Return the path of `ev`; KeyError if it is not in the profile."""
        return self._paths[ev]

    def __contains__(self, ev: int) -> bool:
        """Whether `ev` is in the profile."""
        return ev in self._paths

    def usable(self, ev: int) -> bool:
        """Whether anything may be sent on `ev`: not denied, its plane's ports up."""
        path = self._paths[ev]
        return path.state is not EvState.DENIED and not self._plane_of[path.plane].down

    def states(self) -> dict[int, EvState]:
        """Return the state of every EV."""
        return {path.ev: path.state for path in self._paths.values()}

    def active(self) -> frozenset[int]:
        """Return the EVs of the active set."""
        return frozenset(path.ev for path in self._paths.values() if path.slot is not None)

    # What the transport learns

    def skip(self, ev: int, reason: str, now_ns: int) -> None:
        """Pass over `ev` once: congestion was seen on it."""
        path = self._paths.get(ev)
        if not self.adaptive:
            return
        if path is not None and path.state is EvState.GOOD and path.slot is not None:
            self._change(path, EvState.SKIP, reason, now_ns)

    def blame(self, ev: int, reason: str, now_ns: int, *, delivers: bool = False) -> bool:
        """A packet sent on `ev` was lost whole: condemn it, as far as the brakes allow.

        Args:
            ev: the EV.
            reason: what made the packet be taken for lost.
            now_ns: the time.
            delivers: whether a later packet on `ev` was delivered.

        Returns:
            Whether this condemned it.
        """
        path = self._paths.get(ev)
        if path is None or path.state is EvState.DENIED or not self.adaptive:
            return False
        path.blamed += 1
        elsewhere = self._trust.lost(path, now_ns)
        if path.state is EvState.ASSUMED_BAD:
            path.grey = (path.grey or delivers) and not elsewhere
            return False
        if path.slot is not None:
            needed = self._is_needed(path)
            if needed:
                self._excuse_the_grey()
            if needed or not self._trust.may_condemn(path, now_ns):
                self.skip(ev, f"{reason}, condemnation withheld", now_ns)
                return False
        self._retire(path, EvState.ASSUMED_BAD, reason, now_ns)
        path.grey = False if elsewhere else delivers or None
        return True

    def absolve(self, ev: int, now_ns: int) -> None:
        """A loss on `ev` proved spurious; when all of them did, it is GOOD again."""
        path = self._paths.get(ev)
        if path is None or path.blamed == 0:
            return
        path.blamed -= 1
        plane = self._plane_of[path.plane]
        if path.blamed == 0 and path.state is EvState.ASSUMED_BAD and not plane.down:
            path.relapses -= path.relapsed
            path.relapsed = False
            self._rehabilitate(path, "spurious loss", now_ns)

    def deny(self, ev: int, now_ns: int) -> None:
        """Take `ev` out of service by administrative order, brakes or not."""
        path = self._paths[ev]
        if path.state is not EvState.DENIED:
            self._retire(path, EvState.DENIED, "denied", now_ns)
            path.deadline_ns = NEVER

    def allow(self, ev: int, now_ns: int) -> None:
        """Lift a denial: the EV must answer probes first, which a blind sprayer does not send."""
        path = self._paths[ev]
        if path.state is not EvState.DENIED:
            return
        if not self.adaptive:
            self._rehabilitate(path, "allowed", now_ns)
            return
        self._change(path, EvState.ASSUMED_BAD, "allowed", now_ns)
        self._schedule(path, now_ns)

    def set_down(self, planes: frozenset[int], now_ns: int) -> list[int]:
        """Take these planes, and no others, out of use: their ports are down.

        Their EVs leave the rotation at once, brakes or not, and are not probed. When a plane is up
        again, an EV that had been good returns with the first probe that is answered. Returns the
        EVs of the planes that newly went down.
        """
        gone: list[int] = []
        if not self.adaptive:
            return gone
        for number, plane in self._plane_of.items():
            if plane.down == (number in planes):
                continue
            plane.down = not plane.down
            if plane.down:
                gone += [path.ev for path in plane.paths]
                self._unplug(plane, now_ns)
            else:
                self._replug(plane, now_ns)
        return gone

    def _unplug(self, plane: Plane, now_ns: int) -> None:
        for path in plane.paths:
            slot, path.slot = path.slot, None
            if slot is not None:
                slot.occupant = None
                self._active -= 1
                path.unplugged = True
                self._change(path, EvState.ASSUMED_BAD, "port down", now_ns)
            path.verified = False
            path.grey = False
            path.successes = 0
            path.probe_id = None
            path.deadline_ns = NEVER

    def _replug(self, plane: Plane, now_ns: int) -> None:
        for path in plane.paths:
            self._trust.count_anew(path, self._active)
            if path.state is not EvState.DENIED:
                self._schedule(path, now_ns)

    # Probing

    def start(self, now_ns: int) -> None:
        """Begin probing the backups. Calling it again changes nothing."""
        for path in self._paths.values():
            if path.slot is None and path.state is EvState.GOOD and path.deadline_ns == NEVER:
                self._schedule(path, now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `due_probes` has something to do, or `NEVER`."""
        return self._deadline_ns

    def due_probes(self, now_ns: int) -> list[tuple[int, int]]:
        """Return (EV, probe id) of every probe to send now; judge those that went unanswered."""
        if now_ns < self._deadline_ns:
            return []
        due: list[tuple[int, int]] = []
        for path in self._paths.values():
            if path.deadline_ns > now_ns:
                continue
            if path.probe_id is not None:
                self._give_up(path.probe_id, path.probe_sent_ns)
                self._fail_probe(path, now_ns)
            path.probe_id = self.take_probe_id()
            path.probe_sent_ns = now_ns
            path.deadline_ns = now_ns + int(self._profile.probe_timeout * self._rtt.smoothed_ns)
            due.append((path.ev, path.probe_id))
        self._deadline_ns = min(path.deadline_ns for path in self._paths.values())
        return due

    def take_probe_id(self) -> int:
        """Return an id for a probe that no other probe of late has."""
        self._probe_id = (self._probe_id + 1) % _PROBE_IDS
        return self._probe_id

    def probe_answered(self, ev: int, probe_id: int, now_ns: int) -> None:
        """Take in the answer to a probe."""
        path = self._paths.get(ev)
        if path is None or path.probe_id != probe_id or path.deadline_ns == NEVER:
            self._answered_late(probe_id, now_ns)
            return
        path.probe_id = None
        path.successes += 1
        path.unplugged = False
        if path.state is EvState.ASSUMED_BAD:
            if path.grey is None:
                path.grey = True
            if path.successes >= self._trust.enough(path, self._active):
                path.returned_ns = now_ns
                self._rehabilitate(path, "probes answered", now_ns)
            else:
                self._schedule(path, self._next_probe(path, self._profile.probe_interval, now_ns))
            return
        path.verified = True
        self._schedule(path, self._next_probe(path, self._profile.backup_probe_interval, now_ns))
        self._fill(self._plane_of[path.plane], now_ns)

    def _answered_late(self, probe_id: int, now_ns: int) -> None:
        """Take in the answer to a probe that was given up, if nothing else tells the RTT."""
        sent_ns = self._overdue.pop(probe_id, None)
        if sent_ns is not None and self._rtt.sampled_ns < sent_ns:
            self._rtt.sample(now_ns - sent_ns, now_ns)

    def _next_probe(self, path: Path, interval: float, now_ns: int) -> int:
        return max(now_ns, path.probe_sent_ns + int(interval * self._rtt.smoothed_ns))

    def _give_up(self, probe_id: int, sent_ns: int) -> None:
        overdue = self._overdue
        overdue[probe_id] = sent_ns
        if len(overdue) > _OVERDUE_KEPT:
            del overdue[next(iter(overdue))]

    def _fail_probe(self, path: Path, now_ns: int) -> None:
        self._trust.count_anew(path, self._active)
        path.verified = False
        path.grey = path.grey or False
        if path.state is EvState.GOOD:
            self._trust.relapse(path, now_ns, self._active)
            self._change(path, EvState.ASSUMED_BAD, "probe unanswered", now_ns)

    def _schedule(self, path: Path, at_ns: int) -> None:
        if self._plane_of[path.plane].down or not self.adaptive:
            path.deadline_ns = NEVER
            return
        path.deadline_ns = at_ns
        self._deadline_ns = min(self._deadline_ns, at_ns)

    # Changing roles

    def _is_needed(self, path: Path) -> bool:
        """Tell whether fewer than `ev_min_active` EVs would carry data without `path`."""
        has_substitute = self._substitute(self._plane_of[path.plane]) is not None
        return self._active - 1 + has_substitute < self._profile.ev_min_active

    def _excuse_the_grey(self) -> None:
        """Let a few answers bring back every EV: what carries data loses, and nothing else does."""
        for path in self._paths.values():
            path.grey = False

    def _retire(self, path: Path, state: EvState, reason: str, now_ns: int) -> None:
        slot = path.slot
        path.verified = False
        path.successes = 0
        path.grey = False
        path.probe_id = None
        if state is EvState.ASSUMED_BAD:
            self._trust.relapse(path, now_ns, self._active)
        if slot is not None:
            slot.occupant = path.slot = None
            self._active -= 1
        self._change(path, state, reason, now_ns)
        self._schedule(path, now_ns)
        if slot is not None:
            self._fill(self._plane_of[path.plane], now_ns)

    def _rehabilitate(self, path: Path, reason: str, now_ns: int) -> None:
        path.blamed = 0
        path.probe_id = None
        path.verified = True
        plane = self._plane_of[path.plane]
        home = path.home
        if home is None:
            self._change(path, EvState.GOOD, reason, now_ns)
            self._schedule(path, self._background(now_ns))
        else:
            substitute = home.occupant
            if substitute is not None:
                self._unseat(substitute, now_ns)
            old, path.state = path.state, EvState.GOOD
            self._seat(path, home, old, reason, now_ns)
        self._fill(plane, now_ns)

    def _fill(self, plane: Plane, now_ns: int) -> None:
        """Lend empty slots to verified backups; if they run out, probe the others at once."""
        for slot in plane.slots:
            if slot.occupant is not None:
                continue
            path = self._substitute(plane)
            if path is not None:
                self._seat(path, slot, path.state, "substitute", now_ns)
                continue
            for candidate in plane.paths:
                if (
                    candidate.slot is None
                    and candidate.state is EvState.GOOD
                    and candidate.probe_id is None
                ):
                    self._schedule(candidate, now_ns)
            return

    def _substitute(self, plane: Plane) -> Path | None:
        for path in plane.paths:
            if path.slot is None and path.verified and path.state is EvState.GOOD:
                return path
        return None

    def _seat(self, path: Path, slot: Slot, old: EvState, reason: str, now_ns: int) -> None:
        slot.occupant = path
        path.slot = slot
        path.probe_id = None
        path.deadline_ns = NEVER
        self._active += 1
        self._tell(path, old, reason, now_ns)

    def _unseat(self, path: Path, now_ns: int) -> None:
        slot, path.slot = path.slot, None
        if slot is not None:
            slot.occupant = None
            self._active -= 1
        old, path.state = path.state, EvState.GOOD
        self._schedule(path, self._background(now_ns))
        self._tell(path, old, "owner returned", now_ns)

    def _background(self, now_ns: int) -> int:
        return now_ns + int(self._profile.backup_probe_interval * self._rtt.smoothed_ns)

    def _change(self, path: Path, state: EvState, reason: str, now_ns: int) -> None:
        old, path.state = path.state, state
        self._tell(path, old, reason, now_ns)

    def _tell(self, path: Path, old: EvState, reason: str, now_ns: int) -> None:
        self._events.append(
            EvChanged(path.ev, path.plane, old, path.state, reason, path.slot is not None, now_ns)
        )
