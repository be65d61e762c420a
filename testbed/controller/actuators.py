"""What brings a link, or an endpoint, into a state, and proves that it is in it.

Each works from whatever state a place is in to the one asked for, on many places at once where that
is quicker; what several faults add up to is not its business (`places`).
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.controller.flows import DROP_PRIORITY, PATCH_PRIORITY
from testbed.controller.timeline import Clock
from testbed.fabric.link_model.link_control import CARRIER_POLL_S, CARRIER_TIMEOUT_NS
from testbed.fabric.openvswitch.daemons import Wire, forwarded_packets
from testbed.model.errors import RunFailedError
from testbed.model.fabric.names import directions_of
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.record import OPENFLOW

if TYPE_CHECKING:  # they bring Ryu
    from testbed.controller.openflow import Session, SessionSource

PROCESS_TIMEOUT_NS = 1_000_000_000
"""A process that has not obeyed a signal by then does not."""

PROCESS_POLL_S = 0.0005

BOTH_UP = (True, True)
BOTH_DOWN = (False, False)

CERTAIN = 30
"""So many hits expected of a random fault, and none seen: it does not act (chance: 1e-13)."""


class FaultError(RunFailedError):
    """A fault did not take effect, leaked, or did not heal."""


@dataclass(frozen=True, slots=True)
class Effect:
    """When a change took effect: at a time within an interval of CLOCK_MONOTONIC.

    Attributes:
        after_ns: nothing had changed before this.
        by_ns: it held for every packet from here on.
        routes: how many routes and neighbours were put back with carrier, and read back.
    """

    after_ns: int
    by_ns: int
    routes: int = 0


@dataclass(frozen=True, slots=True)
class LinkState:
    """What is wrong with a link, in either direction."""

    up: Impairment = HEALTHY
    down: Impairment = HEALTHY

    @property
    def cut(self) -> bool:
        """Whether it has no carrier."""
        return self.up.cut or self.down.cut

    @property
    def swallows(self) -> tuple[bool, bool]:
        """Which directions are blackholes, the way up first."""
        return self.up.blackhole, self.down.blackhole

    @property
    def directions(self) -> tuple[Impairment, Impairment]:
        """Both, the way up first."""
        return self.up, self.down


class LinkControl(Protocol):
    """What this module uses of `fabric/link_model/link_control.py`."""

    def open(self, link: str) -> None:
        """Make ready for a fault on a link."""

    def impair(self, direction: str, state: Impairment) -> None:
        """Bring a direction into a state, but for its carrier."""

    def differences_from(self, direction: str, state: Impairment) -> str:
        """How a direction differs from a state; empty if it does not."""

    def tally(self, direction: str) -> dict[str, int]:
        """Packets of a direction so far, by what became of them."""

    def cut(self, link: str) -> None:
        """Set both ends down."""

    def read_back(self, direction: str) -> dict[str, int]:
        """What is wrong with a direction, as the link model's memory has it."""

    def restore(self, *links: str) -> int:
        """Put routes back, set both ends up, wait until they forward; how many came back."""

    def carrier(self, link: str) -> tuple[bool, bool]:
        """Whether the lower and the upper end have carrier."""


# --- through Open vSwitch ---------------------------------------------------------------------


@dataclass(slots=True)
class _WireState:
    """What OpenFlow has done to a wire.

    Attributes:
        cut: its ports are down.
        swallows: what comes in at either end is dropped: the way up, the way down.
        forwarded: packets sent on to either node when that began.
    """

    cut: bool = False
    swallows: tuple[bool, bool] = (False, False)
    forwarded: tuple[int, int] = (0, 0)


