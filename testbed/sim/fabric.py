"""The fabric of a topology in virtual time: its link directions, and routes over them."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from testbed.model.fabric.addressing import Path, links_of_path
from testbed.model.fabric.names import direction_named
from testbed.model.fabric.nodes import Link, Node, Port
from testbed.model.fabric.topology import Topology, shape_of
from testbed.model.faults.impairment import Impairment
from testbed.model.run_files.content import LinkSample
from testbed.mrc import DscpClasses
from testbed.sim.engine import Engine
from testbed.sim.link import LinkDirection


class Timing(StrEnum):
    """Where a packet spends its time, besides queueing.

    REAL: it is stored and forwarded at every hop, and propagation delay applies along the way.
    EMULATED: as in the emulation, it leaves a port when its service begins (HTB sends it, then
    waits for its serialisation), and the receiver applies all propagation delay.
    """

    REAL = "real"
    EMULATED = "emulated"


class Fabric:
    """The link directions of a topology, made when a route first needs them."""

    def __init__(
        self, topology: Topology, engine: Engine, seed: int, timing: Timing = Timing.REAL
    ) -> None:
        """Begin without traffic. `seed` repeats every random choice of every link."""
        self._topology = topology
        self._engine = engine
        self._seed = seed
        self._timing = timing
        self._dscp = DscpClasses()
        self._directions: dict[str, LinkDirection] = {}
        self._links: dict[str, str] = {}

    def direction(self, link: Link, sender: Port) -> LinkDirection:
        """The direction of a link that leaves one of its ports."""
        return self._direction(link, up=sender == link.lower)

    def _direction(self, link: Link, *, up: bool) -> LinkDirection:
        name = link.directions[not up]
        direction = self._directions.get(name)
        if direction is None:
            shape = shape_of(self._topology, link, link.lower if up else link.upper)
            if self._timing is Timing.EMULATED:
                shape = replace(shape, before_ns=0, behind_ns=0, at_once=True)
            direction = LinkDirection(name, shape, self._engine, self._dscp, self._seed)
            self._directions[name] = direction
            self._links[name] = link.name
        return direction

    def named(self, name: str) -> LinkDirection:
        """The direction `a>b`.

        Raises:
            KeyError: the fabric has no such link.
        """
        link_and_sender = direction_named(self._topology, name)
        if link_and_sender is None:
            raise KeyError(name)
        return self.direction(*link_and_sender)

    def route(self, src: Node, dst: Node, path: Path) -> tuple[LinkDirection, ...]:
        """The directions that a packet on a path crosses."""
        links = links_of_path(self._topology, src, dst, path)
        hops_up = len(links) // 2
        return tuple(self._direction(link, up=i < hops_up) for i, link in enumerate(links))

    def held_back_ns(self, links: int) -> int:
        """How long a receiver holds back a packet that has crossed `links` links: see `Timing`."""
        if self._timing is Timing.REAL:
            return 0
        return self._topology.one_way_ns(links - 1)

    def __iter__(self) -> Iterator[tuple[str, LinkDirection]]:
        """Every direction in use, with its link's name."""
        for name, direction in self._directions.items():
            yield self._links[name], direction

    def samples(self, now_ns: int) -> Iterator[tuple[str, str, LinkSample]]:
        """The counters of every direction in use, with its link's name and its own."""
        for link, direction in self:
            counts = direction.counts
            sample = LinkSample(
                counts.packets,
                counts.bytes,
                counts.dropped,
                counts.marked,
                counts.trimmed,
                direction.backlog_bytes(now_ns),
            )
            yield link, direction.name, sample

    def impair(self, direction: str, state: Impairment) -> None:
        """Bring one direction of a link into a state, from now on."""
        self.named(direction).impair(self._engine.now_ns, state)
