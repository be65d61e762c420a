"""What brings a link, or an endpoint, into a state, and proves that it is in that state.

Each actuator works from whatever state a place is in to the one asked for, on many places at once
where that is quicker.

A fault strikes places: directions of links, or hosts. Each is brought into the state that its
active faults add up to.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.emulation.controller.plan import DROP_PRIORITY, WIRE_PRIORITY
from testbed.emulation.fabric.link_model.link_control import (
    CARRIER_POLL_S,
    CARRIER_TIMEOUT_NS,
    LinkControl,
)
from testbed.emulation.fabric.openvswitch import OpenFlowWire, forwarded_packets
from testbed.model.errors import RunFailedError
from testbed.model.fabric.names import directions_of, link_of
from testbed.model.faults.impairment import HEALTHY, ActiveFaults, Impairment
from testbed.model.faults.record import OPENFLOW
from testbed.model.units import NS_PER_S

if TYPE_CHECKING:
    from testbed.emulation.controller.session import Message, Session, SessionSource

SPIN_NS = 2_000_000
"""The last stretch before a time is spent watching the clock: a sleep ends late by a tick."""


class Clock(Protocol):
    """CLOCK_MONOTONIC, and a sleep during which other work goes on; a virtual one in tests."""

    def now_ns(self) -> int:
        """Read the clock."""

    def sleep(self, seconds: float) -> None:
        """Return no earlier than this, perhaps later."""


def wait_until(clock: Clock, deadline_ns: int) -> None:
    """Return at a time: sleep for most of the wait, then watch the clock."""
    while (remaining_ns := deadline_ns - clock.now_ns()) > SPIN_NS:
        clock.sleep((remaining_ns - SPIN_NS) / NS_PER_S)
    while clock.now_ns() < deadline_ns:
        pass


class FaultError(RunFailedError):
    """A fault did not take effect, leaked, or did not heal."""


@dataclass(frozen=True, slots=True)
class Effect:
    """When a change took effect: at a time within an interval of CLOCK_MONOTONIC.

    Attributes:
        after_ns: nothing had changed before this.
        by_ns: it held for every packet from here on.
        routes: how many routes and neighbours were restored with carrier, and read back.
    """

    after_ns: int
    by_ns: int
    routes: int = 0


@dataclass(frozen=True, slots=True)
class LinkImpairments:
    """The impairments of a link's two directions."""

    up: Impairment = HEALTHY
    down: Impairment = HEALTHY

    @property
    def cut(self) -> bool:
        """Whether it has no carrier."""
        return self.up.cut or self.down.cut

    @property
    def directions(self) -> tuple[Impairment, Impairment]:
        """Both, the way up first."""
        return self.up, self.down

    @property
    def without_cut_and_blackhole(self) -> "LinkImpairments":
        """The same with carrier and without blackholes."""
        return LinkImpairments(*(replace(d, cut=False, blackhole=False) for d in self.directions))


def check_carrier(links: LinkControl, link: str, *, cut: bool) -> None:
    """Check that both ends of a link have carrier, or neither of a link that is cut.

    Raises:
        FaultError: they have not.
    """
    carrier, expected = links.carrier(link), (not cut, not cut)
    if carrier != expected:
        raise FaultError(f"{link}: carrier {carrier} at its ends, not {expected}")


CERTAIN = 30
"""If a random fault should have hit this many packets and hit none, it does not act (the chance of
that is 1e-13)."""


