"""The EV engine of one queue pair: what it learns about its EVs, and which of them it trusts.

States and transitions are the table of `entropy.py`; `selection.py` keeps the active
set and chooses the EV of each packet, `probing.py` when to probe. `EvTrust` says what a loss means,
and how many probes an EV must answer before it carries data again.

Two limits keep congestion, which without trimming looks like path death, from emptying the active
set: a condemnation that would leave fewer than `ev_min_active` EVs, or that would be more than
`max_condemned_share` of the slots within one smoothed RTT, is withheld: the EV is skipped once.

An engine that is not adaptive probes nothing and ignores ports; only denials change what it uses.

MRC's number of answers is not public. Here it depends on why the EV was condemned:

- A path that was silent, the first probe after the condemnation included, was dead. A few answers
  show that it is back.
- A path that delivered a packet sent after the lost one, or that answered its first probe, is
  *grey*: it answers most probes while it loses packets. A few answers prove nothing, so many are
  needed.
- A path is grey only in comparison with others. A few answers are enough where packets were lost in
  other planes too (on other paths, if there is one plane), before the condemnation or within an RTT
  after it; where the last `ev_min_active` EVs lose packets; or where fewer of them carry data.
- An EV that is condemned again soon after its return needs twice as many answers the next time, up
  to a bound. Each `forgiveness` that it then works takes one doubling back.
"""

from collections import deque
from collections.abc import Hashable
from math import exp, log
from random import Random
from statistics import median
from typing import Final

from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.entropy import Ev, EvEntry, EvEvent, EvListing, EvProfile, EvState, Greyness, Plane
from testbed.mrc.ev.probing import ProbeRoom, ProbeSchedule
from testbed.mrc.ev.selection import Rotation, SelectorFactory, selector_of
from testbed.mrc.events import Event
from testbed.mrc.transmission import Transmission

# --------------------------------------------------------------------------------------------------
# Whether an EV loses more than the others can explain: a fault of its path, not of the fabric.
#
# MRC condemns an EV for one lost packet (MRC paper, section 2). Where every path loses packets now
# and then, this takes out one EV after the other. The comparison asks how likely as many losses as
# those of this EV are, if it lost no more than the others do. The rotation gives each EV the same
# number of packets, so losses can be compared as they are, and follow a Poisson distribution.
#
# What the others lose is the larger of two estimates that one dead path among them does not spoil:
# the median of their losses, and the mean that explains how many of them lost nothing. Ours.


UNLIKELY: Final = 0.01
"""An EV stands out if fewer than one in a hundred like the others would lose as much."""


class LossComparison:
    """The losses of one queue pair's EVs within the last `memory` smoothed RTTs. Times in ns."""

    def __init__(self, rtt: RttEstimator, memory: float, active: int) -> None:
        """Begin with nothing lost; `active` EVs carry data."""
        self._rtt = rtt
        self._memory = memory
        self._others = active - 1
        self._lost_ns: dict[int, deque[int]] = {}

    def record(self, ev: Ev, now_ns: int) -> None:
        """Note a loss, or a probe that was not answered."""
        self._lost_ns.setdefault(ev.value, deque()).append(now_ns)

    def retract(self, ev: Ev) -> None:
        """Forget the last loss of an EV: the packet had arrived."""
        lost = self._lost_ns.get(ev.value)
        if lost:
            lost.pop()

    def stands_out(self, ev: Ev, now_ns: int) -> bool:
        """Whether `ev` has lost more than is likely for an EV like the others."""
        since_ns = now_ns - int(self._memory * self._rtt.smoothed_ns)
        for lost in self._lost_ns.values():
            while lost and lost[0] <= since_ns:
                lost.popleft()
        own = len(self._lost_ns.get(ev.value, ()))
        others = [len(lost) for value, lost in self._lost_ns.items() if value != ev.value and lost]
        return likelihood(own, expected(others, self._others)) <= UNLIKELY


def expected(losses: list[int], evs: int) -> float:
    """The expected number of losses of an EV.

    Args:
        losses: those of the other EVs that lost something.
        evs: how many other EVs there are.
    """
    if not losses:
        return 0.0
    evs = max(evs, len(losses))
    lossless = max(evs - len(losses), 0.5)
    return max(float(median([*losses, *[0] * (evs - len(losses))])), -log(lossless / evs))