class OpenFlowActuator:
    """Flows and ports of the bridge that the wires run through: carrier, and blackholes."""

    name = OPENFLOW

    def __init__(
        self,
        wires: Sequence[Wire],
        session: "SessionSource",
        purge_datapath: Callable[[], bool],
        links: LinkControl,
        clock: Clock,
    ) -> None:
        """Nothing is sent yet: `install` is for when the switch connects.

        Args:
            wires: every wire of the run.
            session: gives the present connection to the switch.
            purge_datapath: makes the switch forget forwarding decisions; whether it keeps any.
            links: reads carrier at the nodes' ends, and puts their routes back.
            clock: the clock.
        """
        self._wires = {wire.link.name: wire for wire in wires}
        self._states = {name: _WireState() for name in self._wires}
        self._session = session
        self._purge_datapath = purge_datapath
        self._links = links
        self._clock = clock

    def install(self, session: "Session") -> None:
        """Bring a switch that has just connected to the present state, faults included.

        Its tables may be empty (it is new) or as we left them (the connection was lost). Drops go
        in before patches, so that nothing passes a blackhole in between.

        Raises:
            SwitchError: it refused, or has not the ports.
        """
        wires = tuple(self._wires.values())
        session.learn_ports(wires)
        for wire in wires:
            state = self._states[wire.link.name]
            bright = tuple(not dark for dark in state.swallows)
            session.commit(
                [
                    *session.power(wire, up=not state.cut),
                    *_drops(session, wire, bright, state.swallows),
                    *session.patch(wire),
                ]
            )
            self._check_flows(session, wire, state)

    def apply(self, link: str, wanted: LinkState) -> Effect:
        """Set ports up or down and drop by flows; in force once the datapath has no old decision.

        A cut drops everything before it takes carrier, as on a link: the light goes first, and a
        port's end takes the kernel milliseconds. Carrier comes back last, so that what is sent as
        soon as it is there arrives. Only what changes is sent: each message is one more that the
        barrier waits for.

        Raises:
            FaultError: carrier or flows are not what they should be.
            SwitchError: the switch refused or did not answer.
        """
        wire, session, state = self._wires[link], self._session(), self._states[link]
        was_cut, swallowed = state.cut, state.swallows
        state.cut, state.swallows = _on_wire(wanted)  # also what a new switch would get
        after_ns, routes = self._clock.now_ns(), 0
        by_ns = session.commit(_drops(session, wire, swallowed, state.swallows))
        if self._purge_datapath():
            by_ns = self._clock.now_ns()
        if was_cut and not state.cut:
            session.commit(session.power(wire, up=True))
            routes = self._links.restore(link)
            by_ns = self._clock.now_ns()
        if state.cut and not was_cut:
            session.commit(session.power(wire, up=False))
            self._await_carrier_loss(link)
        state.forwarded = forwarded_packets(wire)
        expect_carrier(self._links, link, cut=wanted.cut)
        self._check_flows(session, wire, state)
        return Effect(after_ns, by_ns, routes)

    def needs(self, link: str, wanted: LinkState) -> bool:
        """Whether a wire is not yet in the state that is wanted of it here."""
        state = self._states[link]
        return (state.cut, state.swallows) != _on_wire(wanted)

    def prove(self, link: str) -> Mapping[str, Any]:
        """Show that a wire is still in its state, and what the flows did since.

        Raises:
            FaultError: something got past a blackhole, or carrier or flows changed.
        """
        wire, state = self._wires[link], self._states[link]
        expect_carrier(self._links, link, cut=state.cut)
        session = self._session()
        if state.cut:
            return {"port_status_ns": [session.port_status_ns.get(port) for port in wire.ports]}
        self._purge_datapath()  # and with it, counts what the datapath had not yet reported
        flows = session.flows()
        to_lower, to_upper = (
            now - then for now, then in zip(forwarded_packets(wire), state.forwarded, strict=True)
        )
        dropped = [flows.get((DROP_PRIORITY, port)) for port in wire.ports]
        for swallows, count, forwarded in zip(
            state.swallows, dropped, (to_upper, to_lower), strict=True
        ):
            if swallows and (count is None or forwarded):
                raise FaultError(
                    f"{link}: a blackhole with drops {dropped} forwarded {[to_upper, to_lower]}"
                )
        if not any(state.swallows):
            return {}
        return {
            "dropped_by_flows": [count or 0 for count in dropped],
            "forwarded": [to_upper, to_lower],
        }

    def _await_carrier_loss(self, link: str) -> None:
        deadline = self._clock.now_ns() + CARRIER_TIMEOUT_NS
        while (found := self._links.carrier(link)) != BOTH_DOWN:
            if self._clock.now_ns() > deadline:
                raise FaultError(f"{link}: carrier {found} at its ends after a cut")
            self._clock.sleep(CARRIER_POLL_S)

    def _check_flows(self, session: "Session", wire: Wire, state: _WireState) -> None:
        flows = session.flows()
        wanted = {(PATCH_PRIORITY, port) for port in wire.ports}
        wanted |= {
            (DROP_PRIORITY, port) for port, on in zip(wire.ports, state.swallows, strict=True) if on
        }
        found = {key for key in flows if key[1] in wire.ports}
        if found != wanted:
            raise FaultError(f"{wire.link.name}: flows {found}, not {wanted}")