class LinkActuator:
    """Acts on links; the carrier of wires is left to `OpenFlowActuator`."""

    name = "link"

    def __init__(self, control: LinkControl, clock: Clock, wires: Collection[str] = ()) -> None:
        """Use the fabric's control over links.

        `wires` names the links that run through Open vSwitch.
        """
        self._control = control
        self._clock = clock
        self._wires = wires
        self._cut = set[str]()
        self._tallies: dict[str, dict[str, int]] = {}

    def apply(self, states: Mapping[str, LinkImpairments]) -> Effect:
        """Bring links into their states.

        All links drop packets before the first one loses carrier, and none does any more when its
        carrier returns, so that what is sent from then on arrives.

        Raises:
            FaultError: what is read back is not what was asked for.
            MachineError: the fault needs the link model, and there is none.
        """
        after_ns = self._clock.now_ns()
        restored = [link for link, state in states.items() if link in self._cut and not state.cut]
        for direction, state in _by_direction(states):
            self._control.impair(direction, state)
        by_ns = self._clock.now_ns()
        for link, link_state in states.items():
            if link_state.cut and link not in self._cut:
                self._control.cut(link)
                self._cut.add(link)
                self._clock.sleep(0)  # let others work: setting ports down takes milliseconds
        routes = 0
        if restored:
            routes = self._control.restore(*restored)
            self._cut.difference_update(restored)
            by_ns = self._clock.now_ns()
        self._check(states)
        for direction, _ in _by_direction(states):
            self._tallies[direction] = self._control.tally(direction)
        return Effect(after_ns, by_ns, routes)

    def prove(self, link: str, state: LinkImpairments) -> Mapping[str, list[int]]:
        """Show that a link is still in its state; return its counters since then, by direction.

        Raises:
            FaultError: it is not, a blackhole let something pass, or a random fault hit nothing.
        """
        self._check({link: state})
        counts: dict[str, list[int]] = {}
        for direction, impairment in _by_direction({link: state}):
            before, now = self._tallies[direction], self._control.tally(direction)
            since = {key: now[key] - before[key] for key in now}
            _check_tally(direction, impairment, since)
            for key, count in since.items():
                counts.setdefault(key, []).append(count)
        return counts

    def read_back(self, directions: Iterable[str]) -> dict[str, list[int]]:
        """The impairments of directions in the link model's memory: the distinct values by key."""
        memories = [self._control.read_back(direction) for direction in directions]
        keys = dict.fromkeys(key for memory in memories for key in memory)
        return {key: sorted({memory[key] for memory in memories if key in memory}) for key in keys}

    def _check(self, states: Mapping[str, LinkImpairments]) -> None:
        for link, state in states.items():
            if link not in self._wires:
                check_carrier(self._control, link, cut=state.cut)
        for direction, impairment in _by_direction(states):
            differences = self._control.differences_from(direction, impairment)
            if differences:
                raise FaultError(f"{direction}: {differences}")


def _by_direction(states: Mapping[str, LinkImpairments]) -> Iterator[tuple[str, Impairment]]:
    for link, state in states.items():
        yield from zip(directions_of(link), state.directions, strict=True)


def _check_tally(direction: str, state: Impairment, since: Mapping[str, int]) -> None:
    if "passed" not in since:
        return
    passed, lost = since["passed"], since["lost"]
    if (state.cut or state.blackhole) and passed:
        raise FaultError(f"{direction}: {passed} packets got past a fault that lets none pass")
    if state.loss * (passed + lost) > CERTAIN and not lost:
        raise FaultError(f"{direction}: none of {passed} packets lost, with loss {state.loss:g}")
    if state.corrupt * passed > CERTAIN and not since["corrupted"]:
        raise FaultError(f"{direction}: none of {passed} packets corrupted")


NEITHER = (False, False)
BOTH = (True, True)


@dataclass(slots=True)
class _WireState:
    """What OpenFlow has done to a wire.

    Attributes:
        cut: its ports are down.
        drops: whether packets are dropped that come in at the lower end, and at the upper end.
        forwarded: packets forwarded to the lower and to the upper node when that began.
    """

    cut: bool = False
    drops: tuple[bool, bool] = NEITHER
    forwarded: tuple[int, int] = (0, 0)