def likelihood(losses: int, mean: float) -> float:
    """The probability of at least `losses` losses in a Poisson distribution with this mean."""
    term, below = exp(-mean), 0.0
    for number in range(losses):
        below += term
        term *= mean / (number + 1)
    return max(1.0 - below, 0.0)


class EvTrust:
    """Judges the EVs of one queue pair. Times in ns; `active` is how many EVs carry data."""

    def __init__(self, profile: EvProfile, rtt: RttEstimator, *, planes: int, slots: int) -> None:
        """Begin with nothing lost.

        Args:
            profile: the parameters.
            rtt: the queue pair's round trip.
            planes: how many planes the EVs have.
            slots: how many EVs are active at the start, in all planes.
        """
        self._profile = profile
        self._rtt = rtt
        self._planes = planes
        self._max_condemned = max(1, int(slots * profile.max_condemned_share))
        self._condemned: deque[tuple[int, Ev]] = deque()
        self._lost_ns: dict[Hashable, int] = {}
        self._comparison: LossComparison | None = None
        if profile.compared:
            self._comparison = LossComparison(rtt, profile.forgiveness, slots)

    @property
    def compares(self) -> bool:
        """Whether the losses of an EV are compared with those of the others."""
        return self._comparison is not None

    def retract_loss(self, ev: Ev) -> None:
        if self._comparison is not None:
            self._comparison.retract(ev)

    def record_loss(self, ev: Ev, now_ns: int) -> bool:
        """Note a loss on `ev`; EVs just condemned in other planes are then not grey.

        Returns:
            Whether other planes have lost packets lately; where losses are compared, whether others
            lose as much.
        """
        key = self._fault_domain(ev)
        self._lost_ns[key] = now_ns
        for condemned_ns, other in self._condemned:
            if condemned_ns > now_ns - self._rtt.smoothed_ns and self._fault_domain(other) != key:
                other.greyness = Greyness.NOT_GREY
        if self._comparison is not None:
            self._comparison.record(ev, now_ns)
            return not self._comparison.stands_out(ev, now_ns)
        since_ns = now_ns - int(self._profile.forgiveness * self._rtt.smoothed_ns)
        return any(lost_ns > since_ns for other, lost_ns in self._lost_ns.items() if other != key)

    def _fault_domain(self, ev: Ev) -> Hashable:
        """Return what the losses of one fault have in common: the plane; the path in one plane."""
        return ev.plane if self._planes > 1 else ev.path_key

    def may_condemn(self, ev: Ev, now_ns: int) -> bool:
        """Whether the limit on condemnations within an RTT allows this one; if so, count it.

        Where losses are compared, an EV that loses no more than others may not be condemned.
        """
        if self._comparison is not None and not self._comparison.stands_out(ev, now_ns):
            return False
        recent = self._condemned
        while recent and recent[0][0] <= now_ns - self._rtt.smoothed_ns:
            recent.popleft()
        if len(recent) >= self._max_condemned:
            return False
        recent.append((now_ns, ev))
        return True

    def answers_needed(self, ev: Ev, active: int) -> int:
        """Return how many answers in a row bring `ev` back."""
        least = self._profile.probe_successes
        needed = min(least << ev.recondemnations, max(least, self._profile.max_probe_successes))
        if ev.greyness is Greyness.GREY and active >= max(self._profile.ev_min_active, 1):
            return max(needed, self._profile.grey_probe_successes)
        return needed

    def restart_count(self, ev: Ev, active: int) -> None:
        """Count answers from zero; one answer is enough for an EV that only its port took away."""
        ev.answers = self.answers_needed(ev, active) - 1 if ev.lost_port else 0

    def condemned(self, ev: Ev, now_ns: int, active: int) -> None:
        """Count a condemnation that comes soon after the return, and forget old ones."""
        ev.counted = False
        if ev.returned_ns is None:
            return
        forgiveness_ns = int(self._profile.forgiveness * self._rtt.smoothed_ns)
        forgiven = (now_ns - ev.returned_ns) // forgiveness_ns
        ev.recondemnations = max(0, ev.recondemnations - forgiven)
        if forgiven == 0 and self.answers_needed(ev, active) < self._profile.max_probe_successes:
            ev.recondemnations += 1
            ev.counted = True


