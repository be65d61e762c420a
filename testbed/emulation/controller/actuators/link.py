"""Faults on a link itself: its ends in the nodes' namespaces, and the link model between them."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from testbed.emulation.controller.actuators.state import (
    Clock,
    Effect,
    FaultError,
    LinkImpairments,
    check_carrier,
)
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.fabric.names import directions_of
from testbed.model.faults.impairment import Impairment

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
    """Yield every direction of these links, with its impairment."""
    for link, state in states.items():
        yield from zip(directions_of(link), state.directions, strict=True)


def _check_tally(direction: str, state: Impairment, since: Mapping[str, int]) -> None:
    """Check that the counters of a direction agree with its impairment."""
    if "passed" not in since:
        return
    passed, lost = since["passed"], since["lost"]
    if (state.cut or state.blackhole) and passed:
        raise FaultError(f"{direction}: {passed} packets got past a fault that lets none pass")
    if state.loss * (passed + lost) > CERTAIN and not lost:
        raise FaultError(f"{direction}: none of {passed} packets lost, with loss {state.loss:g}")
    if state.corrupt * passed > CERTAIN and not since["corrupted"]:
        raise FaultError(f"{direction}: none of {passed} packets corrupted")
