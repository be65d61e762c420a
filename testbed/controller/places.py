"""The places that faults strike: brought into the state that their active faults add up to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from testbed.controller.actuators.endpoint import EndpointActuator
from testbed.controller.actuators.link import LinkActuator
from testbed.controller.actuators.openflow import OpenFlowActuator
from testbed.controller.actuators.state import Effect, LinkState
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
        names = dict.fromkeys(
            self._on_endpoints.name
            if ">" not in place
            else (self._on_wires if link_of(place) in self._wires else self._on_links).name
            for place in places
        )
        return "+".join(names)

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
                self._on_endpoints.apply({h: self._active.impairment_at(h) for h in hosts})
            )
        effects += [self._on_wires.apply(wire, self._state(wire)) for wire in wires]
        if links:  # after the wires, on which it mostly only reads counters
            effect = self._on_links.apply({link: self._beside_wire(link) for link in links})
            if len(wires) < len(links):
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
        proof: dict[str, Any] = {}
        links = _links_of(places)
        for link in links:
            counts: dict[str, Any] = dict(self._on_links.prove(link, self._beside_wire(link)))
            if link in self._wires:
                counts |= self._on_wires.prove(link)
            _add(proof, counts)
        if links:
            carrier = [not self._state(link).cut for link in links]
            proof["carrier"] = carrier[0] if len(set(carrier)) == 1 else carrier
            proof["read_back"] = self._on_links.read_back(p for p in places if ">" in p)
        for host in (place for place in places if ">" not in place):
            proof |= self._on_endpoints.prove(host, self._active.impairment_at(host))
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

    def _state(self, link: str) -> LinkState:
        up, down = directions_of(link)
        return LinkState(self._active.impairment_at(up), self._active.impairment_at(down))

    def _beside_wire(self, link: str) -> LinkState:
        """The state to set on the link itself: of a wire, all but what OpenFlow does."""
        state = self._state(link)
        if link not in self._wires:
            return state
        up, down = (replace(d, cut=False, blackhole=False) for d in state.directions)
        return LinkState(up, down)


def _links_of(places: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(link_of(place) for place in places if ">" in place))


def _add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Add counts by direction to the total; a list with None is not added but replaces it."""
    for key, value in counts.items():
        before = total.get(key)
        if before is None or None in (*before, *value):
            total[key] = list(value)
        else:
            total[key] = [a + b for a, b in zip(before, value, strict=True)]