class EvEngine:
    """EV states, the rotation, and the background probes of one queue pair.

    `events` receives an `EvChanged` for every change of state or role.

    Attributes:
        adaptive: whether what is learnt about a path changes its use.
        selector: chooses the EV of each packet.
    """

    def __init__(
        self,
        profile: EvProfile,
        rtt: RttEstimator,
        rng: Random,
        events: list[Event],
        select: SelectorFactory | None = None,
    ) -> None:
        self._profile = profile
        self.adaptive: Final = profile.adaptive
        self._rotation: Final = Rotation(profile, rng, events)
        self.selector: Final = selector_of(profile, self._rotation, rng, select)
        self._rotation.report_to(self.selector)
        self._reports_arrivals: Final = select is not None  # the project's own need no arrivals
        self._evs: Final = self._rotation.evs
        self._planes: Final = self._rotation.planes
        self._trust = EvTrust(profile, rtt, planes=len(self._planes), slots=self._rotation.active)
        self._probes = ProbeSchedule(profile, rtt, rng, self._rotation)
        self._probe_turn = 0
        self._tolerated: dict[int, Ev] = {}  # lossy EVs that stay: no substitute

    # Choosing

    def pick(self, now_ns: int, avoid: Ev | None = None, flight: int = 0) -> Ev | None:
        """Return the EV for the next data packet (see `PathSelector.pick`)."""
        value = self.selector.pick(now_ns, flight, None if avoid is None else avoid.value)
        return None if value is None else self._evs[value]

    def pick_for_probe(self, now_ns: int, avoid: Ev | None = None, flight: int = 0) -> Ev | None:
        """Return an EV for a reliability probe: one that carries data, else any that may."""
        return self.pick(now_ns, avoid, flight) or self.pick_any()

    def pick_any(self) -> Ev | None:
        """Return the next EV that may be used, in turn, whatever is known of its path."""
        allowed = [ev for ev in self._evs.values() if ev.state is not EvState.DENIED]
        allowed = [ev for ev in allowed if self.usable(ev.value)] or allowed
        if not allowed:
            return None
        self._probe_turn += 1
        return allowed[self._probe_turn % len(allowed)]

    def __getitem__(self, value: int) -> Ev:
        """Return the EV with this value; KeyError if it is not in the profile."""
        return self._evs[value]

    def __contains__(self, value: int) -> bool:
        return value in self._evs

    def usable(self, value: int) -> bool:
        """Whether anything may be sent on an EV: it is not denied, its plane's ports are up."""
        ev = self._evs[value]
        return ev.state is not EvState.DENIED and not self._planes[ev.plane].down

    def states(self) -> dict[int, EvState]:
        return {ev.value: ev.state for ev in self._evs.values()}

    def listing(self) -> tuple[EvListing, ...]:
        return tuple(ev.listing for ev in self._evs.values())

    def active(self) -> frozenset[int]:
        return frozenset(ev.value for ev in self._evs.values() if ev.slot is not None)

    # What the transport learns

    def report_arrivals(
        self,
        arrived: list[Transmission],
        measured: int | None,
        rtt_ns: int | None,
        marked: int | None,
        now_ns: int,
    ) -> None:
        """Note which packets arrived, and report them to a selector of the user's own.

        Args:
            arrived: the transmissions that are newly acknowledged.
            measured: the PSN of the packet whose round trip the SACK measured.
            rtt_ns: that round trip.
            marked: the EV whose ECN mark the SACK reports.
            now_ns: the time.
        """
        if self._tolerated:
            for sent in arrived:
                self._tolerated.pop(sent.ev.value, None)
        if not self._reports_arrivals:
            return
        for sent in arrived:
            ev, sample_ns = sent.ev.value, rtt_ns if sent.seq == measured else None
            self.selector.on_sack(ev, sent.length, sample_ns, ecn=ev == marked, now_ns=now_ns)

    def skip(self, value: int, reason: str, now_ns: int) -> None:
        """Pass over an EV once: congestion was seen on it."""
        ev = self._evs.get(value)
        if ev is not None and ev.slot is not None and self.adaptive:
            self._rotation.apply(ev, EvEvent.CONGESTION_SEEN, now_ns, reason)

    def report_loss(
        self,
        value: int,
        reason: str,
        now_ns: int,
        *,
        delivers: bool = False,
        excused: bool = False,
    ) -> bool:
        """Process the loss of a whole packet: condemn its EV, as far as the limits allow.

        Args:
            value: the EV that it was sent on.
            reason: why the packet is declared lost.
            now_ns: the time.
            delivers: whether a later packet on this EV was delivered.
            excused: whether it was lost at the last hop rather than on the path.

        Returns:
            Whether this condemned the EV.
        """
        ev = self._evs.get(value)
        if ev is None or ev.state is EvState.DENIED or not self.adaptive:
            return False
        # A selector hears of every loss, also of one that is excused: its rules are its own.
        self.selector.on_loss(value, reason, now_ns)
        ev.losses += 1
        others_lose = self._trust.record_loss(ev, now_ns)
        # Out of use already: the loss of a packet sent before. It only says more about the path:
        # one that delivers what came after the lost packet is grey, unless all lose as much.
        if ev.state is EvState.ASSUMED_BAD:
            self._rotation.apply(ev, EvEvent.PACKET_LOST, now_ns)
            grey = (ev.greyness is Greyness.GREY or delivers) and not others_lose
            ev.greyness = Greyness.GREY if grey else Greyness.NOT_GREY
            return False
        # A backup may always be condemned. An EV that carries data stays, skipped once, if it is
        # one of the last (`ev_min_active`), if the packet was lost where all paths meet, or if so
        # many were condemned in this RTT that congestion is likelier than so many dead paths.
        if ev.slot is not None:
            needed = self._is_needed(ev)
            if needed:  # all that carry data lose packets: none of them is grey
                self._tolerated[value] = ev
                for other in self._evs.values():
                    other.greyness = Greyness.NOT_GREY
            if needed or excused or not self._trust.may_condemn(ev, now_ns):
                withheld = f"{reason}, {EvEvent.LOSS_TOLERATED.value}"
                self._rotation.apply(ev, EvEvent.LOSS_TOLERATED, now_ns, withheld)
                if self._trust.compares and ev.probe_id is None:
                    self._probes.schedule(ev, now_ns)  # is it dead, or as lossy as the others?
                return False
        self._take_out(ev, EvEvent.PACKET_LOST, now_ns, reason)
        if not others_lose:
            ev.greyness = Greyness.GREY if delivers else Greyness.UNDECIDED
        return True

    def retract_loss(self, value: int, now_ns: int) -> None:
        """Retract a spurious loss on an EV; when all its losses were spurious, it is GOOD again."""
        ev = self._evs.get(value)
        if ev is None or ev.losses == 0:
            return
        ev.losses -= 1
        self._trust.retract_loss(ev)
        down = self._planes[ev.plane].down
        if ev.losses == 0 and ev.state is EvState.ASSUMED_BAD and not down:
            ev.recondemnations -= ev.counted
            ev.counted = False
            self._bring_back(ev, EvEvent.LOSSES_SPURIOUS, now_ns)

    def deny(self, value: int, now_ns: int) -> None:
        """Take an EV out of service by administrative order, whatever the limits."""
        ev = self._evs[value]
        if ev.state is not EvState.DENIED:
            self._take_out(ev, EvEvent.DENIED, now_ns)
            ev.deadline_ns = NEVER

    def allow(self, value: int, now_ns: int) -> None:
        """Lift a denial: the EV must answer probes first, which a blind sprayer does not send."""
        ev = self._evs[value]
        if ev.state is not EvState.DENIED:
            return
        if not self.adaptive:
            self._bring_back(ev, EvEvent.ALLOWED_UNPROBED, now_ns, EvEvent.ALLOWED.value)
            return
        self._rotation.apply(ev, EvEvent.ALLOWED, now_ns)
        self._probes.schedule(ev, now_ns)

    def replace(self, value: int, entry: EvEntry, now_ns: int) -> None:
        """Deny an EV, and give its slot to another of its plane once that has answered probes.

        Raises:
            ValueError: the other is in the profile already, or of another plane.
        """
        new = self._rotation.add_in_place_of(self._evs[value], entry)
        self.deny(value, now_ns)
        self.allow(new.value, now_ns)

    def set_down(self, planes: frozenset[int], now_ns: int) -> list[int]:
        """Take these planes, and no others, out of use: their ports are down.

        Their EVs leave the rotation at once, whatever the limits, and are not probed. When a plane
        is up again, an EV that had been good returns with the first probe that is answered.

        Returns:
            The EVs of the planes that newly went down.
        """
        newly_down: list[int] = []
        if not self.adaptive:
            return newly_down
        for number, plane in self._planes.items():
            if plane.down == (number in planes):
                continue
            plane.down = not plane.down
            if plane.down:
                newly_down += [ev.value for ev in plane.evs]
                self._port_down(plane, now_ns)
            else:
                self._port_up(plane, now_ns)
        return newly_down

    def _port_down(self, plane: Plane, now_ns: int) -> None:
        for ev in plane.evs:
            if ev.slot is not None:
                ev.lost_port = True
                self._rotation.apply(ev, EvEvent.PORT_DOWN, now_ns)
            ev.verified = False
            ev.greyness = Greyness.NOT_GREY
            ev.answers = 0
            ev.stop_probing()

    def _port_up(self, plane: Plane, now_ns: int) -> None:
        for ev in plane.evs:
            self._trust.restart_count(ev, self._rotation.active)
            if ev.state is not EvState.DENIED:
                self._probes.schedule(ev, now_ns)

    # Probing

    def start(self, now_ns: int) -> None:
        """Begin probing the backups. Calling it again changes nothing."""
        for ev in self._evs.values():
            if ev.slot is None and ev.state is EvState.GOOD and ev.deadline_ns == NEVER:
                self._probes.schedule(ev, now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `due_probes` has something to do, or `NEVER`."""
        return self._probes.deadline_ns

    def due_probes(
        self, now_ns: int, room: ProbeRoom | None = None, window: int = 0
    ) -> list[tuple[int, int]]:
        """Return (EV, probe id) of every probe to send now; judge those that went unanswered.

        Args:
            now_ns: the time.
            room: how many may be probed; None: all that are due.
            window: the congestion window in bytes.
        """
        sent: list[tuple[int, int]] = []
        if now_ns < self._probes.deadline_ns:
            return sent
        first = None if room is None else self._first(room.room(now_ns, window), now_ns)
        for ev in self._evs.values():
            if ev.deadline_ns > now_ns:
                continue
            if ev.probe_id is not None:
                self._probes.time_out(ev.probe_id, ev.probe_sent_ns)
                self._probe_unanswered(ev, now_ns)
                ev.probe_id = None
            if first is None or ev.value in first:
                sent.append((ev.value, self._probes.send(ev, now_ns)))
        self._probes.refresh()
        if room is not None:
            if sent:
                room.take(len(sent), now_ns, window)
            if self._probes.deadline_ns <= now_ns:
                self._probes.wait(room.next_ns(now_ns, window))
        return sent

    def _first(self, room: int, now_ns: int) -> set[int] | None:
        """Return the EVs to probe now where there is not room for all that are due, else None."""
        due = [ev for ev in self._evs.values() if ev.deadline_ns <= now_ns]
        if room >= len(due):
            return None
        due.sort(key=lambda ev: (ev.answers == 0, ev.deadline_ns))
        return {ev.value for ev in due[:room]}

    def take_probe_id(self) -> int:
        """Return an id for a probe that no other recent probe has."""
        return self._probes.take_id()

    def probe_answered(
        self, value: int, probe_id: int, now_ns: int, *, unwanted: bool = False
    ) -> None:
        """Process the answer to a probe; no success if it asks to leave the EV (`unwanted`)."""
        ev = self._evs.get(value)
        if ev is None or ev.probe_id != probe_id or ev.deadline_ns == NEVER:
            self._probes.answered_late(probe_id, now_ns)
            return
        ev.probe_id = None
        if self._trust.compares and ev.slot is not None:
            ev.stop_probing()
            return
        ev.lost_port = False
        if ev.state is EvState.ASSUMED_BAD and ev.greyness is Greyness.UNDECIDED:
            ev.greyness = Greyness.GREY
        if unwanted:
            ev.answers = 0
            self._probes.schedule_next(ev, now_ns)
            return
        ev.answers += 1
        if ev.state is not EvState.ASSUMED_BAD:
            ev.verified = True
            self._rotation.apply(ev, EvEvent.PROBE_ANSWERED, now_ns)
            self._probes.schedule_next(ev, now_ns)
            self._fill(self._planes[ev.plane], now_ns)
            self._condemn_tolerated(now_ns)
            return
        if ev.answers >= self._trust.answers_needed(ev, self._rotation.active):
            ev.returned_ns = now_ns
            self._bring_back(ev, EvEvent.ENOUGH_PROBES_ANSWERED, now_ns)
        else:
            self._rotation.apply(ev, EvEvent.PROBE_ANSWERED, now_ns)
            self._probes.schedule_next(ev, now_ns)

    def _probe_unanswered(self, ev: Ev, now_ns: int) -> None:
        if self._trust.compares and ev.slot is not None:
            self.report_loss(ev.value, EvEvent.PROBE_UNANSWERED.value, now_ns)
            return
        self._trust.restart_count(ev, self._rotation.active)
        ev.verified = False
        if ev.greyness is Greyness.UNDECIDED:
            ev.greyness = Greyness.NOT_GREY
        if ev.state is EvState.GOOD:
            self._trust.condemned(ev, now_ns, self._rotation.active)
        self._rotation.apply(ev, EvEvent.PROBE_UNANSWERED, now_ns)

    # Leaving and joining the rotation

    def _is_needed(self, ev: Ev) -> bool:
        """Whether fewer than `ev_min_active` EVs would carry data without `ev`."""
        has_substitute = self._planes[ev.plane].substitute() is not None
        return self._rotation.active - 1 + has_substitute < self._profile.ev_min_active

    def _take_out(self, ev: Ev, event: EvEvent, now_ns: int, reason: str | None = None) -> None:
        """Condemn or deny an EV, and fill the slot that it leaves."""
        held_slot = ev.slot is not None
        self._tolerated.pop(ev.value, None)
        ev.verified = False
        ev.answers = 0
        ev.greyness = Greyness.NOT_GREY
        ev.probe_id = None
        if event is EvEvent.PACKET_LOST:
            self._trust.condemned(ev, now_ns, self._rotation.active)
        self._rotation.apply(ev, event, now_ns, reason)
        self._probes.schedule(ev, now_ns)
        if held_slot:
            self._fill(self._planes[ev.plane], now_ns)

    def _bring_back(self, ev: Ev, event: EvEvent, now_ns: int, reason: str | None = None) -> None:
        """Make an EV good again: it takes its slot back from its substitute, or is a backup."""
        ev.losses = 0
        self._tolerated.pop(ev.value, None)
        ev.probe_id = None
        ev.verified = True
        own_slot = ev.own_slot
        substitute = own_slot.occupant if own_slot is not None else None
        if substitute is not None:
            self._rotation.apply(substitute, EvEvent.OWNER_RETURNED, now_ns)
            self._probes.schedule_backup(substitute, now_ns)
        self._rotation.apply(ev, event, now_ns, reason)
        if own_slot is None:
            self._probes.schedule_backup(ev, now_ns)
        self._fill(self._planes[ev.plane], now_ns)
        self._condemn_tolerated(now_ns)

    def _condemn_tolerated(self, now_ns: int) -> None:
        """Condemn an EV whose loss was tolerated, if it has delivered nothing since.

        Others can carry data now.
        """
        for ev in self._tolerated.values():
            if ev.slot is not None and not self._is_needed(ev):
                self._take_out(ev, EvEvent.PACKET_LOST, now_ns)
                return

    def _fill(self, plane: Plane, now_ns: int) -> None:
        """Lend empty slots to verified backups; where there are too few, probe the others now."""
        for slot in plane.slots:
            if slot.occupant is not None:
                continue
            ev = plane.substitute()
            if ev is not None:
                self._rotation.apply(ev, EvEvent.SUBSTITUTE_NEEDED, now_ns, slot=slot)
                continue
            for backup in plane.evs:
                if backup.slot is None and backup.state is EvState.GOOD and backup.probe_id is None:
                    self._probes.schedule(backup, now_ns)
            return