class OpenFlowActuator:
    """Flows and ports of the bridge that the wires run through: carrier, and blackholes."""

    name = OPENFLOW

    def __init__(
        self,
        wires: Sequence[OpenFlowWire],
        session: "SessionSource",
        purge_datapath: Callable[[], bool],
        links: LinkControl,
        clock: Clock,
    ) -> None:
        """Send nothing yet: `install` does when the switch connects.

        Args:
            wires: every wire of the run.
            session: returns the present connection to the switch.
            purge_datapath: has the switch forget cached decisions; returns whether it caches any.
            links: reads carrier at the nodes' ends, and restores their routes.
            clock: the clock.
        """
        self._wires = {wire.link.name: wire for wire in wires}
        self._states = {name: _WireState() for name in self._wires}
        self._session = session
        self._purge_datapath = purge_datapath
        self._links = links
        self._clock = clock

    def install(self, session: "Session") -> None:
        """Bring a switch that has just connected into the present state, faults included.

        Its tables may be empty (it is new) or as they were when the connection was lost. Drops are
        installed before patches, so that nothing passes a blackhole in between.

        Raises:
            SwitchError: it refused, or lacks the ports.
        """
        session.learn_ports(tuple(self._wires.values()))
        for name, wire in self._wires.items():
            state = self._states[name]
            others = (not state.drops[0], not state.drops[1])
            session.commit(
                [
                    *session.set_ports(wire, up=not state.cut),
                    *_drop_changes(session, wire, others, state.drops),
                    *session.add_patch(wire),
                ]
            )
            self._check_flows(session, wire, state)

    def apply(self, link: str, target: LinkImpairments) -> Effect:
        """Set ports up or down, and add or remove drops.

        A change is in force once the datapath has forgotten its cached decisions. A cut drops all
        packets before it takes carrier, as the kernel takes milliseconds to set a port down.
        Carrier returns last, so that what is sent from then on arrives. Only what changes is sent:
        the barrier waits for every message.

        Raises:
            FaultError: carrier or flows are not what they should be.
            SwitchError: the switch refused or did not answer.
        """
        wire, session, state = self._wires[link], self._session(), self._states[link]
        was_cut, dropped = state.cut, state.drops
        state.cut, state.drops = _on_wire(target)  # a switch that connects now gets the same
        after_ns, routes = self._clock.now_ns(), 0
        by_ns = session.commit(_drop_changes(session, wire, dropped, state.drops))
        if self._purge_datapath():
            by_ns = self._clock.now_ns()
        if was_cut and not state.cut:
            session.commit(session.set_ports(wire, up=True))
            routes = self._links.restore(link)
            by_ns = self._clock.now_ns()
        if state.cut and not was_cut:
            session.commit(session.set_ports(wire, up=False))
            self._await_carrier_loss(link)
        state.forwarded = forwarded_packets(wire)
        check_carrier(self._links, link, cut=target.cut)
        self._check_flows(session, wire, state)
        return Effect(after_ns, by_ns, routes)

    def needs(self, link: str, target: LinkImpairments) -> bool:
        """Whether a wire has to be changed here to be in that state."""
        state = self._states[link]
        return (state.cut, state.drops) != _on_wire(target)

    def prove(self, link: str) -> Mapping[str, Any]:
        """Show that a wire is still in its state; return its counters since then.

        Raises:
            FaultError: something passed a blackhole, or carrier or flows have changed.
        """
        wire, state = self._wires[link], self._states[link]
        check_carrier(self._links, link, cut=state.cut)
        session = self._session()
        if state.cut:
            return {"port_status_ns": [session.port_status_ns.get(port) for port in wire.ports]}
        self._purge_datapath()  # which has the datapath report its counters first
        flows = session.flows()
        to_lower, to_upper = (
            now - before
            for now, before in zip(forwarded_packets(wire), state.forwarded, strict=True)
        )
        forwarded = [to_upper, to_lower]
        counts = [flows.get((DROP_PRIORITY, port)) for port in wire.ports]
        for drops, count, passed in zip(state.drops, counts, forwarded, strict=True):
            if drops and (count is None or passed):
                raise FaultError(f"{link}: a blackhole with drops {counts} forwarded {forwarded}")
        if state.drops == NEITHER:
            return {}
        return {"dropped_by_flows": [count or 0 for count in counts], "forwarded": forwarded}

    def _await_carrier_loss(self, link: str) -> None:
        deadline = self._clock.now_ns() + CARRIER_TIMEOUT_NS
        while (carrier := self._links.carrier(link)) != NEITHER:
            if self._clock.now_ns() > deadline:
                raise FaultError(f"{link}: carrier {carrier} at its ends after a cut")
            self._clock.sleep(CARRIER_POLL_S)

    def _check_flows(self, session: "Session", wire: OpenFlowWire, state: _WireState) -> None:
        flows = {key for key in session.flows() if key[1] in wire.ports}
        drops = (port for port, on in zip(wire.ports, state.drops, strict=True) if on)
        expected = {(WIRE_PRIORITY, port) for port in wire.ports}
        expected |= {(DROP_PRIORITY, port) for port in drops}
        if flows != expected:
            raise FaultError(f"{wire.link.name}: flows {flows}, not {expected}")


def _on_wire(target: LinkImpairments) -> tuple[bool, tuple[bool, bool]]:
    """Whether a wire's ports are to be down, and at which ends packets are to be dropped."""
    blackholes = target.up.blackhole, target.down.blackhole
    return target.cut, BOTH if target.cut else blackholes