def _on_wire(wanted: LinkState) -> tuple[bool, tuple[bool, bool]]:
    """Whether a wire's ports are to be down, and what it is to drop: all, where they are."""
    return wanted.cut, ((True, True) if wanted.cut else wanted.swallows)


def _drops(
    session: "Session", wire: Wire, before: tuple[bool, ...], after: tuple[bool, ...]
) -> list[Any]:
    """What makes either end drop what comes in, or no longer."""
    ends = tuple(zip(wire.ports, before, after, strict=True))
    on = [port for port, was, is_dark in ends if is_dark and not was]
    off = [port for port, was, is_dark in ends if was and not is_dark]
    return [*session.drop(on), *session.undrop(off)]


def expect_carrier(links: LinkControl, link: str, *, cut: bool) -> None:
    """Check that both ends of a link have carrier, or neither has where it is cut."""
    found, wanted = links.carrier(link), BOTH_DOWN if cut else BOTH_UP
    if found != wanted:
        raise FaultError(f"{link}: carrier {found} at its ends, not {wanted}")


# --- on the link itself -----------------------------------------------------------------------


class LinkActuator:
    """The link's own ends in the nodes' namespaces, and the link model between them."""

    name = "link"

    def __init__(self, control: LinkControl, clock: Clock, wires: Collection[str] = ()) -> None:
        """Take the fabric's control over links; the carrier of wires is not its business."""
        self._control = control
        self._clock = clock
        self._wires = wires
        self._cut = set[str]()
        self._tallies: dict[str, dict[str, int]] = {}

    def apply(self, states: Mapping[str, LinkState]) -> Effect:
        """Bring links into their states: of many at once, all swallow before any loses carrier.

        And none swallows any more when it gets its carrier back: what is sent then arrives.

        Raises:
            FaultError: what is read back is not what was asked for.
            MachineError: the fault needs the link model, and there is none.
        """
        after_ns = self._clock.now_ns()
        restored = [link for link, state in states.items() if link in self._cut and not state.cut]
        for link, state in states.items():
            self._impair(link, state)
        by_ns = self._clock.now_ns()
        for link, state in states.items():
            if state.cut and link not in self._cut:
                self._control.cut(link)
                self._cut.add(link)
                self._clock.sleep(0)  # others' turn: setting ports down takes milliseconds
        routes = 0
        if restored:
            routes = self._control.restore(*restored)
            self._cut.difference_update(restored)
            by_ns = self._clock.now_ns()
        for link, state in states.items():
            self._check(link, state)
            for direction in directions_of(link):
                self._tallies[direction] = self._control.tally(direction)
        return Effect(after_ns, by_ns, routes)

    def prove(self, link: str, state: LinkState) -> Mapping[str, list[int]]:
        """Show that a link is still in its state, and what became of packets since, by direction.

        Raises:
            FaultError: it is not, a blackhole let something pass, or a random fault hit nothing.
        """
        self._check(link, state)
        counts: dict[str, list[int]] = {}
        for direction, wanted in zip(directions_of(link), state.directions, strict=True):
            before, now = self._tallies[direction], self._control.tally(direction)
            since = {key: now[key] - before[key] for key in now}
            _check_tally(direction, wanted, since)
            for key, count in since.items():
                counts.setdefault(key, []).append(count)
        return counts

    def read_back(self, directions: Iterable[str]) -> dict[str, list[int]]:
        """What the link model's memory has that is wrong with directions: each value once."""
        found = [self._control.read_back(direction) for direction in directions]
        keys = dict.fromkeys(key for one in found for key in one)
        return {key: sorted({one[key] for one in found if key in one}) for key in keys}

    def _impair(self, link: str, state: LinkState) -> None:
        for direction, wanted in zip(directions_of(link), state.directions, strict=True):
            self._control.impair(direction, wanted)

    def _check(self, link: str, state: LinkState) -> None:
        if link not in self._wires:
            expect_carrier(self._control, link, cut=state.cut)
        for direction, wanted in zip(directions_of(link), state.directions, strict=True):
            differences = self._control.differences_from(direction, wanted)
            if differences:
                raise FaultError(f"{direction}: {differences}")


