"""Places of the fabric, brought into the state that the faults in force there add up to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from testbed.controller.actuators import (
    Effect,
    EndpointActuator,
    LinkActuator,
    LinkState,
    OpenFlowActuator,
)
from testbed.model.fabric.names import directions_of, link_of
from testbed.model.faults.impairment import HEALTHY, ActiveFaults, Impairment

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
        """Nothing is wrong anywhere.

        Args:
            on_wires: acts on carrier and blackholes of links that are wires.
            on_links: acts on everything else of links.
            on_endpoints: acts on endpoints.
            wires: the links that are wires.
            new_lock: makes a lock: what changes a place takes its time, and others act meanwhile.
        """
        self._in_force = ActiveFaults()
        self._on_wires = on_wires
        self._on_links = on_links
        self._on_endpoints = on_endpoints
        self._wires = frozenset(wires)
        self._new_lock = new_lock
        self._locks: dict[str, Lock] = {}

    def actuators(self, places: Iterable[str]) -> str:
        """The names of what acts on these places."""
        found = dict.fromkeys(
            self._on_endpoints.name
            if ">" not in place
            else (self._on_wires if link_of(place) in self._wires else self._on_links).name
            for place in places
        )
        return "+".join(found)

    def put(
        self, fault: int, places: Sequence[str], state: Impairment
    ) -> tuple[Effect, dict[str, Any]]:
        """Have a fault do this to its places from now on; `HEALTHY` ends it.

        Returns:
            When it took effect, and what shows it (see `prove`).

        Raises:
            TestbedError: it did not take effect. What it has done so far stays.
        """
        with self._alone_at(places):
            self._in_force.put(fault, places, state)
            return self._apply(places), self._prove(places)

    def _apply(self, places: Sequence[str]) -> Effect:
        hosts = [place for place in places if ">" not in place]
        links = _links_of(places)
        wires = [
            link
            for link in links
            if link in self._wires and self._on_wires.needs(link, self._state(link))
        ]
        effects = []
        if hosts:
            effects.append(
                self._on_endpoints.apply({h: self._in_force.impairment_at(h) for h in hosts})
            )
        effects += [self._on_wires.apply(wire, self._state(wire)) for wire in wires]
        if links:  # after the wires: of these there is mostly nothing left to do but to count
            effect = self._on_links.apply({link: self._beside_wire(link) for link in links})
            if len(wires) < len(links):
                effects.append(effect)
        return Effect(
            min(e.after_ns for e in effects),
            max(e.by_ns for e in effects),
            sum(e.routes for e in effects),
        )

    def forget(self, fault: int, places: Sequence[str]) -> None:
        """Leave a fault that did not take effect out of what is in force from now on."""
        self._in_force.put(fault, places, HEALTHY)

    def prove(self, places: Sequence[str]) -> dict[str, Any]:
        """Show that places are in the state in which they should be; counters since it began.

        Raises:
            TestbedError: one is not.
        """
        with self._alone_at(places):
            return self._prove(places)

    def _prove(self, places: Sequence[str]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        links = _links_of(places)
        for link in links:
            counts: dict[str, Any] = dict(self._on_links.prove(link, self._beside_wire(link)))
            if link in self._wires:
                counts |= self._on_wires.prove(link)
            _add(shown, counts)
        if links:
            carrier = [not self._state(link).cut for link in links]
            shown["carrier"] = carrier[0] if len(set(carrier)) == 1 else carrier
            shown["read_back"] = self._on_links.read_back(p for p in places if ">" in p)
        for host in (place for place in places if ">" not in place):
            shown |= self._on_endpoints.prove(host, self._in_force.impairment_at(host))
        return shown

    @contextmanager
    def _alone_at(self, places: Iterable[str]) -> Iterator[None]:
        """Have these links and hosts to oneself; taken in one order, so that nobody waits forever.

        Faults of other places go on: one that is due is not late because carrier returns elsewhere.
        """
        names = {link_of(place) if ">" in place else place for place in places}
        with ExitStack() as held:
            for name in sorted(names):
                held.enter_context(self._locks.setdefault(name, self._new_lock()))
            yield

    def _state(self, link: str) -> LinkState:
        up, down = directions_of(link)
        return LinkState(self._in_force.impairment_at(up), self._in_force.impairment_at(down))

    def _beside_wire(self, link: str) -> LinkState:
        """What is to be done on the link itself: where it is a wire, all but what OpenFlow does."""
        state = self._state(link)
        if link not in self._wires:
            return state
        up, down = (replace(one, cut=False, blackhole=False) for one in state.directions)
        return LinkState(up, down)


def _links_of(places: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(link_of(place) for place in places if ">" in place))


def _add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add up counts by direction over links; what is no count is kept from the first."""
    for key, value in counts.items():
        known = total.get(key)
        if known is None or None in (*known, *value):
            total[key] = list(value)
        else:
            total[key] = [a + b for a, b in zip(known, value, strict=True)]