def _drop_changes(
    session: "Session", wire: OpenFlowWire, before: tuple[bool, bool], after: tuple[bool, bool]
) -> "list[Message]":
    ends = tuple(zip(wire.ports, before, after, strict=True))
    added = [port for port, dropped, drops in ends if drops and not dropped]
    removed = [port for port, dropped, drops in ends if dropped and not drops]
    return [*session.add_drops(added), *session.remove_drops(removed)]


PROCESS_TIMEOUT_NS = NS_PER_S
"""How long a process may take to follow a signal."""

PROCESS_POLL_S = 0.0005

STOPPED = "T"
ENDED = ("Z", "X")
"""States of a process, as proc(5) names them."""


class EndpointActuator:
    """Stops, continues and kills processes, and makes endpoints busy.

    Attributes:
        pids: the processes by host; known once the timeline begins.
    """

    name = "endpoint"

    def __init__(
        self,
        clock: Clock,
        before_kill: Callable[[str], None],
        set_busy: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """Know no process yet.

        Args:
            clock: the clock.
            before_kill: called with a process's host just before it is killed.
            set_busy: makes the endpoint of a host so busy, and returns what it answers.
        """
        self.pids: Mapping[str, int] = {}
        self._clock = clock
        self._before_kill = before_kill
        self._set_busy = set_busy
        self._answers: dict[str, Mapping[str, Any]] = {}

    def apply(self, states: Mapping[str, Impairment]) -> Effect:
        """Kill processes, stop them or continue them, by host.

        Raises:
            FaultError: a host has no process, or the process does not follow the signal, or does
                not answer.
        """
        absent = [host for host in states if host not in self.pids]
        if absent:
            raise FaultError(f"no endpoint runs in {', '.join(absent)}")
        after_ns = self._clock.now_ns()
        for host, state in states.items():
            if not state.dead:
                os.kill(self.pids[host], signal.SIGSTOP if state.frozen else signal.SIGCONT)
            elif self._process_state(host) not in ENDED:
                self._before_kill(host)
                os.kill(self.pids[host], signal.SIGKILL)
        for host, state in states.items():
            self._await(host, state)
            answers = not (state.dead or state.frozen)  # one that stands still is told later
            if answers and state.busy != self._busy(host):
                self._make_busy(host, state.busy)
        return Effect(after_ns, self._clock.now_ns())

    def _busy(self, host: str) -> Mapping[str, Any]:
        """How busy the endpoint of a host has said to be, at the last time."""
        busy: Mapping[str, Any] = self._answers.get(host, {}).get("busy", {})
        return busy

    def _make_busy(self, host: str, busy: Mapping[str, Any]) -> None:
        try:
            answer = self._set_busy(host, busy)
        except TimeoutError as error:
            raise FaultError(str(error)) from error
        if "errors" in answer:
            raise FaultError(f"the endpoint of {host} refuses: {answer['errors']}")
        self._answers[host] = answer

    def prove(self, host: str, state: Impairment) -> Mapping[str, Any]:
        """Show that a process has ended, is stopped, runs or is busy, as its state says.

        Of one that is or was busy, the proof has what it said to be when that changed, and how
        many packets it had refused then.

        Raises:
            FaultError: it is not so.
        """
        process_state = self._process_state(host)
        actual = {"ended": process_state in ENDED, "stopped": process_state == STOPPED}
        expected = {"ended": state.dead, "stopped": state.frozen and not state.dead}
        if actual != expected:
            raise FaultError(f"the endpoint of {host} is in state {process_state}, not {expected}")
        if state.dead:
            return {"ended": True}
        return {"stopped": state.frozen, **self._answers.get(host, {})}

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

    def _process_state(self, host: str) -> str:
        """The state in /proc/PID/stat: the field after the name in brackets (proc(5))."""
        try:
            text = Path(f"/proc/{self.pids[host]}/stat").read_text(encoding="utf-8")
        except FileNotFoundError:  # it has ended, and its parent has waited for it
            return "X"
        return text.rpartition(")")[2].split()[0]


Lock = AbstractContextManager[Any]


class Places:
    """Every direction of a link and every host that a fault can strike."""

    def __init__(
        self,
        on_wires: OpenFlowActuator,
        on_links: LinkActuator,
        on_endpoints: EndpointActuator,
        wires: Sequence[str],
        new_lock: Callable[[], Lock],
    ) -> None:
        """No fault is active.

        Args:
            on_wires: acts on carrier and blackholes of links that are wires.
            on_links: acts on links in all other ways.
            on_endpoints: acts on endpoints.
            wires: the links that are wires.
            new_lock: makes a lock, as a change takes its time and other faults act meanwhile.
        """
        self._active = ActiveFaults()
        self._on_wires = on_wires
        self._on_links = on_links
        self._on_endpoints = on_endpoints
        self._wires = frozenset(wires)
        self._new_lock = new_lock
        self._locks: dict[str, Lock] = {}

    def actuators(self, places: Iterable[str]) -> str:
        """The names of the actuators of these places, joined by +."""
        names = (
            self._on_endpoints.name
            if ">" not in place
            else (self._on_wires if link_of(place) in self._wires else self._on_links).name
            for place in places
        )
        return "+".join(dict.fromkeys(names))

    def put(
        self, fault: int, places: Sequence[str], state: Impairment
    ) -> tuple[Effect, dict[str, Any]]:
        """Set what a fault does to its places from now on; `HEALTHY` heals it.

        Returns:
            When that took effect, and its proof (see `prove`).

        Raises:
            TestbedError: it did not take effect; what has been changed so far stays.
        """
        with self._alone_at(places):
            self._active.put(fault, places, state)
            return self._apply(places), self._prove(places)

    def _apply(self, places: Sequence[str]) -> Effect:
        links = self._link_states(places)
        if not links:
            return self._on_endpoints.apply({h: self._active.impairment_at(h) for h in places})
        wires = [link for link in links if link in self._wires]
        changed = [wire for wire in wires if self._on_wires.needs(wire, links[wire])]
        effects = [self._on_wires.apply(wire, links[wire]) for wire in changed]
        # after the wires, on which it mostly only reads counters
        effect = self._on_links.apply(self._beside_wires(links))
        if len(changed) < len(links):
            effects.append(effect)
        return Effect(
            min(e.after_ns for e in effects),
            max(e.by_ns for e in effects),
            sum(e.routes for e in effects),
        )

    def forget(self, fault: int, places: Sequence[str]) -> None:
        """Remove a fault that did not take effect from the active ones."""
        self._active.put(fault, places, HEALTHY)

    def prove(self, places: Sequence[str]) -> dict[str, Any]:
        """Show that places are in their state; return the proof, with counters since it began.

        Raises:
            TestbedError: one is not.
        """
        with self._alone_at(places):
            return self._prove(places)

    def _prove(self, places: Sequence[str]) -> dict[str, Any]:
        links, proof = self._link_states(places), dict[str, Any]()
        if not links:
            refused = 0
            for host in places:
                proof |= self._on_endpoints.prove(host, self._active.impairment_at(host))
                refused += proof.pop("refused", 0)
            return {**proof, "refused": refused} if "busy" in proof else proof
        for link, state in self._beside_wires(links).items():
            _add(proof, self._on_links.prove(link, state))
            if link in self._wires:
                _add(proof, self._on_wires.prove(link))
        carrier = [not state.cut for state in links.values()]
        proof["carrier"] = carrier[0] if len(set(carrier)) == 1 else carrier
        proof["read_back"] = self._on_links.read_back(places)
        return proof

    @contextmanager
    def _alone_at(self, places: Iterable[str]) -> Iterator[None]:
        """Lock these links and hosts, in a fixed order, so that there is no deadlock.

        Faults of other places go on: none is late because carrier returns elsewhere.
        """
        names = {link_of(place) if ">" in place else place for place in places}
        with ExitStack() as locks:
            for name in sorted(names):
                locks.enter_context(self._locks.setdefault(name, self._new_lock()))
            yield

    def _link_states(self, places: Iterable[str]) -> dict[str, LinkImpairments]:
        """The links of these places, with the state that active faults add up to; no hosts."""
        links = dict.fromkeys(link_of(place) for place in places if ">" in place)
        return {
            link: LinkImpairments(*map(self._active.impairment_at, directions_of(link)))
            for link in links
        }

    def _beside_wires(self, links: Mapping[str, LinkImpairments]) -> dict[str, LinkImpairments]:
        """The states to set on the links themselves: of wires, all but what OpenFlow does."""
        return {
            link: state.without_cut_and_blackhole if link in self._wires else state
            for link, state in links.items()
        }


def _add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts by direction to the total; a list with None is not added but replaces it."""
    for key, value in counts.items():
        before = total.get(key)
        if before is None or None in (*before, *value):
            total[key] = list(value)
        else:
            total[key] = [a + b for a, b in zip(before, value, strict=True)]
