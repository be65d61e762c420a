"""The places that faults strike, each brought into the state that its active faults add up to.

A fault strikes directions of links, or hosts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from testbed.emulation.controller.actuators import (
    Effect,
    EndpointActuator,
    LinkActuator,
    LinkImpairments,
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