def _check_tally(direction: str, state: Impairment, since: Mapping[str, int]) -> None:
    """Look whether packets fared as their direction's state says."""
    if "passed" not in since:
        return
    passed, lost = since["passed"], since["lost"]
    if (state.cut or state.blackhole) and passed:
        raise FaultError(f"{direction}: {passed} packets got past a fault that lets none pass")
    if state.loss * (passed + lost) > CERTAIN and not lost:
        raise FaultError(f"{direction}: none of {passed} packets lost, with loss {state.loss:g}")
    if state.corrupt * passed > CERTAIN and not since["corrupted"]:
        raise FaultError(f"{direction}: none of {passed} packets corrupted")


# --- endpoints --------------------------------------------------------------------------------


class EndpointActuator:
    """Processes, by signals: those in the hosts, and the controller's own.

    Attributes:
        pids: the processes by host; they are told when the timeline begins.
    """

    name = "endpoint"

    def __init__(self, clock: Clock, before_end: Callable[[str], None]) -> None:
        """Know no process yet.

        Args:
            clock: the clock.
            before_end: called with a process's name just before it is killed.
        """
        self.pids: Mapping[str, int] = {}
        self._clock = clock
        self._before_end = before_end

    def apply(self, states: Mapping[str, Impairment]) -> Effect:
        """Kill processes, stop them or let them go on.

        Raises:
            FaultError: there is none in that host, or it does not obey.
        """
        absent = [host for host in states if host not in self.pids]
        if absent:
            raise FaultError(f"no endpoint runs in {', '.join(absent)}")
        after_ns = self._clock.now_ns()
        for host, state in states.items():
            if not state.dead:
                os.kill(self.pids[host], signal.SIGSTOP if state.frozen else signal.SIGCONT)
            elif self._state(host) not in ENDED:
                self._before_end(host)
                os.kill(self.pids[host], signal.SIGKILL)
        for host, state in states.items():
            self._await(host, state)
        return Effect(after_ns, self._clock.now_ns())

    def prove(self, host: str, state: Impairment) -> Mapping[str, bool]:
        """Show that a process has ended, stands still, or runs.

        Raises:
            FaultError: it has or does not.
        """
        found = self._state(host)
        shown = {"ended": found in ENDED, "stopped": found == STOPPED}
        if shown != _wanted(state):
            raise FaultError(f"the endpoint of {host} is in state {found}, not {_wanted(state)}")
        return {"ended": True} if state.dead else {"stopped": state.frozen}

    def _await(self, host: str, state: Impairment) -> None:
        deadline = self._clock.now_ns() + PROCESS_TIMEOUT_NS
        while True:
            try:
                self.prove(host, state)
            except FaultError:
                if self._clock.now_ns() > deadline:
                    raise
                self._clock.sleep(PROCESS_POLL_S)
            else:
                return

    def _state(self, host: str) -> str:
        """What the kernel says of it: proc(5), the field behind the name in brackets."""
        try:
            text = Path(f"/proc/{self.pids[host]}/stat").read_text()
        except FileNotFoundError:  # its parent has taken note of its end
            return "X"
        return text.rpartition(")")[2].split()[0]


STOPPED = "T"
ENDED = ("Z", "X")
"""States of a process as proc(5) names them."""


def _wanted(state: Impairment) -> dict[str, bool]:
    return {"ended": state.dead, "stopped": state.frozen and not state.dead}
